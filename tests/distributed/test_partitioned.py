"""Sessions whose variables are on other tasks: one pull and one push, and the same numbers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.distributed.wire import Decoder, Message
from asyncmon.testing import wait_all_tasks_blocked
from tests.distributed.in_process import InProcessCluster

Start = Callable[[Any], InProcessCluster]

CLUSTER = {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
IDS = np.array([3, 5, 3], np.int32)


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Callable[[Any], InProcessCluster]]:
    clusters: list[InProcessCluster] = []

    def start(spec: Any) -> InProcessCluster:
        clusters.append(InProcessCluster(spec))
        return clusters[-1]

    yield start
    for cluster in clusters:
        await cluster.close()


def on_cluster() -> Any:
    return graph.get_default_graph().device(am.replica_device_setter(cluster=CLUSTER))


def network(optimizer: graph.train.Optimizer) -> dict[str, Any]:
    step = am.get_or_create_global_step()
    x = graph.placeholder(graph.float32, [None, 4], name="x")
    ids = graph.placeholder(graph.int32, [None], name="ids")
    w = graph.get_variable("w", initializer=np.full((4, 2), 0.1, np.float32))
    b = graph.get_variable("b", initializer=np.zeros(2, np.float32))
    e = graph.get_variable("e", initializer=np.full((1000, 4), 0.2, np.float32))
    h = x + graph.nn.embedding_lookup(e, ids)
    loss = graph.reduce_mean(graph.square(graph.matmul(h, w) + b - 1.0))
    train = optimizer.minimize(loss, global_step=step)
    return {"step": step, "x": x, "ids": ids, "w": w, "b": b, "e": e, "loss": loss, "train": train}


def feeds(parts: dict[str, Any]) -> dict[Any, Any]:
    return {parts["x"]: ROWS, parts["ids"]: IDS}


def starts(cluster: InProcessCluster, place: str) -> list[dict[str, Any]]:
    """Return the jobs that a task was asked for."""
    headers = [
        Decoder(Message(x)).content for channel in cluster.channels[place] for x in channel.requests
    ]
    return [header for header in headers if header["do"] == "start"]


OPTIMIZERS = {
    "sgd": lambda: graph.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: graph.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: graph.train.AdamOptimizer(0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.asyncio
async def test_training_gives_the_numbers_of_one_process(start: Start, name: str) -> None:
    async def trained(sess: graph.Session, parts: dict[str, Any]) -> list[Any]:
        await sess.run(graph.global_variables_initializer())
        fetches = [parts["train"], parts["loss"], parts["step"]]
        losses = [(await sess.run(fetches, feeds(parts)))[1:] for _ in range(5)]
        return [losses, await sess.run([parts["w"], parts["b"], parts["e"]])]

    with graph.Graph().as_default():
        parts = network(OPTIMIZERS[name]())
        async with graph.Session() as sess:
            here = await trained(sess, parts)
    cluster = start(CLUSTER)
    with on_cluster():
        parts = network(OPTIMIZERS[name]())
    assert {v.device for v in (parts["step"], parts["w"], parts["b"])} == {
        "/job:ps/task:0",
        "/job:ps/task:1",
    }
    async with cluster.session("worker", 0) as sess:
        there = await trained(sess, parts)
        assert sess.global_step == 5
    assert here[0] == there[0]
    for one, other in zip(here[1], there[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.asyncio
async def test_a_step_is_one_pull_and_one_push_a_server(start: Start) -> None:
    cluster = start(CLUSTER)
    with on_cluster():
        parts = network(graph.train.GradientDescentOptimizer(0.1))
    async with cluster.session("worker", 0) as sess:
        await sess.run(graph.global_variables_initializer())
        await sess.run(parts["train"], feeds(parts))
        before = {place: len(starts(cluster, place)) for place in cluster.services}
        await sess.run([parts["train"], parts["loss"]], feeds(parts))
        await sess.run([parts["train"], parts["loss"]], feeds(parts))
    for place in ("/job:ps/task:0", "/job:ps/task:1"):
        assert len(starts(cluster, place)) - before[place] == 4
    for channel in cluster.channels["/job:ps/task:0"]:
        assert channel.closed


@pytest.mark.asyncio
async def test_gathers_and_scatters_move_only_their_rows(start: Start) -> None:
    cluster = start(CLUSTER)
    with on_cluster():
        parts = network(graph.train.GradientDescentOptimizer(0.1))
    place = parts["e"].device
    async with cluster.session("worker", 0) as sess:
        await sess.run(graph.global_variables_initializer())
        await sess.run(parts["train"], feeds(parts))
        (channel,) = cluster.channels[place]
        channel.moved = 0
        await sess.run(parts["train"], feeds(parts))
        assert channel.moved < 4000  # the variable has 16,000 bytes
        changed = np.nonzero((await sess.run(parts["e"]) != 0.2).any(axis=1))[0]
    assert list(changed) == [3, 5]


@pytest.mark.asyncio
async def test_workers_share_variables_and_local_ones_are_their_own(start: Start) -> None:
    cluster = start(CLUSTER)
    with on_cluster():
        v = graph.get_variable("v", initializer=0.0)
        add = v.assign_add(1.0)
    local = graph.Variable(0.0, collections=[am.GraphKeys.LOCAL_VARIABLES], name="mine")
    count = local.assign_add(1.0)
    async with cluster.session("worker", 0) as chief, cluster.session("worker", 1) as other:
        await chief.run([v.initializer, local.initializer])
        await other.run(local.initializer)
        await asyncio.gather(*[sess.run([add, count]) for sess in (chief, other) for _ in range(10)])
        assert await chief.run(v) == await other.run(v) == 20.0
        assert await chief.run(local) == 10.0


@pytest.mark.asyncio
async def test_values_are_pulled_when_what_a_run_waits_for_is_there(start: Start) -> None:
    cluster = start(CLUSTER)
    with on_cluster():
        v = graph.get_variable("v", initializer=1.0)
        add = v.assign_add(1.0)
    with graph.device("/job:ps/task:1"):
        far = graph.FIFOQueue(10, [graph.float32], [[]])
        put_far = far.enqueue(20.0)
    near = graph.FIFOQueue(10, [graph.float32], [[]])
    put_near = near.enqueue(3.0)
    product = near.dequeue() * far.dequeue() * v
    update = v.assign(product)
    async with cluster.session("worker", 0) as sess:
        await sess.run(v.initializer)
        for fetched, found in ((product, 120.0), (update, 180.0)):
            run = asyncio.create_task(sess.run(fetched))
            await sess.run(put_far)
            await wait_all_tasks_blocked()
            await sess.run(add)  # the run has pulled nothing yet
            await sess.run(put_near)
            assert await run == found
        assert await sess.run(v) == 180.0


@pytest.mark.asyncio
async def test_order_between_servers_and_what_is_fetched(start: Start) -> None:
    cluster = start(CLUSTER)
    with graph.device("/job:ps/task:0"):
        a = graph.get_variable("a", initializer=1.0)
    with graph.device("/job:ps/task:1"):
        b = graph.get_variable("b", initializer=10.0)
    set_b = b.assign(a + 1.0)  # a value goes from one server to the other
    with graph.control_dependencies([set_b]):
        later = graph.identity(b) * 2.0
    set_a = a.assign(5.0)
    async with cluster.session("worker", 0) as sess:
        await sess.run(graph.global_variables_initializer())
        assert await sess.run([later, a, b, set_a]) == [4.0, 5.0, 2.0, 5.0]
        assert await sess.run({"a": [a], "sum": a + b}) == {"a": [5.0], "sum": 7.0}
        assert await sess.run([a, b], {a: 3.0}) == [3.0, 2.0]
        assert await sess.peek(a + b) == 7.0
        with pytest.raises(errors.InvalidArgumentError, match="changes the state"):
            await sess.peek(set_b)


@pytest.mark.asyncio
async def test_a_branch_reads_and_writes_variables_of_a_server(start: Start) -> None:
    cluster = start(CLUSTER)
    with graph.device("/job:ps/task:0"):
        a = graph.get_variable("a", initializer=1.0)
    x = graph.placeholder(graph.float32, [])
    read = graph.cond(x > 0.0, lambda: a * 2.0, lambda: a)
    written = graph.cond(x > 0.0, lambda: a.assign_add(x), lambda: a.assign_sub(1.0))
    i, total = graph.while_loop(lambda i, _: i < 3, lambda i, s: (i + 1, s + a), [0, 0.0])
    async with cluster.session("worker", 0) as sess:
        await sess.run(a.initializer)
        assert await sess.run(read, {x: 1.0}) == 2.0
        assert await sess.run(written, {x: 3.0}) == 4.0
        assert await sess.run(written, {x: -1.0}) == 3.0
        assert await sess.run([i, total]) == [3, 9.0]


@pytest.mark.asyncio
async def test_errors_name_what_cannot_be_placed(start: Start) -> None:
    cluster = start(CLUSTER)
    with graph.device("/job:ps/task:7"):
        v = graph.get_variable("v", initializer=1.0)
    with graph.device("/job:ps/task:0"):
        a = graph.get_variable("a", initializer=1.0)
    with graph.device("/job:ps/task:1"):
        b = graph.get_variable("b", initializer=1.0)
    with graph.device("/job:ps/task:8"):
        one = graph.constant(1.0, name="one")
    both = graph.cond(graph.constant(True), lambda: a.assign(1.0), lambda: b.assign(1.0))
    async with cluster.session("worker", 0) as sess:
        with pytest.raises(
            errors.InvalidArgumentError, match="Cannot assign a device for operation 'v'"
        ):
            await sess.run(v.initializer)
        with pytest.raises(
            errors.InvalidArgumentError, match="Cannot assign a device for operation 'one'"
        ):
            await sess.run(a.assign(one))
        with pytest.raises(errors.InvalidArgumentError, match="on several devices"):
            await sess.run(both)


@pytest.mark.asyncio
async def test_a_server_that_was_started_again_aborts_the_run(start: Start) -> None:
    cluster = start(CLUSTER)
    with on_cluster():
        parts = network(graph.train.GradientDescentOptimizer(0.1))
    async with cluster.session("worker", 0) as sess:
        await sess.run(graph.global_variables_initializer())
        cluster.start("/job:ps/task:0")
        with pytest.raises(errors.AbortedError, match="started anew"):
            await sess.run(parts["train"], feeds(parts))


@pytest.mark.asyncio
async def test_a_monitored_session_recovers_from_a_server_that_was_lost(
    start: Start, tmp_path: Path
) -> None:
    cluster = start(CLUSTER)
    with on_cluster():
        parts = network(graph.train.GradientDescentOptimizer(0.1))
    cluster.session("worker", 0)  # registers the target
    lost = False
    async with am.MonitoredTrainingSession(
        cluster.target,
        checkpoint_dir=str(tmp_path),
        save_checkpoint_steps=2,
        hooks=[am.StopAtStepHook(last_step=9)],
    ) as sess:
        while not sess.should_stop():
            _, step = await sess.run([parts["train"], parts["step"]], feeds(parts))
            if step == 5 and not lost:
                lost = True
                cluster.start("/job:ps/task:1")
    assert lost
    saved = await am.load_checkpoint(await am.latest_checkpoint(str(tmp_path)))
    assert {"w", "b", "e", "global_step"} <= set(saved.get_variable_to_shape_map())
    assert await saved.get_tensor("global_step") == 9


def one_on_each_server(value: float) -> tuple[list[Any], Any]:
    """Return a variable on each of two servers, and a step that adds 1 to both."""
    parts = []
    for task in range(2):
        with graph.device(f"/job:ps/task:{task}"):
            parts.append(graph.get_variable("ab"[task], initializer=value))
    return parts, graph.group(*[part.assign_add(1.0) for part in parts])


@pytest.mark.asyncio
async def test_a_snapshot_is_ordered_before_later_steps_of_its_session(start: Start) -> None:
    cluster = start(CLUSTER)
    _, step = one_on_each_server(5.0)
    async with cluster.session("worker", 0) as sess:
        await sess.run(graph.global_variables_initializer())
        ordered = sess.snapshot()
        await sess.run(step)
        with await ordered as snapshot:
            assert snapshot["a"] == snapshot["b"] == 5.0
        with await sess.snapshot() as snapshot:
            assert snapshot["a"] == snapshot["b"] == 6.0


@pytest.mark.asyncio
async def test_a_snapshot_that_fails_at_a_lost_server_does_not_wait_for_the_others(
    start: Start,
) -> None:
    cluster = start(CLUSTER)
    parts, step = one_on_each_server(0.0)
    async with cluster.session("worker", 0) as sess:
        await sess.run(graph.global_variables_initializer())
        lost, late = (cluster.channels[f"/job:ps/task:{task}"][-1] for task in range(2))
        carry, deliver = lost.call, late.call

        async def cut(request: Message, timeout: float) -> Message:
            if Decoder(request).content.get("job") == "snapshot":
                raise errors.UnavailableError("The connection broke.")
            return await carry(request, timeout)

        async def delayed(request: Message, timeout: float) -> Message:
            if Decoder(request).content.get("job") == "snapshot":
                await asyncio.Event().wait()
            return await deliver(request, timeout)

        lost.call, late.call = cut, delayed  # type: ignore[method-assign]  # the network's faults
        with pytest.raises(errors.UnavailableError, match="The connection broke"):
            await sess.snapshot()
        lost.call, late.call = carry, deliver  # type: ignore[method-assign]  # likewise
        await sess.run(step)
        assert await sess.run(parts) == [1.0, 1.0]


@pytest.mark.asyncio
async def test_a_snapshot_is_of_one_version_on_each_server(start: Start) -> None:
    cluster = start(CLUSTER)
    made, ones = [], graph.ones([1000])
    for task, name in itertools.product(range(2), "ab"):
        with graph.device(f"/job:ps/task:{task}"):
            made.append(graph.get_variable(f"{name}{task}", initializer=np.zeros(1000, np.float32)))
    step = graph.group(*[one.assign_add(ones) for one in made])
    stopped = False

    async def work(sess: graph.Session) -> int:
        done = 0
        while not stopped:
            await sess.run(step)
            done += 1
        return done

    async with cluster.session("worker", 0) as chief, cluster.session("worker", 1) as other:
        await chief.run(graph.global_variables_initializer())
        workers = [asyncio.create_task(work(sess)) for sess in (chief, other, other)]
        for _ in range(20):
            with await chief.snapshot() as snapshot:
                for task in range(2):
                    found = {*snapshot[f"a{task}"], *snapshot[f"b{task}"]}
                    assert len(found) == 1
            await asyncio.sleep(0)
        stopped = True
        done = sum(await asyncio.gather(*workers))
        assert done > 20
        assert [one[0] for one in await chief.run(made)] == [done] * 4


@pytest.mark.asyncio
@pytest.mark.parametrize("server", [0, 1])
async def test_a_snapshot_is_aborted_if_the_session_is_closed_first(start: Start, server: int) -> None:
    cluster = start(CLUSTER)
    one_on_each_server(0.0)
    async with cluster.session("worker", 1) as other:
        await other.run(graph.global_variables_initializer())
        chief = cluster.session("worker", 0)
        with await chief.snapshot():
            pass
        channel = cluster.channels[f"/job:ps/task:{server}"][-1]
        deliver = channel.call

        async def closed(request: Message, timeout: float) -> Message:
            if Decoder(request).content.get("job") != "snapshot":
                return await deliver(request, timeout)
            channel.call = deliver  # type: ignore[method-assign]  # likewise
            await chief.close()
            return await deliver(request, timeout)

        channel.call = closed  # type: ignore[method-assign]  # the fault
        with pytest.raises(errors.AbortedError), await chief.snapshot():
            pass
        await chief.close()
        await other.run(graph.global_variables_initializer())
