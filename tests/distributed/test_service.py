"""Sessions that a service runs: the same results, errors and promises as in one process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.distributed.graph_codec import graph_data
from asyncmon.distributed.wire import Decoder, Encoder, Message
from asyncmon.system import clock
from asyncmon.testing import wait_all_tasks_blocked
from tests.distributed.in_process import (
    InProcessChannel,
    InProcessCluster,
    own_state_service,
    remote_session,
)

ROWS = np.ones((3, 4), np.float32)


@pytest.fixture
def channel() -> InProcessChannel:
    return InProcessChannel(own_state_service())


def network() -> tuple[Any, ...]:
    step = am.get_or_create_global_step()
    x = graph.placeholder(graph.float32, [None, 4], name="x")
    w = graph.get_variable("w", initializer=np.full((4, 2), 0.1, np.float32))
    loss = graph.reduce_mean(graph.square(graph.matmul(x, w) - 1.0))
    train = graph.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
    return x, w, loss, train, step


async def trained(sess: graph.Session, x: Any, w: Any, loss: Any, train: Any, step: Any) -> Any:
    await sess.run(graph.global_variables_initializer())
    found = [await sess.run([loss, train, step], {x: ROWS}) for _ in range(5)]
    return [row[0] for row in found], found[-1][2], await sess.run(w)


@pytest.mark.asyncio
async def test_a_remote_session_computes_what_one_of_this_process_does(
    channel: InProcessChannel,
) -> None:
    parts = network()
    async with remote_session(channel) as sess:
        remote = await trained(sess, *parts)
        assert sess.global_step == 5
    async with graph.Session() as sess:
        here = await trained(sess, *parts)
    np.testing.assert_array_equal(remote[0], here[0])
    np.testing.assert_array_equal(remote[2], here[2])
    assert remote[1] == here[1] == 5
    assert channel.service.num_sessions == 0  # closed with the session
    assert channel.closed


@pytest.mark.asyncio
async def test_a_session_of_an_earlier_process_is_not_taken_for_one_with_its_number(
    channel: InProcessChannel,
) -> None:
    _, w, *_ = network()
    new = InProcessChannel(own_state_service())
    async with remote_session(channel) as old, remote_session(new) as sess:
        for each in (old, sess):
            await each.run(graph.global_variables_initializer())
        channel.service = new.service
        with pytest.raises(errors.AbortedError, match="is not here"):
            await old.run(w)
        assert (await sess.run(w)).shape == (4, 2)


@pytest.mark.asyncio
async def test_arrays_of_results_are_the_callers_own(channel: InProcessChannel) -> None:
    _, w, *_ = network()
    async with remote_session(channel) as sess:
        await sess.run(graph.global_variables_initializer())
        value = await sess.run(w)
        value[:] = 7.0
        assert (await sess.run(w)).max() < 1.0


@pytest.mark.asyncio
async def test_functions_stay_with_the_client(channel: InProcessChannel) -> None:
    called = []

    def double(a: Any) -> Any:
        called.append(a)
        return a * 2

    async def later(a: Any) -> Any:
        await asyncio.sleep(0)
        return a + 1

    a = graph.py_func(double, [graph.constant(3.0)], graph.float32)
    b = graph.py_func(later, [a], graph.float32)
    chosen = graph.cond(b > 1.0, lambda: graph.py_func(double, [b], graph.float32), lambda: b)
    i, total = graph.while_loop(
        lambda i, s: i < 3,
        lambda i, s: (i + 1, s + graph.reshape(graph.py_func(double, [s], graph.float32), [])),
        [0, 1.0],
    )
    async with remote_session(channel) as sess:
        assert await sess.run([a, b, chosen]) == [6.0, 7.0, 14.0]
        assert await sess.run([i, total]) == [3, 27.0]
    assert len(called) == 5


@pytest.mark.asyncio
async def test_functions_of_one_run_are_called_together(channel: InProcessChannel) -> None:
    both = asyncio.Barrier(2)

    async def met(a: Any) -> Any:
        await both.wait()
        return a

    x, y = (graph.py_func(met, [graph.constant(value)], graph.float32) for value in (1.0, 2.0))
    async with remote_session(channel) as sess, asyncio.timeout(30):
        assert await sess.run([x, y]) == [1.0, 2.0]


@pytest.mark.asyncio
async def test_the_error_of_a_function_has_its_class_and_operation(channel: InProcessChannel) -> None:
    def fails(_: Any) -> Any:
        raise ValueError("no")

    y = graph.py_func(fails, [graph.constant(1.0)], graph.float32, name="mine")
    async with remote_session(channel) as sess:
        with pytest.raises(errors.InvalidArgumentError, match="ValueError: no") as caught:
            await sess.run(y)
    assert caught.value.op is y.op


@pytest.mark.asyncio
async def test_errors_come_back_as_they_are(channel: InProcessChannel) -> None:
    x, w, loss, train, _ = network()
    logs = graph.check_numerics(graph.log(w - 1.0), "bad")
    async with remote_session(channel) as sess:
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized"):
            await sess.run(w)
        with pytest.raises(errors.InvalidArgumentError, match="must feed a value") as caught:
            await sess.run(loss)
        assert caught.value.op is x.op
        await sess.run(graph.global_variables_initializer())
        with pytest.raises(errors.InvalidArgumentError, match="bad"):
            await sess.run(logs)
        with pytest.raises(errors.InvalidArgumentError, match="changes the state"):
            await sess.peek(train, {x: ROWS})
        options = am.RunOptions(timeout_in_ms=20)
        with pytest.raises(errors.DeadlineExceededError):
            await sess.run(graph.py_func(_never, [], graph.float32), options=options)
    with pytest.raises(RuntimeError, match="closed Session"):
        await sess.run(w)


async def _never() -> None:
    await asyncio.Event().wait()


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_deadline_ends_a_run_that_waits_for_a_function_here(channel: InProcessChannel) -> None:
    options = am.RunOptions(timeout_in_ms=20)
    async with remote_session(channel) as sess:
        with pytest.raises(errors.DeadlineExceededError):
            await sess.run(graph.py_func(_never, [], graph.float32), options=options)
        assert clock.monotonic() < 0.2


@pytest.mark.asyncio
async def test_a_graph_that_grows_is_sent_in_parts(channel: InProcessChannel) -> None:
    v = graph.Variable(1.0)
    async with remote_session(channel) as sess:
        await sess.run(v.initializer)
        assert await sess.run(v + 1.0) == 2.0
        assert await sess.run(v.assign_add(2.0)) == 3.0


@pytest.mark.asyncio
async def test_snapshots_and_loads(channel: InProcessChannel) -> None:
    _, w, _, _, step = network()
    async with remote_session(channel) as sess:
        await sess.run(graph.global_variables_initializer())
        await sess.run(step.assign(4))
        snapshot = await sess.snapshot()
        assert snapshot.step == 4
        np.testing.assert_array_equal(snapshot["w"], np.full((4, 2), 0.1, np.float32))
        await sess.load({"w": np.zeros((4, 2), np.float32)})
        assert (await sess.run(w)).max() == 0.0
        assert snapshot["w"].max() > 0.0
        with pytest.raises(errors.InvalidArgumentError, match="'u' is not a variable"):
            await sess.load({"u": 1.0})


@pytest.mark.asyncio
async def test_a_run_that_is_cancelled_is_cancelled_there(channel: InProcessChannel) -> None:
    started = asyncio.Event()

    async def waits() -> None:
        started.set()
        await asyncio.Event().wait()

    y = graph.py_func(waits, [], graph.float32)
    v = graph.Variable(0.0)
    both = graph.group(y, v.assign_add(1.0))
    async with remote_session(channel) as sess:
        await sess.run(v.initializer)
        task = asyncio.create_task(sess.run(both))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await sess.run(v) == 0.0


@pytest.mark.asyncio
async def test_what_was_done_is_not_done_again_where_the_answer_was_lost(
    channel: InProcessChannel,
) -> None:
    v = graph.Variable(0.0)
    add = v.assign_add(1.0)
    async with remote_session(channel) as sess:
        await sess.run(v.initializer)
        for expected in (1.0, 2.0, 3.0):
            channel.lose_answers = 1
            assert await sess.run(add) == expected
        channel.lose_answers = 2
        with pytest.raises(errors.UnavailableError, match="broke"):
            await sess.run(add)
        assert await sess.run(v) == 4.0


@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize("returns", [False, True], ids=["gone", "connected again"])
async def test_runs_of_a_client_end_with_its_connection_unless_it_connects_again(returns: bool) -> None:
    """The elements that they wait for are there for others."""
    queue = graph.FIFOQueue(5, [graph.float32], [()], shared_name="numbers")
    first, enqueue, size = queue.dequeue(), queue.enqueue([1.0]), queue.size()
    cluster = InProcessCluster({"ps": ["ps:1"]})
    theirs, ours = (InProcessChannel(cluster.services["/job:ps/task:0"]) for _ in range(2))
    other, sess = remote_session(theirs), remote_session(ours)
    assert await sess.run(size) == 0
    waiting = asyncio.create_task(other.run(first))
    await asyncio.sleep(3600)  # a connected client may wait as long as it likes
    assert not waiting.done()
    theirs.closed = not returns
    theirs.disconnect()
    await asyncio.sleep(0.6)
    await sess.run(enqueue)
    await wait_all_tasks_blocked()
    assert await sess.run(size) == (0 if returns else 1)
    if returns:
        assert await waiting == 1.0
    else:
        with pytest.raises(errors.UnavailableError, match="closed"):
            await waiting
    await other.close()
    await sess.close()
    await cluster.close()


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_client_that_returns_after_long_continues_its_session() -> None:
    channel = InProcessChannel(own_state_service())
    v = graph.Variable(3.0)
    async with remote_session(channel) as sess:
        await sess.run(v.initializer)
        channel.closed = True
        channel.disconnect()
        await asyncio.sleep(600)
        channel.closed = False
        assert await sess.run(v) == 3.0


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_result_whose_response_was_lost_is_kept_while_the_client_is_connected() -> None:
    channel = InProcessChannel(own_state_service())
    queue = graph.FIFOQueue(5, [graph.float32], [()])
    first, enqueue, size = queue.dequeue(), queue.enqueue([7.0]), queue.size()
    async with remote_session(channel) as sess:
        assert await sess.run(size) == 0
        waiting = asyncio.create_task(sess.run(first))
        await wait_all_tasks_blocked()
        request = Message(channel.requests[-1])
        await sess.run(enqueue)
        assert await waiting == 7.0
        await asyncio.sleep(60)
        assert "error" not in Decoder(await channel.call(request, 10.0)).content


@pytest.mark.asyncio
async def test_a_snapshot_that_is_cancelled_before_it_begins_is_released(
    channel: InProcessChannel,
) -> None:
    v = graph.get_variable("v", initializer=1.0)
    async with remote_session(channel) as sess:
        await sess.run(v.initializer)
        (await sess.snapshot()).release()
        request = Decoder(Message(channel.requests[-1])).content
        assert request["job"] == "snapshot"
        request["sequence"] += 1
        start, cancel = (Encoder().plain({**request, "do": do}) for do in ("start", "cancel"))
        started, _ = await asyncio.gather(channel.call(start, 10.0), channel.call(cancel, 10.0))
        assert Decoder(started).content["error"]["message"] == "The run was cancelled."
        (served,) = channel.service._sessions.values()
        store: Any = served.backend
        assert not store.store.has_pins


@pytest.mark.asyncio
async def test_a_service_that_was_started_again_aborts_its_sessions(channel: InProcessChannel) -> None:
    v = graph.Variable(0.0)
    async with remote_session(channel) as sess:
        await sess.run(v.initializer)
        channel.service = own_state_service()
        with pytest.raises(errors.AbortedError, match="started anew"):
            await sess.run(v)


@pytest.mark.asyncio
async def test_a_client_of_another_version_is_refused(channel: InProcessChannel) -> None:
    encoder = Encoder()
    answer = await channel.service.answer(encoder.plain({"do": "open", "version": 0}))
    assert b"FailedPreconditionError" in answer.header
    assert b"version 0" in answer.header


@pytest.mark.asyncio
async def test_tracing(channel: InProcessChannel) -> None:
    y = graph.constant([1.0, 2.0]) * graph.py_func(lambda: np.float32(2.0), [], graph.float32)
    metadata = am.RunMetadata()
    async with remote_session(channel) as sess:
        await sess.run(y, options=am.RunOptions(trace_level=3), run_metadata=metadata)
    assert "Mul" in {node.op for node in metadata.nodes}


@pytest.mark.asyncio
async def test_hooks_and_checkpoints_over_a_remote_session(
    tmp_path: Path, channel: InProcessChannel
) -> None:
    x, _, loss, train, _ = network()
    remote = remote_session(channel).backend  # registers the scheme
    for last in (3, 6):
        async with am.MonitoredTrainingSession(
            remote._target,
            checkpoint_dir=str(tmp_path),
            hooks=[am.StopAtStepHook(last_step=last), am.NanTensorHook(loss)],
        ) as sess:
            while not sess.should_stop():
                await sess.run(train, {x: ROWS})
            assert sess.raw_session().global_step == last
        channel.closed = False
    assert (await am.latest_checkpoint(str(tmp_path))).endswith("model.ckpt-6")


@pytest.mark.asyncio
async def test_no_json_of_a_large_graph_is_large(channel: InProcessChannel) -> None:
    x = graph.constant(1.0)
    for _ in range(1000):
        x = x + 1.0
    encoder = Encoder()
    graph_data(graph.get_default_graph(), 0, [], encoder)
    assert max(map(len, encoder.buffers)) < 1 << 16
    async with remote_session(channel) as sess:
        assert await sess.run(x) == 1001.0
    assert max(map(len, channel.requests)) < 1 << 16


@pytest.mark.asyncio
async def test_large_variables_are_sent_from_the_memory_of_the_state(channel: InProcessChannel) -> None:
    answers = []
    answer = channel.service.answer

    async def watched(request: Any) -> Any:
        answers.append(await answer(request))
        return answers[-1]

    channel.service.answer = watched  # type: ignore[method-assign]  # to record the answers
    large = graph.get_variable("large", initializer=np.ones((1 << 19,), np.float32))
    small = graph.get_variable("small", initializer=2.0)
    async with remote_session(channel) as sess:
        await sess.run(graph.global_variables_initializer())
        found, two = await sess.run([large, small])
        assert answers[-1].is_borrowed
        assert (two, two.shape, found.sum()) == (2.0, (), 1 << 19)
        found[:] = 7.0
        await sess.run(large.assign(large * 3.0).op)
        assert not answers[-1].is_borrowed
        assert (await sess.run(large))[-1] == (await sess.peek(large))[-1] == 3.0
        (served,) = channel.service._sessions.values()
        store: Any = served.backend
        assert not store.store.has_pins


@pytest.mark.asyncio
async def test_much_work_of_a_request_is_done_in_threads(
    channel: InProcessChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To plan a run in a large graph, and to read and write the values of very many variables."""
    in_threads = 0
    to_thread = asyncio.to_thread

    def counted(*args: Any) -> Any:
        nonlocal in_threads
        in_threads += 1
        return to_thread(*args)

    y = graph.get_variable("v0", initializer=0.0)
    for _ in range(1000):
        y = y + 1.0
    variables = [graph.get_variable(f"v{i}", initializer=float(i)) for i in range(1, 1200)]
    values = {"v0": np.float32(1.0), **{v.op.name: np.float32(2.0) for v in variables}}
    async with remote_session(channel) as sess:
        await sess.run(graph.constant(1.0) + 1.0)  # the graph is sent
        monkeypatch.setattr(asyncio, "to_thread", counted)
        await sess.load(values)
        assert in_threads == 2  # written, read
        assert await sess.run(y) == 1001.0
        assert in_threads == 3
        assert dict(await sess.snapshot()) == values
        assert in_threads == 5
        assert await sess.run(y) == 1001.0
        assert in_threads == 5  # it has a plan


@pytest.mark.asyncio
async def test_a_run_that_is_cancelled_while_its_session_closes_sends_no_request(
    channel: InProcessChannel,
) -> None:
    queue = graph.FIFOQueue(5, [graph.float32], [()])
    sess = remote_session(channel)
    waiting = asyncio.create_task(sess.run(queue.dequeue()))
    await wait_all_tasks_blocked()
    closing = asyncio.create_task(sess.close())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting, closing])
    assert "cancel" not in [Decoder(Message(sent)).content["do"] for sent in channel.requests]
