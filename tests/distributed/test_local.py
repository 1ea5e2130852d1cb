"""Sessions in a child process: real ones, which are killed, stopped and left behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.distributed.local import LocalChannel
from asyncmon.distributed.wire import Message

pytestmark = pytest.mark.asyncio

ROWS = np.ones((3, 4), np.float32)
IMAGES = np.arange(128 * 784, dtype=np.float32).reshape(128, 784)  # 401 kB


def channel_of(sess: graph.Session) -> LocalChannel:
    found: Any = sess.backend
    return found.channel


def pid_of(sess: graph.Session) -> int:
    process = channel_of(sess).process
    assert process is not None
    return process.pid


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def network() -> tuple[Any, ...]:
    step = am.get_or_create_global_step()
    x = graph.placeholder(graph.float32, [None, 4], name="x")
    w = graph.get_variable("w", initializer=np.full((4, 2), 0.1, np.float32))
    loss = graph.reduce_mean(graph.square(graph.matmul(x, w) - 1.0))
    train = graph.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
    return x, w, loss, train, step


class Waits:
    """A function of the graph that lets a test act during a run."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def __call__(self) -> np.float32:
        self.began.set()
        await asyncio.Event().wait()
        return np.float32(0)


def waiting() -> tuple[Waits, Any]:
    waits = Waits()
    return waits, graph.py_func(waits, [], graph.float32)


async def test_it_computes_what_a_session_of_this_process_does() -> None:
    x, w, loss, train, step = network()
    found = []
    for target in ("", "local"):
        async with graph.Session(target) as sess:
            await sess.run(graph.global_variables_initializer())
            losses = [await sess.run([loss, train], {x: ROWS}) for _ in range(5)]
            found.append(([row[0] for row in losses], await sess.run([step, w]), sess.global_step))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1][1], found[1][1][1])
    assert found[0][2] == found[1][2] == 5


async def test_the_child_is_started_by_the_first_use_and_ends_with_the_session() -> None:
    sess = graph.Session("local")
    assert channel_of(sess).process is None
    assert await sess.run(graph.constant(2.0) + 1.0) == 3.0
    pid = pid_of(sess)
    assert is_running(pid)
    await sess.close()
    await sess.close()
    assert not is_running(pid)
    with pytest.raises(RuntimeError, match="closed Session"):
        await sess.run(graph.constant(2.0))
    await graph.Session("local").close()  # never used


async def test_large_feeds_and_fetches_pass_through_shared_memory() -> None:
    x = graph.placeholder(graph.float32, [None, 784])
    doubled, total = x * 2.0, graph.reduce_sum(x)
    async with graph.Session("local") as sess:
        await sess.run(total, {x: IMAGES[:1]})
        stream = channel_of(sess).stream._transport
        sizes = []
        write = stream.write
        stream.write = lambda data: (sizes.append(len(data)), write(data))
        results = [await sess.run(doubled, {x: IMAGES + i}) for i in range(4)]
        for i, result in enumerate(results):
            np.testing.assert_array_equal(result, (IMAGES + i) * 2.0)
            result[:] = 0.0  # the caller's own
        del stream.write
        outbox = channel_of(sess).stream._outbox
        assert outbox._end == -(-IMAGES.nbytes // 65536) * 65536  # one block, used again and again
    assert max(sizes) < 1000
    assert results[0].max() == 0.0  # memory stays while an array of it does


async def test_much_data_goes_both_ways_at_once() -> None:
    x = graph.placeholder(graph.float32, [None])
    y = x + 1.0
    data = [np.full(1 << 20, i, np.float32) for i in range(8)]
    async with graph.Session("local") as sess:
        found = await asyncio.gather(*[sess.run(y, {x: one}) for one in data])
    for i, one in enumerate(found):
        assert (one == i + 1).all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the files of another process")
async def test_without_shared_memory_a_run_fails_and_the_next_one_does_not() -> None:
    import resource

    x = graph.placeholder(graph.float32, [None, 784])
    total, much = graph.reduce_sum(x), graph.zeros([1000, 784]) + x[:1]

    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(pid: int, nbytes: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (nbytes, most))

    async with graph.Session("local") as sess:
        assert await sess.run(total, {x: IMAGES[:1]}) > 0
        limit(pid_of(sess), 1 << 16)
        with pytest.raises(errors.ResourceExhaustedError, match="for results of 3,136,"):
            await sess.run(much, {x: IMAGES[:1]})
        limit(0, 1 << 16)
        try:
            with pytest.raises(errors.ResourceExhaustedError, match="no shared memory for 401,"):
                await sess.run(total, {x: IMAGES})
        finally:
            limit(0, before)
        limit(pid_of(sess), before)
        assert (await sess.run(much, {x: IMAGES})).shape == (1000, 784)


async def test_a_child_that_is_killed_aborts_all_calls_at_once() -> None:
    waits, y = waiting()
    async with graph.Session("local") as sess:
        runs = [asyncio.create_task(sess.run(y)) for _ in range(3)]
        await waits.began.wait()
        began = time.monotonic()
        os.kill(pid_of(sess), signal.SIGKILL)
        for run in runs:
            with pytest.raises(errors.AbortedError, match=r"Process \d+ .*killed by SIGKILL"):
                await run
        assert time.monotonic() - began < 5.0  # long before the time of a call is over
        with pytest.raises(errors.AbortedError, match="SIGKILL"):
            await sess.run(y)


async def test_a_child_that_is_killed_while_it_starts_aborts_the_call() -> None:
    async with graph.Session("local") as sess:
        run = asyncio.create_task(sess.run(graph.constant(1.0)))
        while channel_of(sess).process is None:  # noqa: ASYNC110 -- the start has no event
            await asyncio.sleep(0)
        os.kill(pid_of(sess), signal.SIGKILL)
        with pytest.raises(errors.AbortedError, match="SIGKILL"):
            await run


async def test_a_child_that_is_stopped_is_unavailable_and_is_killed_at_the_close() -> None:
    config = am.SessionConfig()
    config.rpc_options.timeout_secs = 0.5
    one = graph.constant(1.0) + 0.0
    sess = graph.Session("local", config=config)
    await sess.run(one)
    pid = pid_of(sess)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(errors.UnavailableError, match=r"has not answered for 0\.5 s"):
        await sess.run(one)
    await sess.close()
    assert not is_running(pid)


async def test_signals_are_left_to_this_process() -> None:
    async with graph.Session("local") as sess:
        await sess.run(graph.constant(1.0))
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid_of(sess), number)
        assert await sess.run(graph.constant(2.0)) == 2.0
        assert os.getpgid(pid_of(sess)) != os.getpgid(0)  # Ctrl-C goes to the group of the terminal


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
async def test_steps_give_way_to_the_rest_of_the_machine() -> None:
    async with graph.Session("local", config=am.SessionConfig(inline_ms=0.0)) as sess:
        await sess.run(graph.global_variables_initializer())
        await sess.run(graph.Variable(1.0).initializer)
        threads = map(int, os.listdir(f"/proc/{pid_of(sess)}/task"))
        niceness = {one: os.getpriority(os.PRIO_PROCESS, one) for one in threads}
    assert niceness.pop(pid_of(sess)) == os.getpriority(os.PRIO_PROCESS, 0)  # it answers
    assert 10 in niceness.values()


