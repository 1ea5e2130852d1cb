"""Synchronous replicas: workers in step, as tasks of one session; what is slow, stale or dead."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph
from asyncmon.errors import InvalidArgumentError, OutOfRangeError
from asyncmon.testing import wait_all_tasks_blocked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

X = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [3.0]]) + 0.5).astype(np.float32)


class Model:
    """A linear model whose workers compute for a while."""

    def __init__(self, opt: Any, *args: Any, **kwargs: Any) -> None:
        self.step = am.get_or_create_global_step()
        self.x = graph.placeholder(graph.float32, [None, 3])
        self.y = graph.placeholder(graph.float32, [None, 1])
        self.w = graph.get_variable("w", initializer=np.zeros((3, 1), np.float32))
        self.b = graph.get_variable("b", initializer=np.zeros(1, np.float32))
        loss = graph.reduce_mean(graph.square(graph.matmul(self.x, self.w) + self.b - self.y))
        self.opt = am.SyncReplicasOptimizer(opt, *args, **kwargs) if args else opt
        self.train_op = self.opt.minimize(loss, global_step=self.step)
        if args:
            self.init_tokens = self.opt.get_init_tokens_op()
        self.init = graph.group(
            graph.global_variables_initializer(), graph.local_variables_initializer()
        )

    async def start(self, sess: graph.Session, coord: am.Coordinator | None = None) -> None:
        await sess.run(self.init)
        await sess.run(self.opt.chief_init_op)
        await sess.run(self.init_tokens)
        self.opt.get_chief_queue_runner().create_tasks(sess, coord, start=True)

    async def train(self, sess: graph.Session, rows: slice, before: float = 0.0) -> None:
        """Do a step of a worker that takes its token at once and computes for so many seconds."""
        await sess.run(self.train_op, {self.x: X[rows], self.y: Y[rows]})
        await asyncio.sleep(before)

    async def values(self, sess: graph.Session) -> list[Any]:
        return await sess.run([self.step, self.w, self.b])


async def settled(sess: graph.Session, model: Model) -> int:
    await wait_all_tasks_blocked()
    return int(await sess.run(model.step))


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    own = [r for r in caplog.records if r.name.startswith("asyncmon.distributed")]
    return [record.getMessage() for record in own if record.levelno == logging.WARNING]


def part(worker: int, workers: int) -> slice:
    rows = 64 // workers
    return slice(worker * rows, (worker + 1) * rows)


async def big_batches(make: Any, steps: int) -> list[Any]:
    with graph.Graph().as_default():
        model = Model(make())
        async with graph.Session() as sess:
            await sess.run(model.init)
            found = [(await model.values(sess))[1:]]
            for _ in range(steps):
                await model.train(sess, slice(0, 64))
                found.append((await model.values(sess))[1:])
    return found


@pytest.mark.parametrize(
    "make",
    [lambda: graph.train.GradientDescentOptimizer(0.1), lambda: graph.train.AdamOptimizer(0.1)],
    ids=["sgd", "adam"],
)
async def test_workers_in_step_do_what_one_does_with_a_big_batch(make: Any) -> None:
    expected = await big_batches(make, 5)
    model = Model(make(), 4)
    async with graph.Session() as sess:
        await model.start(sess)
        for step in range(5):
            for found, wanted in zip((await model.values(sess))[1:], expected[step], strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
            workers = [asyncio.create_task(model.train(sess, part(i, 4))) for i in range(4)]
            await asyncio.wait(workers[:3])
            await asyncio.wait(workers)
            assert await settled(sess, model) == step + 1
        assert model.opt.get_slot_names() == model.opt._opt.get_slot_names()
        assert model.opt.variables() == model.opt._opt.variables()


async def test_no_update_before_all_gradients(caplog: pytest.LogCaptureFixture) -> None:
    model = Model(graph.train.GradientDescentOptimizer(0.1), 3, token_timeout_secs=100)
    async with graph.Session() as sess:
        await model.start(sess)
        for i in range(2):
            await model.train(sess, part(i, 3))
        assert await settled(sess, model) == 0
        await model.train(sess, part(2, 3))
        assert await settled(sess, model) == 1
        assert await sess.run(model.opt.tokens.size()) == 3
    assert not warnings_of(caplog)


async def test_backup_replicas_and_stale_gradients() -> None:
    gate = asyncio.Event()

    async def slow(x: Any) -> Any:
        await gate.wait()
        return x

    model = Model(graph.train.GradientDescentOptimizer(0.1), 2, 3, token_timeout_secs=100)
    late = slow_gradients(model, slow)
    async with graph.Session() as sess:
        await model.start(sess)
        feeds = {model.x: X[:8] * 100, model.y: Y[:8]}
        third = asyncio.create_task(sess.run(late, feeds))
        await wait_all_tasks_blocked()
        await model.train(sess, part(0, 2))
        await model.train(sess, part(1, 2))
        assert await settled(sess, model) == 1
        before = await model.values(sess)
        gate.set()
        await third
        counts = [sums.num_accumulated() for sums in model.opt.accumulators]
        assert await sess.run(counts) == [0, 0], "its gradient was of step 0"
        assert await sess.run(model.opt.tokens.size()) == 3, "the token it left was replaced"
        for found, wanted in zip(await model.values(sess), before, strict=True):
            np.testing.assert_array_equal(found, wanted)
    expected = await big_batches(lambda: graph.train.GradientDescentOptimizer(0.1), 1)
    np.testing.assert_allclose(before[1], expected[1][0], rtol=1e-5)


def slow_gradients(model: Model, slow: Any) -> Any:
    """Return a training operation of another worker, whose gradients wait after its token."""
    opt = model.opt
    token = opt.tokens.dequeue()
    (passed,) = [graph.py_func(slow, [token], graph.int64)]
    passed.set_shape(())
    applied = [
        sums.apply_grad(np.ones(v.shape, np.float32), passed)
        for sums, v in zip(opt.accumulators, [model.w, model.b], strict=True)
    ]
    return graph.group(*applied)


async def test_fewer_workers_than_gradients() -> None:
    model = Model(graph.train.GradientDescentOptimizer(0.1), 4, 2)
    expected = await big_batches(lambda: graph.train.GradientDescentOptimizer(0.1), 2)
    async with graph.Session() as sess:
        await model.start(sess)
        for step in range(2):
            for i in range(4):
                await model.train(sess, part(i, 4))
            assert await settled(sess, model) == step + 1
        np.testing.assert_allclose((await model.values(sess))[1], expected[2][0], rtol=1e-5)


async def test_a_failed_step_gives_its_token_back() -> None:
    model = Model(graph.train.GradientDescentOptimizer(0.1), 1)
    checked = graph.check_numerics(model.x, "bad")
    async with graph.Session() as sess:
        await model.start(sess)
        feeds = {model.x: X[:8] * np.nan, model.y: Y[:8]}
        with pytest.raises(InvalidArgumentError, match="bad"):
            await sess.run([model.train_op, checked], feeds)
        assert await sess.run(model.opt.tokens.size()) == 1
        assert await settled(sess, model) == 0


@pytest.mark.parametrize(("timeout", "seconds"), [(4.0, (4, 5)), (None, (30, 38))])
async def test_a_dead_replica_does_not_hold_the_others(
    timeout: float | None, seconds: tuple[float, float], caplog: pytest.LogCaptureFixture
) -> None:
    model = Model(graph.train.GradientDescentOptimizer(0.1), 2, token_timeout_secs=timeout)
    loop = asyncio.get_running_loop()
    async with graph.Session() as sess:
        await model.start(sess)
        await sess.run(model.opt.tokens.dequeue())  # by the one that dies
        await model.train(sess, part(0, 2))
        begun = loop.time()
        await model.train(sess, part(1, 2))  # by the one that is left
        assert seconds[0] <= loop.time() - begun <= seconds[1]
        assert await settled(sess, model) == 1
        for i in range(4):
            await model.train(sess, part(i % 2, 2))
        assert await settled(sess, model) == 3
        assert loop.time() - begun <= seconds[1], "it has the dead one's tokens now"
        for _ in range(2):  # another one dies, and another one
            await sess.run(model.opt.tokens.dequeue())
            await model.train(sess, part(0, 2))
            await model.train(sess, part(0, 2))
        assert await settled(sess, model) == 5
    warnings = warnings_of(caplog)
    assert len(warnings) == 1
    assert warnings[0].startswith("No gradient of step 0 for ")


async def test_the_time_without_gradients_is_some_steps(caplog: pytest.LogCaptureFixture) -> None:
    model = Model(graph.train.GradientDescentOptimizer(0.1), 2)
    loop = asyncio.get_running_loop()
    async with graph.Session() as sess:
        await model.start(sess)
        for _ in range(100):  # steps of 2 seconds
            await model.train(sess, part(0, 2), 1.0)
            await model.train(sess, part(1, 2), 1.0)
        assert not warnings_of(caplog)
        await sess.run(model.opt.tokens.dequeue())
        await model.train(sess, part(0, 2))
        begun = loop.time()
        await model.train(sess, part(1, 2))
        assert 9 <= loop.time() - begun <= 15


async def test_sparse_gradients_and_averages() -> None:
    step = am.get_or_create_global_step()
    table = graph.get_variable("table", initializer=np.zeros((4, 2), np.float32))
    ids = graph.placeholder(graph.int32, [None])
    averages = graph.train.ExponentialMovingAverage(0.5)
    opt = am.SyncReplicasOptimizer(
        graph.train.GradientDescentOptimizer(1.0), 2,
        variable_averages=averages, variables_to_average=[table],
    )  # fmt: skip
    train_op = opt.minimize(graph.reduce_sum(graph.gather(table, ids)), step)
    tokens = opt.get_init_tokens_op()
    async with graph.Session() as sess:
        await sess.run([graph.global_variables_initializer(), graph.local_variables_initializer()])
        await sess.run(opt.chief_init_op)
        await sess.run(tokens)
        opt.get_chief_queue_runner().create_tasks(sess, start=True)
        await sess.run(train_op, {ids: [0, 1]})
        await sess.run(train_op, {ids: [1, 1, 3]})
        await wait_all_tasks_blocked()
        found, average = await sess.run([table, averages.average(table)])
    assert found[:, 0].tolist() == [-1, -1.5, 0, -1]
    np.testing.assert_allclose(average, found / 2)


async def test_values_of_tensorflow() -> None:
    """The numbers of TensorFlow's own SyncReplicasOptimizer, two replicas, two batches an update."""
    step = am.get_or_create_global_step()
    x, y = graph.placeholder(graph.float32, [None, 3]), graph.placeholder(graph.float32, [None, 1])
    ids = graph.placeholder(graph.int32, [None])
    w = graph.get_variable("w", initializer=np.zeros((3, 1), np.float32))
    table = graph.get_variable("t", initializer=np.zeros((4, 2), np.float32))
    loss = graph.reduce_mean(graph.square(graph.matmul(x, w) - y))
    loss += graph.reduce_sum(graph.gather(table, ids) * np.float32([[1, 2]]))
    opt = am.SyncReplicasOptimizer(graph.train.MomentumOptimizer(0.1, 0.9), 2)
    train_op, tokens = opt.minimize(loss, step), opt.get_init_tokens_op()
    async with graph.Session() as sess:
        await sess.run([graph.global_variables_initializer(), graph.local_variables_initializer()])
        await sess.run(opt.chief_init_op)
        await sess.run(tokens)
        opt.get_chief_queue_runner().create_tasks(sess, start=True)
        for _ in range(3):
            await sess.run(train_op, {x: X[:32], y: Y[:32], ids: [0, 1]})
            await sess.run(train_op, {x: X[32:], y: Y[32:], ids: [1, 3]})
        await wait_all_tasks_blocked()
        found = await sess.run([step, w, table])
    assert found[0] == 3
    wanted = [1.1534290313720703, -1.3053717613220215, 2.624387502670288]
    np.testing.assert_allclose(found[1].ravel(), wanted, rtol=1e-5)
    np.testing.assert_allclose(found[2][:, 1], [-1.122, -1.122, 0, -1.122], rtol=1e-5)
    assert [v.name for v in opt.variables()] == ["t/Momentum:0", "w/Momentum:0"]


