"""The clean-up of a source that a stop, a ``break`` or an error leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.errors import DeadlineExceededError
from asyncmon.programs import FunctionProgram

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def program() -> FunctionProgram:
    made = FunctionProgram({"n": 0})

    @made.step
    def train(state: Any) -> None:
        state["n"] += 1

    return made


class Source:
    """Numbers from an async generator, with a clean-up."""

    def __init__(self, clean_up: Callable[[], Any] | None = None, *, in_group: bool = False) -> None:
        self.clean_up = clean_up
        self.in_group = in_group
        self.closed_in: asyncio.Task[Any] | None = None

    async def items(self) -> AsyncIterator[int]:
        async def produce(queue: asyncio.Queue[int]) -> None:
            for i in range(1000):
                await queue.put(i)

        queue: asyncio.Queue[int] = asyncio.Queue(4)
        try:
            if not self.in_group:
                for i in range(1000):
                    yield i
            async with asyncio.TaskGroup() as group:
                group.create_task(produce(queue))
                while (item := await queue.get()) < 100:
                    yield item
                await asyncio.Event().wait()
        finally:
            self.closed_in = asyncio.current_task()
            if self.clean_up is not None:
                await self.clean_up()


def ask(sess: am.MonitoredSession) -> None:
    sess.request_stop("enough")


def send_a_signal(sess: am.MonitoredSession) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def train(source: Source, directory: Path, leave: Any = None, **options: Any) -> Any:
    """Train up to step 4, leave the data, and return the session."""
    async with am.MonitoredTrainingSession(
        program=program(), checkpoint_dir=directory, stop_grace_period_secs=10, **options
    ) as sess:
        async for _ in sess.iterate(source.items()):
            await sess.run("train")
            if sess.global_step == 4:
                if leave is None:
                    break
                leave(sess)
                await asyncio.sleep(0)
    return sess


async def saved(directory: Path) -> str:
    return Path(await am.latest_checkpoint(directory) or "").name


@pytest.mark.parametrize("leave", [ask, send_a_signal, None])
@pytest.mark.parametrize("in_group", [False, True])
async def test_it_is_closed_in_the_task_that_read_it(
    leave: Any, in_group: bool, tmp_path: Path
) -> None:
    source = Source(in_group=in_group)
    await train(source, tmp_path, leave)
    assert source.closed_in is asyncio.current_task()
    assert await saved(tmp_path) == "model.ckpt-4"


async def test_a_stop_ends_a_task_group_that_waits_for_data(tmp_path: Path) -> None:
    source = Source(in_group=True)

    def stop_later(sess: am.MonitoredSession) -> None:
        asyncio.get_running_loop().call_later(1, sess.request_stop, "enough")

    sess = await train(source, tmp_path, stop_later)
    assert sess.stop_reason == "enough"
    assert await saved(tmp_path) == "model.ckpt-100"


async def fail() -> None:
    raise ConnectionError("the server is gone")


@pytest.mark.parametrize("leave", [ask, send_a_signal, None])
@pytest.mark.parametrize("in_group", [False, True])
async def test_the_state_is_saved_before_its_error_is_raised(
    leave: Any, in_group: bool, tmp_path: Path
) -> None:
    with pytest.raises(ConnectionError, match="the server is gone"):
        await train(Source(fail, in_group=in_group), tmp_path, leave)
    assert await saved(tmp_path) == "model.ckpt-4"


async def end_of_data() -> None:
    raise am.errors.OutOfRangeError("no more")


async def test_the_end_of_data_is_an_error_there(tmp_path: Path) -> None:
    with pytest.raises(am.errors.OutOfRangeError):
        await train(Source(end_of_data), tmp_path, ask)
    assert await saved(tmp_path) == "model.ckpt-4"


async def hang() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("leave", [ask, send_a_signal, None])
async def test_one_that_hangs_has_the_grace_period(leave: Any, tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceededError, match="clean-up of the data took longer"):
        await train(Source(hang), tmp_path, leave)
    assert asyncio.get_running_loop().time() < 11
    assert await saved(tmp_path) == "model.ckpt-4"


@pytest.mark.parametrize("leave", [ask, send_a_signal])
async def test_a_task_of_a_pipeline_that_hangs_is_left_behind_without_an_error(
    leave: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()

    async def source() -> AsyncIterator[int]:
        for i in range(4):
            yield i
        while not go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()

    sess = am.MonitoredTrainingSession(
        program=program(), checkpoint_dir=tmp_path, stop_grace_period_secs=4
    )
    async with sess:
        asyncio.get_running_loop().call_later(1, leave, sess)
        async for _ in sess.iterate(am.data.from_iterable(source())):
            await sess.run("train")
    assert asyncio.get_running_loop().time() < 5
    assert await saved(tmp_path) == "model.ckpt-4"
    assert "did not end within" in caplog.text
    go_on.set()


async def test_an_interrupted_run_leaves_it_the_time_of_the_next_stage(tmp_path: Path) -> None:
    async def pause() -> None:
        await asyncio.sleep(0.1)

    source, made = Source(pause), program()

    @made.step
    async def hang(state: Any) -> None:
        await asyncio.Event().wait()

    async with am.MonitoredTrainingSession(
        program=made, checkpoint_dir=tmp_path, stop_grace_period_secs=10
    ) as sess:
        asyncio.get_running_loop().call_later(1, send_a_signal, sess)
        async for number in sess.iterate(source.items()):
            await sess.run("train" if number < 4 else "hang")
    assert source.closed_in is not None
    assert await saved(tmp_path) == "model.ckpt-4"


async def test_a_cancellation_during_it_closes_the_session(tmp_path: Path) -> None:
    training = asyncio.create_task(train(Source(hang), tmp_path))
    await asyncio.sleep(5)
    training.cancel()
    with pytest.raises(asyncio.CancelledError):
        await training
    assert asyncio.get_running_loop().time() < 6
    assert await saved(tmp_path) == "model.ckpt-4"


async def test_an_error_of_the_body_comes_before_that_of_the_clean_up(tmp_path: Path) -> None:
    def break_down(sess: am.MonitoredSession) -> None:
        raise ValueError("of the body")

    with pytest.raises(ValueError, match="of the body") as caught:
        await train(Source(fail), tmp_path, break_down)
    assert any("the server is gone" in note for note in caught.value.__notes__)


async def test_a_generator_that_was_left_is_closed_where_the_next_one_begins() -> None:
    sources = [Source(in_group=True) for _ in range(3)]
    async with am.MonitoredSession(am.ChiefSessionCreator(program=program())) as sess:
        for source in sources:
            async for _ in sess.iterate(source.items()):
                await sess.run("train")
                break
            gc.collect()  # Python 3.13 drops the last reference of a loop that is left later
        assert [source.closed_in is not None for source in sources] == [True, True, False]
    assert {source.closed_in for source in sources} == {asyncio.current_task()}


async def test_a_generator_that_is_still_used_stays_open_between_two_loops() -> None:
    source, seen = Source(), []
    async with am.MonitoredSession(am.ChiefSessionCreator(program=program())) as sess:
        items = source.items()
        for _ in range(3):
            async for item in sess.iterate(items):
                seen.append(item)
                break
            async for _ in sess.iterate(range(2)):
                await sess.run("train")
    assert seen == [0, 1, 2]
    assert source.closed_in is asyncio.current_task()


async def cancel_own_task() -> None:
    task = asyncio.create_task(asyncio.sleep(1000))
    await asyncio.sleep(0)
    task.cancel()
    await task


async def swallow() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@pytest.mark.parametrize("leave", [ask, send_a_signal, None])
async def test_a_clean_up_may_await_a_task_that_it_cancels(leave: Any, tmp_path: Path) -> None:
    await train(Source(cancel_own_task), tmp_path, leave)
    assert await saved(tmp_path) == "model.ckpt-4"


@pytest.mark.parametrize("leave", [ask, send_a_signal, None])
async def test_a_clean_up_that_ignores_its_cancellation_is_left(leave: Any, tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceededError, match="clean-up of the data took longer"):
        await train(Source(swallow), tmp_path, leave)
    assert asyncio.get_running_loop().time() < 12
    assert await saved(tmp_path) == "model.ckpt-4"


@pytest.mark.parametrize("leave", [ask, send_a_signal])
async def test_a_source_that_ignores_the_stop_is_left(leave: Any, tmp_path: Path) -> None:
    async def source() -> AsyncIterator[int]:
        for i in range(4):
            yield i
        await swallow()

    async with am.MonitoredTrainingSession(program=program(), checkpoint_dir=tmp_path) as sess:
        asyncio.get_running_loop().call_later(1, leave, sess)
        async for _ in sess.iterate(source()):
            await sess.run("train")
    assert asyncio.get_running_loop().time() <= 3
    assert await saved(tmp_path) == "model.ckpt-4"


async def test_the_source_of_a_task_that_has_ended_is_closed_at_the_end() -> None:
    source = Source(fail)

    async def read(sess: am.MonitoredSession) -> None:
        async for _ in sess.iterate(source.items()):
            await sess.run("train")
            break

    async def train_in_a_task() -> None:
        async with am.MonitoredSession(am.ChiefSessionCreator(program=program())) as sess:
            await asyncio.create_task(read(sess))

    with pytest.raises(ConnectionError, match="the server is gone"):
        await train_in_a_task()
