"""Threads for code that may never return."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

import asyncmon as am
from asyncmon.data import from_iterable
from asyncmon.programs import FunctionProgram
from asyncmon.system.daemon_executor import DaemonExecutor


def test_a_thread_that_hangs_is_left_behind_and_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncmon.data.stage.CLOSE_SECONDS", 0.01)
    inside, go_on = threading.Event(), threading.Event()

    def hangs() -> Iterator[int]:
        yield 1
        inside.set()
        go_on.wait()

    async def main() -> None:
        async with from_iterable(hangs).prefetch(4) as data:
            assert await anext(aiter(data)) == 1
            await asyncio.to_thread(inside.wait)

    asyncio.run(main())  # in real time, which a hanging thread does not hold still
    assert "still busy in its thread" in caplog.text
    go_on.set()


def test_a_reader_that_hangs_at_a_stop_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def hangs() -> Iterator[int]:
            yield 1
            loop.call_soon_threadsafe(sess.request_stop, "enough")
            go_on.wait()

        program = FunctionProgram({"n": 0})
        program.step(lambda: None, name="train")
        creator = am.ChiefSessionCreator(program=program)
        async with am.MonitoredSession(creator, stop_grace_period_secs=0.5) as sess:
            async for _ in sess.iterate(from_iterable(hangs)):
                await sess.run("train")

    asyncio.run(main())  # in real time, which a hanging thread does not hold still
    assert "still busy in its thread" in caplog.text
    go_on.set()


def test_jobs_run_at_once_as_many_as_there_are_workers() -> None:
    async def main() -> None:
        together = threading.Barrier(3)
        executor = DaemonExecutor("three", workers=3)
        await asyncio.gather(*[executor.call(together.wait, 10) for _ in range(3)])
        executor.shutdown()

    asyncio.run(main())


def test_stop_iteration_becomes_an_error_that_a_future_can_carry() -> None:
    """AX-2: awaiting it would hang."""

    async def main() -> None:
        executor = DaemonExecutor("one")
        with pytest.raises(RuntimeError, match="raised StopIteration; to end the data"):
            await executor.call(next, iter([]))
        executor.shutdown()

    asyncio.run(main())


def test_a_cancelled_job_that_has_not_begun_is_left_out() -> None:
    executor, gate, ran = DaemonExecutor("one"), threading.Event(), list[int]()
    first = executor.submit(gate.wait, 10)
    second = executor.submit(ran.append, 1)
    third = executor.submit(ran.append, 2)
    assert second.cancel()
    gate.set()
    assert first.result(10)
    third.result(10)
    executor.shutdown()
    assert ran == [2]


@pytest.mark.asyncio
async def test_one_worker_does_jobs_in_order() -> None:
    executor, done = DaemonExecutor("a worker"), list[tuple[int, str]]()
    jobs = [
        executor.call(lambda i=i: done.append((i, threading.current_thread().name))) for i in range(20)
    ]
    await asyncio.gather(*jobs)
    assert done == [(i, "a worker") for i in range(20)]


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["shutdown", "forgotten"])
async def test_the_thread_ends_with_the_executor(how: str) -> None:
    executor = DaemonExecutor("one that goes")
    thread = await executor.call(threading.current_thread)
    if how == "shutdown":
        executor.shutdown()
        executor.shutdown()
    del executor
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


@pytest.mark.asyncio
async def test_an_error_keeps_nothing_alive() -> None:
    class Large:
        """What a job holds."""

    def fail(large: Large) -> None:
        raise ValueError(type(large).__name__)

    executor, large = DaemonExecutor("one"), Large()
    kept = weakref.ref(large)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="Large"):
            await executor.call(fail, large)
        del large
        await executor.call(int)  # the thread has let go of the job before
        assert kept() is None
    finally:
        gc.enable()
        executor.shutdown()


@pytest.mark.asyncio
async def test_a_loop_that_is_closed_during_a_call_harms_no_thread() -> None:
    executor, inside, go_on = DaemonExecutor("one"), threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        assert go_on.wait(10)

    async def begin() -> None:
        executor.start(work)

    def other() -> None:
        asyncio.run(begin())
        assert inside.wait(10)
        go_on.set()

    await asyncio.to_thread(other)
    assert await executor.call(int) == 0
    executor.shutdown()


def test_no_job_is_taken_without_a_worker_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = DaemonExecutor("one")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _no_thread)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            executor.submit(int)
    assert executor.submit(int).result(10) == 0  # the next call gets its thread
    executor.shutdown()
    with pytest.raises(RuntimeError, match="'one' were shut down"):
        executor.submit(int)


def test_threads_that_run_do_the_jobs_of_those_that_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor = DaemonExecutor("two", workers=2)
    assert executor.submit(int).result(10) == 0
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _no_thread)
        assert executor.submit(int).result(10) == 0
    executor.shutdown()


def _no_thread(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_job_keeps_nothing_alive_once_its_result_is_known() -> None:
    class Argument:
        pass

    argument, go_on, done = Argument(), threading.Event(), threading.Event()
    seen: list[Argument | None] = []
    reference = weakref.ref(argument)
    future = DaemonExecutor("job").submit(lambda _: go_on.wait(5), argument)
    del argument
    future.add_done_callback(lambda _: (seen.append(reference()), done.set()))
    go_on.set()
    assert done.wait(5)
    assert seen == [None]


@pytest.mark.asyncio
async def test_a_job_that_is_cancelled_before_it_begins_does_not_run() -> None:
    executor, inside, go_on = DaemonExecutor("one"), threading.Event(), threading.Event()
    ran: list[int] = []

    def work() -> None:
        inside.set()
        assert go_on.wait(10)

    first, second = executor.start(work), executor.start(ran.append, 1)
    await asyncio.to_thread(inside.wait, 10)
    second.cancel()
    go_on.set()
    await first
    await executor.start(ran.append, 2)
    assert ran == [2]
    executor.shutdown()


@pytest.mark.asyncio
async def test_the_outcome_of_a_job_whose_waiter_left_is_dropped() -> None:
    executor, inside, go_on = DaemonExecutor("one"), threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        assert go_on.wait(10)
        raise ValueError("dropped")

    job = executor.start(work)
    await asyncio.to_thread(inside.wait, 10)
    job.cancel()
    go_on.set()
    assert await executor.start(int, "7") == 7
    assert job.cancelled()
    executor.shutdown()


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_virtual_time_stands_still_during_a_job() -> None:
    executor, go_on = DaemonExecutor("one"), threading.Event()
    loop = asyncio.get_running_loop()
    job = executor.start(go_on.wait, 10)
    timer = loop.call_later(3600, go_on.set)
    threading.Timer(0.05, go_on.set).start()
    assert await job
    assert loop.time() < 3600
    timer.cancel()
    executor.shutdown()