async def test_the_hook_stops_all_at_their_step_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    expected = await big_batches(lambda: graph.train.AdamOptimizer(0.1), 8)
    for last in (3, 8):
        with graph.Graph().as_default():
            model = Model(graph.train.AdamOptimizer(0.1), 4)
            hooks = [am.StopAtStepHook(last_step=last), model.opt.make_session_run_hook(True)]
            async with am.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=hooks, log_step_count_steps=None
            ) as sess:
                others = [asyncio.create_task(worker(model, sess, i)) for i in range(3)]
                await asyncio.sleep(0.5)
                while not sess.should_stop():
                    await sess.run(model.train_op, {model.x: X[part(3, 4)], model.y: Y[part(3, 4)]})
                    await asyncio.sleep(1)
            await asyncio.gather(*others)
        reader = await am.load_checkpoint(str(tmp_path))
        async with reader:
            assert await reader.get_tensor("global_step") == last
            np.testing.assert_allclose(await reader.get_tensor("w"), expected[last][0], rtol=1e-4)


async def worker(model: Model, sess: Any, i: int) -> None:
    raw = sess.raw_session()
    try:
        while not sess.should_stop():
            await model.train(raw, part(i, 4), 1.0)
    except (OutOfRangeError, am.errors.CancelledError):
        return  # the chief has stopped


