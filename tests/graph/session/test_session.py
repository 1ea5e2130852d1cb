"""The raw session: its life, its runs, its results."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = pytest.mark.asyncio


async def test_inside_the_block_its_graph_is_the_default() -> None:
    with tf.Graph().as_default():
        other = tf.Graph()
        async with tf.Session(graph=other) as sess:
            assert tf.get_default_graph() is other
            assert sess.graph is other
        assert tf.get_default_graph() is not other


async def test_a_closed_session_refuses_with_the_original_text_se_1() -> None:
    """SE-1."""
    c = tf.constant(1)
    sess = tf.Session()
    assert await sess.run(c) == 1
    await sess.close()
    await sess.close()
    assert sess.closed
    text = r"^Attempted to use a closed Session\.$"
    with pytest.raises(RuntimeError, match=text):
        await sess.run(c)
    with pytest.raises(RuntimeError, match=text):
        await sess.peek(c)
    with pytest.raises(RuntimeError, match=text):
        await sess.load({})
    with pytest.raises(RuntimeError, match=text):
        sess.snapshot()


async def test_arguments_are_checked() -> None:
    with pytest.raises(errors.NotFoundError, match="No session factory registered for target 'grpc:x'"):
        tf.Session("grpc:x")
    wrong: Any = "graph"
    with pytest.raises(TypeError, match="graph must be a Graph"):
        tf.Session(graph=wrong)
    with pytest.raises(TypeError, match="config must be a SessionConfig"):
        tf.Session(config=wrong)
    with pytest.raises(ValueError, match="inline_ms"):
        tf.SessionConfig(inline_ms=-1)
    with pytest.raises(ValueError, match="workers"):
        tf.SessionConfig(workers=0)


async def test_reading_an_uninitialised_variable_names_it_se_4() -> None:
    """SE-4."""
    v = tf.Variable(1.0, name="weights")
    async with tf.Session() as sess:
        for fetch in (v, v + 1, v.assign_add(1.0)):
            with pytest.raises(errors.FailedPreconditionError, match="uninitialized value weights"):
                await sess.run(fetch)


async def test_two_sessions_of_a_graph_have_states_of_their_own() -> None:
    v = tf.Variable(1)
    step = v.assign_add(1)
    async with tf.Session() as first, tf.Session() as second:
        await first.run(v.initializer)
        await second.run(v.initializer)
        assert await first.run(step) == 2
        assert await second.run(v) == 1


@pytest.mark.parametrize("inline_ms", [1000, 0])
async def test_results_are_never_overwritten_later(inline_ms: float) -> None:
    v = tf.Variable(np.zeros(1000, np.float32))
    p = tf.placeholder(tf.float32, [1000])
    step = v.assign_add(tf.ones([1000]))
    kept = []
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        await sess.run(v.initializer)
        fed = np.ones(1000, np.float32)
        for _ in range(4):
            kept.append(
                await sess.run([v, step, p, p * 2, tf.constant([1.0, 2.0]), v.value()[:2]], {p: fed})
            )
            await sess.run(step.op)
        copies = [[np.copy(x) for x in results] for results in kept]
        for results in kept:
            for array in results:
                array += 1000  # the caller's own
        assert (await sess.run(v) == 8).all()
        assert (fed == 1).all()
        assert (await sess.run(tf.constant([1.0, 2.0]))).tolist() == [1, 2]
    assert [c[0][0] for c in copies] == [1, 3, 5, 7]
    assert [c[1][0] for c in copies] == [1, 3, 5, 7]
    assert [c[5].tolist() for c in copies] == [[0, 0], [2, 2], [4, 4], [6, 6]]


@pytest.mark.parametrize("inline_ms", [1000, 0])
async def test_results_share_no_array_with_the_state_or_each_other(inline_ms: float) -> None:
    v = tf.Variable([1.0, 2.0])
    step = v.assign_add([1.0, 1.0])
    fetches = [tf.identity(step), step, tf.stop_gradient(step)[:1]]
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        await sess.run(v.initializer)
        identity, new, view = await sess.run(fetches)
        identity += 10
        new += 100
        view += 1000
        assert [identity.tolist(), new.tolist(), view.tolist()] == [[12, 13], [102, 103], [1002]]
        assert (await sess.run(v)).tolist() == [2, 3]


async def test_variables_that_are_assigned_one_array_do_not_share_it() -> None:
    v, w = tf.Variable(np.zeros(100)), tf.Variable(np.zeros(100))
    value = tf.constant(np.ones(100)) * tf.placeholder_with_default(np.float64(2), [])
    both = [v.assign(value).op, w.assign(tf.identity(value)).op]
    async with tf.Session() as sess:
        await sess.run([v.initializer, w.initializer])
        await sess.run(both)
        await sess.run(v.assign_add(np.ones(100)).op)  # in place
        assert (await sess.run(v) == 3).all()
        assert (await sess.run(w) == 2).all()


async def test_results_are_not_shared_between_runs() -> None:
    c = tf.constant([1.0, 2.0])
    async with tf.Session() as sess:
        first = await sess.run(c)
        first[0] = 9
        assert (await sess.run(c)).tolist() == [1, 2]


async def test_scalars_come_back_as_numpy_scalars() -> None:
    async with tf.Session() as sess:
        assert isinstance(await sess.run(tf.constant(1.0)), np.float32)
        assert isinstance(await sess.run(tf.constant(1.0) + 1), np.float32)
        assert await sess.run(tf.constant("text")) == b"text"


async def test_variables_made_after_the_session_was_opened() -> None:
    async with tf.Session() as sess:
        for i in range(3):
            v = tf.Variable(i)
            await sess.run(v.initializer)
            assert await sess.run(v) == i


async def test_a_session_can_be_collected_without_being_closed() -> None:
    sess = tf.Session(config=tf.SessionConfig(inline_ms=0))
    assert await sess.run(tf.constant(1)) == 1
    del sess


async def test_closing_leaves_nothing_behind() -> None:
    c = tf.constant(1)
    async with assert_nothing_left_behind(), tf.Session(config=tf.SessionConfig(inline_ms=0)) as sess:
        assert await sess.run(c) == 1


@pytest.mark.parametrize("inline_ms", [1000, 0])
async def test_an_error_names_its_node_and_leaves_the_session_usable(inline_ms: float) -> None:
    p = tf.placeholder(tf.float32, name="p")
    v = tf.Variable(0)
    fetches = [tf.matmul(p, p, name="product"), v.assign_add(1)]
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        await sess.run(v.initializer)
        with pytest.raises(errors.InvalidArgumentError, match=r"at node 'product' \(MatMul\)"):
            await sess.run(fetches, {p: np.zeros((2, 3))})
        assert await sess.run(v) == 0
        await sess.run(fetches, {p: np.zeros((3, 3))})
        assert await sess.run(v) == 1


async def test_fetch_structures_built_again_find_their_plan() -> None:
    a, b = tf.constant(1), tf.constant(2)
    async with tf.Session() as sess:
        for _ in range(5):
            assert await sess.run({"x": [a, b]}) == {"x": [1, 2]}
        assert len(sess._plans) == 1


async def test_a_loop_of_short_runs_lets_other_tasks_run() -> None:
    v = tf.Variable(0)
    step = v.assign_add(1)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async with tf.Session() as sess:
        await sess.run(v.initializer)
        ticker = asyncio.create_task(tick())
        for _ in range(2000):
            await sess.run(step)
        ticker.cancel()
    assert ticks >= 3


@pytest.mark.parametrize("inline_ms", [1000, 0])
async def test_a_trace_has_every_node(inline_ms: float) -> None:
    v = tf.Variable(np.zeros(100, np.float32), name="v")
    y = tf.matmul(tf.reshape(v, [10, 10]), tf.reshape(v, [10, 10]), name="product")
    metadata = tf.RunMetadata()
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        await sess.run(v.initializer)
        await sess.run(
            [y, v.assign_add(tf.ones([100])).op],
            options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
            run_metadata=metadata,
        )
    nodes = {node.name: node for node in metadata.nodes}
    assert nodes["product"].op == "MatMul"
    assert nodes["product"].nbytes == 400
    assert nodes["product"].duration >= 0
    assert nodes["product"].thread
    assert any(node.op == "AssignAdd" for node in metadata.nodes)
    assert metadata.duration > 0


@pytest.mark.parametrize("inline_ms", [1000, 0])
async def test_a_trace_has_what_is_awaited_with_the_time_it_waited(inline_ms: float) -> None:
    queue = tf.FIFOQueue(3, [tf.float32], shapes=[[2]], name="queue")
    v = tf.Variable([1.0, 2.0])
    gate = asyncio.Event()

    async def wait(x: Any) -> Any:
        await gate.wait()
        return x

    before = tf.py_func(wait, [queue.dequeue(name="take")], tf.float32, name="before")
    of_state = tf.py_func(wait, [v], tf.float32, name="of_state")
    inside = tf.cond(
        tf.constant(True), lambda: tf.py_func(wait, [v], tf.float32, name="inside"), lambda: v * 1.0
    )
    put = queue.enqueue(tf.reshape(of_state, [2]), name="put")
    metadata = tf.RunMetadata()
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        await sess.run(v.initializer)
        await sess.run(queue.enqueue(tf.constant([1.0, 2.0])))
        run = asyncio.create_task(
            sess.run(
                [before, of_state, inside, put],
                options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
                run_metadata=metadata,
            )
        )
        await wait_all_tasks_blocked()
        asyncio.get_running_loop().call_later(0.01, gate.set)
        await run
    nodes = {node.name.rpartition("/")[2]: node for node in metadata.nodes}
    assert nodes["before"].duration > 0.005
    assert nodes["before"].start + nodes["before"].duration <= metadata.duration
    assert [nodes[name].nbytes for name in ("take", "before", "of_state", "inside", "put")] == [
        *[8] * 4,
        0,
    ]
    assert nodes["take"].op == "QueueDequeueV2"
    assert nodes["take"].thread == threading.current_thread().name
    assert nodes["put"].start >= nodes["before"].start + nodes["before"].duration


async def test_without_a_trace_level_metadata_stays_empty() -> None:
    metadata = tf.RunMetadata()
    async with tf.Session() as sess:
        await sess.run(tf.constant(1), options=tf.RunOptions(), run_metadata=metadata)
        await sess.run(tf.constant(1), run_metadata=metadata)
    assert metadata.nodes == []


async def test_each_traced_run_fills_the_metadata_again() -> None:
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    x = tf.placeholder(tf.float32, [2])
    y = x * 2.0
    async with tf.Session() as sess:
        await sess.run(y, {x: [1.0, 2.0]}, options=options, run_metadata=metadata)
        names = [node.name for node in metadata.nodes]
        await sess.run(y, {x: [1.0, 2.0]}, options=options, run_metadata=metadata)
    assert [node.name for node in metadata.nodes] == names
    assert names


async def test_the_global_step_is_a_property() -> None:
    async with tf.Session() as sess:
        assert sess.global_step is None
        step = tf.create_global_step()
        assert sess.global_step is None
        await sess.run(step.initializer)
        assert sess.global_step == 0
        await sess.run(step.assign_add(1))
        assert sess.global_step == 1


async def test_no_fetches_give_their_structure() -> None:
    async with tf.Session() as sess:
        for nothing in ([], {}, (), [[], {}]):
            assert await sess.run(nothing) == nothing
            assert await sess.peek(nothing) == nothing


async def test_a_plain_with_is_refused() -> None:
    with pytest.raises(TypeError, match=r"A Session is awaited: write `async with`"), tf.Session():
        pass


async def test_an_error_names_the_inputs_the_line_and_the_step() -> None:
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    line = sys._getframe().f_lineno + 1
    bad = tf.reshape(x, [tf.cast(x[0, 0], tf.int32), 3], name="bad")
    train_op = tf.get_or_create_global_step().assign_add(1)
    where = f"of 'bad', created at {__file__}:{line}. The run began at step 1."
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(train_op)
        for call in (sess.run, sess.peek):
            with pytest.raises(errors.InvalidArgumentError) as caught:
                await call(bad, {x: [[7, 7]]})
            assert caught.value.__notes__[-1].startswith("asyncmon: Reshape('x:0', ")
            assert caught.value.__notes__[-1].endswith(where)
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await sess.repeat(bad, lambda: False)
        assert "Placeholder() of 'x'" in caught.value.__notes__[-1]


async def test_feeds_that_are_no_mapping_are_named() -> None:
    x = tf.placeholder(tf.float32)
    async with tf.Session() as sess:
        with pytest.raises(TypeError, match=r"feed_dict must map tensors to values, got \[array"):
            await sess.run(x, [np.zeros(2)])  # type: ignore[arg-type]  # refused


async def test_a_fetch_of_none_says_where_it_may_come_from() -> None:
    async with tf.Session() as sess:
        with pytest.raises(TypeError, match="Cannot be None") as caught:
            await sess.run([tf.constant(1), None])
    assert "merge_all() is None without summaries" in caught.value.__notes__[0]


async def test_a_run_that_would_wait_is_not_begun_at_once() -> None:
    queue = tf.FIFOQueue(1, [tf.int32])
    item, x = queue.dequeue(), tf.placeholder(tf.int32)
    async with tf.Session() as sess:
        assert sess.run_nowait(item) is None
        assert sess.run_nowait([x + 1], {x: 1}) == ([2],)
        with pytest.raises(errors.InvalidArgumentError, match="Placeholder"):
            sess.run_nowait(x)
