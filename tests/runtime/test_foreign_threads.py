"""Threads of the program's own, registered with a coordinator as in TF1."""

from __future__ import annotations

import asyncio
import threading

import pytest

from asyncmon.runtime import Coordinator, LooperTask
from asyncmon.testing import assert_nothing_left_behind

pytestmark = pytest.mark.asyncio


async def forever() -> None:
    await asyncio.Event().wait()


async def test_join_waits_for_a_thread_that_ends_at_the_stop() -> None:
    coord, ended = Coordinator(), threading.Event()

    def work() -> None:
        while not coord.should_stop():
            ended.wait(0.001)
        ended.set()

    thread = threading.Thread(target=work)
    coord.register_thread(thread)  # before it is started, as queue runners do
    async with assert_nothing_left_behind():
        thread.start()
        asyncio.get_running_loop().call_later(0.01, coord.request_stop)
        await coord.join(threads=[thread])
        assert ended.is_set()
        assert not thread.is_alive()


async def test_join_returns_without_a_stop_when_all_threads_have_ended() -> None:
    coord, done = Coordinator(), []
    threads = [threading.Thread(target=done.append, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    await coord.join(threads)
    assert sorted(done) == [0, 1, 2]


async def test_a_running_thread_is_named_after_the_grace_period(
    caplog: pytest.LogCaptureFixture,
) -> None:
    coord, release = Coordinator(), threading.Event()
    thread = threading.Thread(target=release.wait, name="stuck")
    thread.start()
    coord.request_stop()
    with pytest.raises(RuntimeError, match=r"^Coordinator stopped with threads still running: stuck$"):
        await coord.join([thread], stop_grace_period_secs=0.01)
    await coord.join([thread], stop_grace_period_secs=0.01, ignore_live_threads=True)
    assert "still running: stuck" in caplog.text
    release.set()
    thread.join()
    await coord.join([thread], stop_grace_period_secs=0.01)


async def test_an_error_that_a_thread_reports_is_raised() -> None:
    coord = Coordinator()

    def work() -> None:
        with coord.stop_on_exception():
            raise ValueError("boom")

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(ValueError, match="boom"):
        await coord.join([thread])


async def test_tasks_and_loopers_can_be_given_as_threads_and_unstarted_ones_are_ignored() -> None:
    coord, other = Coordinator(), Coordinator()
    task = asyncio.create_task(asyncio.sleep(0))
    looper = LooperTask.loop(other, 0.001, target=other.request_stop)
    unstarted = LooperTask(other, 1, target=print)
    assert looper.is_alive()
    assert not unstarted.is_alive()
    await unstarted.join()
    await coord.join(threads=[task, looper, unstarted, threading.Thread(target=print)])
    assert task.done()
    assert not looper.is_alive()
    await looper.join()
    with pytest.raises(TypeError, match=r"register_task takes an asyncio\.Task"):
        coord.register_thread("thread")
    await other.join()