async def test_the_hook_of_a_worker_waits_for_its_update() -> None:
    model = Model(graph.train.GradientDescentOptimizer(0.1), 2, token_timeout_secs=100)
    hook, left = model.opt.make_session_run_hook(False), model.opt.tokens.size()
    async with am.MonitoredSession(hooks=[hook]) as sess:
        raw = sess.raw_session()
        await raw.run(model.opt.chief_init_op)
        await raw.run(model.init_tokens)
        model.opt.get_chief_queue_runner().create_tasks(raw, sess.coord, start=True)
        feeds = {model.x: X[:8], model.y: Y[:8]}
        other = {**feeds, model.opt.token: await raw.run(model.opt.token)}
        first = asyncio.create_task(sess.run(model.train_op, feeds))
        await wait_all_tasks_blocked()
        assert not first.done()
        assert await raw.run(model.step) == 0
        await raw.run(model.train_op, other)
        await first
        assert raw.global_step == 1
        assert await raw.run(left) == 1
        assert await sess.run(model.step) == 1, "a run that is no step takes no token"
        assert await raw.run(left) == 1


async def test_gradients_are_computed_after_the_token_has_arrived() -> None:
    model = Model(graph.train.GradientDescentOptimizer(0.1), 2, token_timeout_secs=100)
    x = graph.placeholder(graph.float32, [3, 1])
    change = graph.assign(model.w, x)
    grads = [sums.take_grad(1) for sums in model.opt.accumulators]
    async with graph.Session() as sess:
        await sess.run(model.init)
        waiting = asyncio.create_task(model.train(sess, part(0, 2)))
        await wait_all_tasks_blocked()
        await sess.run(change, {x: np.full((3, 1), 7.0)})
        await sess.run(model.init_tokens)
        await waiting
        found = await sess.run(grads)
    rows = part(0, 2)
    error = X[rows] @ np.full((3, 1), 7.0, np.float32) - Y[rows]
    np.testing.assert_allclose(found[0], 2 * X[rows].T @ error / 32, rtol=1e-4)