async def test_a_close_that_is_cancelled_ends_the_child_too() -> None:
    sess = graph.Session("local")
    await sess.run(graph.constant(1.0))
    pid = pid_of(sess)
    close = asyncio.create_task(sess.close())
    await asyncio.sleep(0)
    close.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await close
    assert not is_running(pid)


async def test_runs_under_way_at_the_close_are_cancelled() -> None:
    waits, y = waiting()
    sess = graph.Session("local")
    run = asyncio.create_task(sess.run(y))
    await waits.began.wait()
    await sess.close()
    with pytest.raises(errors.CancelledError, match="Session has been closed"):
        await run


async def test_what_the_child_logs_and_prints_comes_out_here(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG, "asyncmon"):
        async with graph.Session("local") as sess:
            await sess.run(graph.Print(graph.constant(4.5), ["seen"], "here: "))
            pid = pid_of(sess)
    records = [one for one in caplog.records if one.name == "asyncmon.distributed.local_child"]
    assert [one.getMessage() for one in records] == [f"Process {pid} runs a session of {os.getpid()}."]
    assert "here: [seen]" in capfd.readouterr().err


async def test_a_session_belongs_to_one_event_loop() -> None:
    def in_another_loop() -> None:
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            asyncio.run(sess.backend.channel.call(Message(b"{}"), 1.0))

    async with graph.Session("local") as sess:
        await sess.run(graph.constant(1.0))
        await asyncio.to_thread(in_another_loop)


async def test_a_target_with_an_address_is_refused() -> None:
    with pytest.raises(errors.NotFoundError, match="got 'local://here'"):
        graph.Session("local://here")


async def test_training_continues_in_a_new_child_from_the_last_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, _, loss, train, _ = network()
    async with graph.Session() as here:
        await here.run(graph.global_variables_initializer())
        expected = [(await here.run([train, loss], {x: ROWS}))[1] for _ in range(20)]
    pids: list[int] = []
    async with am.MonitoredTrainingSession(
        "local",
        checkpoint_dir=str(tmp_path),
        save_checkpoint_steps=4,
        save_checkpoint_secs=None,
        hooks=[am.StopAtStepHook(last_step=20), am.NanTensorHook(loss)],
    ) as sess:
        while not sess.should_stop():
            _, value = await sess.run([train, loss], {x: ROWS})
            step = sess.raw_session().global_step
            assert value == expected[step - 1]
            if step in (6, 11) and len(pids) < 2:
                pids.append(pid_of(sess.raw_session()))
                os.kill(pids[-1], signal.SIGKILL)
        assert sess.raw_session().global_step == 20
    assert (await am.latest_checkpoint(str(tmp_path))).endswith("model.ckpt-20")
    assert not any(map(is_running, pids))
    assert sum("killed by SIGKILL" in one.getMessage() for one in caplog.records) >= 2


async def test_an_error_names_the_line_in_this_process() -> None:
    with graph.Graph().as_default() as program:
        x = graph.placeholder(graph.int32, [1])
        line = sys._getframe().f_lineno + 1
        bad = graph.reshape(graph.zeros([6]), x)
    async with graph.Session("local", program) as sess:
        with pytest.raises(errors.InvalidArgumentError, match="reshape") as caught:
            await sess.run(bad, {x: [7]})
    assert f", created at {__file__}:{line}" in caught.value.__notes__[-1]
