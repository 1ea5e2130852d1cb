"""A run that is cancelled at any point leaves the state before it or after it, never between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.core.op import table
from tests.faults import AtAwait

pytestmark = pytest.mark.asyncio

SIZE = 100_000
THREADED = tf.SessionConfig(inline_ms=0)
CONFIGS = pytest.mark.parametrize("config", [tf.SessionConfig(inline_ms=1000), THREADED])


async def nothing(_sess: tf.Session) -> None:
    """The work beside a step that needs none."""


@dataclass
class Scene:
    """A step, and the counts of its commits.

    Attributes:
        step: the fetches of the run.
        counts: scalars, each of which is the number of steps that were committed.
        waits: at least how many points there are at which the run can be cancelled.
        setup: run once.
        before: awaited before each attempt.
        beside: awaited beside each attempt, which may need it to continue.
    """

    step: Any
    counts: list[Any]
    waits: int
    setup: Any = ()
    before: Callable[[tf.Session], Awaitable[None]] = nothing
    beside: Callable[[tf.Session], Awaitable[None]] = nothing


def counters() -> tuple[tf.Variable, tf.Variable, list[Any], list[Any]]:
    """Return a large and a small counter, their increments, and their expected values."""
    a, b = tf.Variable(np.zeros(SIZE)), tf.Variable(0)
    added = [a.assign_add(tf.ones([SIZE], tf.float64)).op, b.assign_add(1)]
    return a, b, added, [tf.reduce_min(a), tf.reduce_max(a), b]


def plain() -> Scene:
    _a, _b, added, counts = counters()
    return Scene(added, counts, 0)


def with_functions_before_the_turn() -> Scene:
    a, b, _, counts = counters()

    async def wait() -> Any:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return np.ones(SIZE)

    async def wait_longer() -> Any:
        for _ in range(5):
            await asyncio.sleep(0)
        return np.int32(1)

    x = tf.py_func(wait, [], tf.float64)
    y = tf.py_func(wait_longer, [], tf.int32)
    x.set_shape([SIZE])
    y.set_shape([])
    return Scene([a.assign_add(x * 1.0).op, b.assign_add(y)], counts, 2)


def with_functions_of_the_state() -> Scene:
    a, b, _, counts = counters()

    async def wait(n: Any) -> Any:
        await asyncio.sleep(0)
        return np.int32(n + 1)

    x = tf.py_func(wait, [b], tf.int32)
    x.set_shape([])
    return Scene([a.assign_add(tf.ones([SIZE], tf.float64)), b.assign(x)], counts, 1)


def with_functions_in_branches_and_loops() -> Scene:
    a, b, _, counts = counters()

    async def wait(n: Any) -> Any:
        await asyncio.sleep(0)
        return np.int32(n + 1)

    def waited(n: Any) -> Any:
        x = tf.py_func(wait, [n], tf.int32)
        x.set_shape([])
        return x

    two = tf.while_loop(lambda i: i < b + 2, waited, [b])
    one = tf.cond(two > 0, lambda: waited(two) - 2, lambda: b)
    return Scene([a.assign_add(tf.ones([SIZE], tf.float64)).op, b.assign(one)], counts, 2)


def with_queues() -> Scene:
    """Elements go from one queue to another; there are enough, and there is room."""
    _a, _b, added, counts = counters()
    source, target = (tf.FIFOQueue(-1, [tf.int32], shapes=[[]]) for _ in range(2))
    last = tf.Variable(0)
    x = source.dequeue()
    step = [*added, last.assign(x + 1), target.enqueue(x)]
    return Scene(
        step,
        [*counts, last, 1000 - source.size(), target.size()],
        0,
        setup=source.enqueue_many(np.arange(1000, dtype=np.int32)),
    )


def with_queues_that_wait() -> Scene:
    """An element comes while the run waits for it, and room for it while the run waits for that."""
    _a, _b, added, counts = counters()
    source = tf.FIFOQueue(-1, [tf.int32], shapes=[[]])
    target = tf.FIFOQueue(1, [tf.int32], shapes=[[]])
    last, produced = tf.Variable(0), 0
    x, value = source.dequeue(), tf.placeholder(tf.int32, [])
    put, fill, drain = source.enqueue(value), target.enqueue(7), target.dequeue_up_to(1)

    async def before(sess: tf.Session) -> None:
        if await sess.run(target.size()) == 0:
            await sess.run(fill)

    async def beside(sess: tf.Session) -> None:
        nonlocal produced
        for _ in range(4):
            await asyncio.sleep(0)
        if await sess.run(source.size()) == 0:
            await sess.run(put, {value: produced})
            produced += 1
        for _ in range(4):
            await asyncio.sleep(0)
        await sess.run(drain)

    # A dequeue of the element of an earlier, cancelled step would set another value.
    step = [*added, last.assign(x + 1), target.enqueue(1)]
    return Scene(step, [*counts, last], 1, before=before, beside=beside)


SCENES = pytest.mark.parametrize(
    "build",
    [
        plain,
        with_functions_before_the_turn,
        with_functions_of_the_state,
        with_functions_in_branches_and_loops,
        with_queues,
        with_queues_that_wait,
    ],
)


async def done_after(sess: tf.Session, scene: Scene, before: int) -> int:
    """Return how many steps are committed; all must agree."""
    counts = {int(count) for count in await sess.run(scene.counts)}
    assert len(counts) == 1, f"the state is between two steps: {counts}"
    (done,) = counts
    assert done in (before, before + 1)
    return done


async def attempt(sess: tf.Session, scene: Scene, run: Awaitable[Any]) -> bool:
    """Await a run beside the work it needs; return whether it came to its end."""
    await scene.before(sess)
    beside = asyncio.ensure_future(scene.beside(sess))
    try:
        await run
    except asyncio.CancelledError:
        return False
    finally:
        await beside
    return True


@SCENES
@CONFIGS
async def test_cancelled_at_any_await(build: Callable[[], Scene], config: tf.SessionConfig) -> None:
    scene = build()
    async with tf.Session(config=config) as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(scene.setup)
        done = cancelled = 0
        for n in range(1, 200):
            run = AtAwait(sess.run(scene.step), n, asyncio.CancelledError)
            ended = await attempt(sess, scene, run)
            assert ended is not run.reached, "it was cancelled and did not say so"
            done = await done_after(sess, scene, done)
            if ended:
                break
            cancelled += 1
        else:
            pytest.fail("the run never came to its end")
        in_worker = 1 if config is THREADED else 0
        assert cancelled >= scene.waits + in_worker, "it was not cancelled wherever it waits"
        for _ in range(2):
            assert await attempt(sess, scene, sess.run(scene.step))
            assert await done_after(sess, scene, done) == done + 1
            done += 1


@SCENES
@CONFIGS
async def test_a_task_cancelled_in_any_round_of_the_loop(
    build: Callable[[], Scene], config: tf.SessionConfig
) -> None:
    """A cancellation may also come when the awaited value is there already."""
    scene = build()
    async with tf.Session(config=config) as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(scene.setup)
        done = 0
        for rounds in range(40):
            await scene.before(sess)
            task = asyncio.create_task(sess.run(scene.step))
            beside = asyncio.ensure_future(scene.beside(sess))
            for _ in range(rounds):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task, beside])
            before, done = done, await done_after(sess, scene, done)
            assert task.cancelled() or done == before + 1
        assert await attempt(sess, scene, sess.run(scene.step))
        assert await done_after(sess, scene, done) == done + 1


class Gate:
    """A place in a worker where it says that it is there and stays until it is let go."""

    def __init__(self) -> None:
        self._inside = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> None:
        self._inside.set()
        assert self.go_on.wait(10)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._inside.wait, 10)


async def test_cancelled_while_a_worker_computes() -> None:
    scene, gate = with_queues(), Gate()

    def dawdle() -> Any:
        gate()
        return np.int32(0)

    x = tf.py_func(dawdle, [], tf.int32)
    async with tf.Session(config=THREADED) as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(scene.setup)
        task = asyncio.create_task(sess.run([scene.step, x]))
        await gate.reached()
        task.cancel()
        assert await sess.run(scene.counts[2]) == 0  # not one that changes: it need not wait
        gate.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await done_after(sess, scene, 0) == 0


@pytest.mark.parametrize("how", ["cancel", "time out", "close"])
async def test_ended_while_its_writes_are_applied(how: str) -> None:
    """Then it is too late: the step is done, its elements are dequeued and enqueued."""
    scene, gate = with_queues(), Gate()
    if "DawdlesWhenApplied" not in table:
        tf.register(
            tf.VariableOpDef(
                "DawdlesWhenApplied",
                None,
                lambda ref, **_attrs: tf.Spec(ref.dtype, ref.shape),
                update=lambda ref, *, gate: gate(),
            )
        )
    slow = tf.create_operation("DawdlesWhenApplied", (tf.Variable(np.zeros(SIZE)),), {"gate": gate})
    options = tf.RunOptions(timeout_in_ms=60_000)
    sess = tf.Session(config=THREADED)
    await sess.run(tf.global_variables_initializer())
    await sess.run(scene.setup)
    for fetches in (scene.counts, scene.step):  # their plans are made: only the run is timed
        await sess.run(fetches)
    task = asyncio.create_task(sess.run([scene.step, slow], options=options))
    await gate.reached()
    snapshot = sess.snapshot()  # ordered now: right after the commit
    closing = asyncio.create_task(sess.close()) if how == "close" else None
    if how == "cancel":
        task.cancel()
    if how == "time out":
        (run,) = sess.backend.executor._runs
        run.abort(errors.DeadlineExceededError("as its timer does"))
    await asyncio.sleep(0)
    assert not task.done()
    gate.go_on.set()
    if how == "cancel":
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        await task
    with await snapshot as taken:
        assert taken["Variable"].min() == taken["Variable"].max() == 2
        assert taken["Variable_1"] == taken["Variable_2"] == 2
    if closing is None:
        assert await done_after(sess, scene, 1) == 2
    await (closing or sess.close())