class Preempt(am.SessionRunHook):
    """Lose the session once, in the middle of a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_values.step == self.step:
            self.step = -1
            raise am.errors.AbortedError("preempted")


async def test_the_chief_recovers_from_a_checkpoint(tmp_path: Path) -> None:
    model = Model(graph.train.AdamOptimizer(0.1), 1)
    hooks = [model.opt.make_session_run_hook(True), am.StopAtStepHook(last_step=8), Preempt(5)]
    async with am.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=2, log_step_count_steps=None
    ) as sess:
        while not sess.should_stop():
            await sess.run(model.train_op, {model.x: X, model.y: Y})
    expected = await big_batches(lambda: graph.train.AdamOptimizer(0.1), 8)
    async with await am.load_checkpoint(str(tmp_path)) as reader:
        assert await reader.get_tensor("global_step") == 8
        np.testing.assert_allclose(await reader.get_tensor("w"), expected[8][0], rtol=1e-4)


async def test_a_replica_that_leaves_puts_its_token_back() -> None:
    model = Model(graph.train.GradientDescentOptimizer(0.1), 2, 3, token_timeout_secs=100)
    left, close = model.opt.tokens.size(), model.opt.tokens.close()
    hook = model.opt.make_session_run_hook(False)
    async with am.MonitoredSession(hooks=[hook]) as sess:
        raw = sess.raw_session()
        await raw.run(model.opt.chief_init_op)
        await raw.run(model.init_tokens)
        await sess.run(model.train_op, {model.x: X[:8], model.y: Y[:8]})
        assert await raw.run(left) == 1, "one is used, one is held"
        await hook.end(raw)
        assert await raw.run(left) == 2
        await raw.run(close)
        await hook.end(raw)


async def test_misuse() -> None:
    opt = am.SyncReplicasOptimizer(graph.train.GradientDescentOptimizer(0.1), 3, 2)
    var = graph.get_variable("v", initializer=np.float32(0))
    step = am.get_or_create_global_step()
    hook = opt.make_session_run_hook(True)
    with pytest.raises(ValueError, match=r"Should be called after apply_gradients\(\)"):
        opt.get_chief_queue_runner()
    with pytest.raises(ValueError, match="should be called after apply_gradients"):
        opt.get_init_tokens_op()
    with pytest.raises(ValueError, match="should be called before using the hook"):
        await hook.begin()
    with pytest.raises(ValueError, match="Must supply at least one variable"):
        opt.apply_gradients([], step)
    with pytest.raises(ValueError, match="Global step is required to check staleness"):
        opt.apply_gradients([(graph.constant(1.0), var)])
    opt.apply_gradients([(graph.constant(1.0), var)], step)
    with pytest.raises(ValueError, match=r"Too few tokens to finish the first step: 0 .* 1 \(needed\)"):
        opt.get_init_tokens_op(0)
    assert opt.get_init_tokens_op(1) is not None
    await hook.begin()
    async with graph.Session() as sess:
        with pytest.raises(RuntimeError, match="error: Variables not initialized: v, global_step"):
            await hook.after_create_session(sess, am.Coordinator())
    with pytest.raises(ValueError, match="must be positive, got 0"):
        am.SyncReplicasOptimizer(graph.train.GradientDescentOptimizer(0.1), 0)
