"""A FileWriter over hung and full disks, and with cancelled closes. Nothing is lost in silence."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from asyncmon.summary import FileWriter, SessionLog, summary_iterator
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

Scalars = list[tuple[int, str, float]]


async def hang(writer: FileWriter, disk: Any) -> None:
    """Let the writer's thread run into a disk that does not answer, with one event."""
    writer.add_scalar("first", 0.0, 0)
    flushing = asyncio.create_task(writer.flush())
    await asyncio.to_thread(disk.reached.wait, 10)
    flushing.cancel()
    await asyncio.wait([flushing])


async def test_a_hung_disk_does_not_block_a_caller_that_adds(
    tmp_path: Path, hung_disk: Any, scalars: Callable[[], Scalars]
) -> None:
    writer = FileWriter(tmp_path, calls=hung_disk)
    await hang(writer, hung_disk)
    for step in range(1, 1001):
        writer.add_scalar("loss", float(step), step)
    hung_disk.released.set()
    await writer.close()
    assert len(scalars()) == 1001
    assert writer.dropped == 0


async def test_drain_waits_for_the_disk(
    tmp_path: Path, hung_disk: Any, scalars: Callable[[], Scalars]
) -> None:
    writer = FileWriter(tmp_path, max_queue=5, calls=hung_disk)
    await hang(writer, hung_disk)
    for step in range(5):
        writer.add_scalar("loss", 1.0, step)
    await writer.drain()  # five may be pending
    writer.add_scalar("loss", 1.0, 5)
    draining = asyncio.create_task(writer.drain())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not draining.done()
    hung_disk.released.set()
    await draining
    await writer.close()
    assert len(scalars()) == 7


async def test_a_cancelled_close_leaves_a_hung_disk_to_its_thread(
    tmp_path: Path, hung_disk: Any, scalars: Callable[[], Scalars], caplog: pytest.LogCaptureFixture
) -> None:
    async with assert_nothing_left_behind(tasks=True, threads=True, descriptors=True):
        writer = FileWriter(tmp_path, calls=hung_disk)
        await hang(writer, hung_disk)
        writer.add_scalar("loss", 1.0, 1)
        async with anyio.create_task_group() as group:
            group.start_soon(writer.close)
            await asyncio.sleep(0)
            group.cancel_scope.cancel()
        assert writer.closed
        assert "hangs; up to 2 events are lost" in caplog.text
        hung_disk.released.set()
        await wait_all_tasks_blocked()
    assert scalars() == [(0, "first", 0.0), (1, "loss", 1.0)]  # the thread has gone on


async def test_a_writer_that_left_a_hung_disk_begins_a_new_file(
    tmp_path: Path, hung_disk: Any, event_files: Callable[[], list[Path]]
) -> None:
    writer = FileWriter(tmp_path, calls=hung_disk)
    await hang(writer, hung_disk)
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    reopening = asyncio.create_task(writer.reopen())
    await asyncio.sleep(0)
    hung_disk.released.set()
    await reopening
    writer.add_scalar("loss", 1.0, 1)
    await writer.close()
    await wait_all_tasks_blocked()  # the abandoned thread has ended, too
    steps = [[event.step for event in summary_iterator(path)] for path in event_files()]
    assert steps == [[0, 0], [0, 1]]


async def test_a_cancelled_flush_does_not_cancel_the_write(
    tmp_path: Path, hung_disk: Any, scalars: Callable[[], Scalars]
) -> None:
    writer = FileWriter(tmp_path, calls=hung_disk)
    await hang(writer, hung_disk)  # cancels its flush
    hung_disk.released.set()
    await writer.flush()
    assert scalars() == [(0, "first", 0.0)]
    await writer.close()


async def test_several_may_close(tmp_path: Path, scalars: Callable[[], Scalars]) -> None:
    writer = FileWriter(tmp_path)
    writer.add_scalar("loss", 1.0, 1)
    await asyncio.gather(writer.close(), writer.close(), writer.flush(), return_exceptions=False)
    assert scalars() == [(1, "loss", 1.0)]


async def test_a_full_disk_is_raised_by_the_next_flush_and_nothing_is_lost_fw_7(
    tmp_path: Path, full_disk: Any, scalars: Callable[[], Scalars], caplog: pytest.LogCaptureFixture
) -> None:
    """The writer continues after the error; TF1's never writes again."""
    async with FileWriter(tmp_path, calls=full_disk) as writer:
        full_disk.room = 30  # a record and a half
        for step in (1, 2):
            writer.add_scalar("loss", 1.0, step)
        with pytest.raises(OSError, match=r"Events cannot be written to .*tfevents.*: No space left"):
            await writer.flush()
        assert scalars() == []  # the cut record was removed
        writer.add_scalar("loss", 1.0, 4)  # diagnostics do not end a training
        full_disk.room = None
    assert scalars() == [(1, "loss", 1.0), (2, "loss", 1.0), (4, "loss", 1.0)]
    assert [record.levelname for record in caplog.records if "kept" in record.message] == ["ERROR"]


async def test_the_error_is_raised_again_while_the_disk_refuses_fw_7(
    tmp_path: Path, full_disk: Any, scalars: Callable[[], Scalars], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "asyncmon")
    async with FileWriter(tmp_path, calls=full_disk) as writer:
        full_disk.room = 0
        writer.add_scalar("loss", 1.0, 1)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                await writer.flush()
        full_disk.room = None
        await writer.flush()
        assert scalars() == [(1, "loss", 1.0)]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "is written again" in caplog.text


async def test_drain_raises_an_error_of_the_disk(tmp_path: Path, full_disk: Any) -> None:
    async with FileWriter(tmp_path, max_queue=1, calls=full_disk) as writer:
        full_disk.room = 0
        writer.add_scalar("loss", 1.0, 1)
        writer.add_scalar("loss", 1.0, 2)
        with pytest.raises(OSError, match="No space left"):
            await writer.drain()
        full_disk.room = None


async def test_a_file_that_cannot_be_repaired_is_left_for_a_new_one(
    tmp_path: Path, full_disk: Any, event_files: Callable[[], list[Path]]
) -> None:
    async with FileWriter(tmp_path, calls=full_disk) as writer:
        writer.add_scalar("loss", 1.0, 1)
        await writer.flush()
        full_disk.room, full_disk.repairable = 10, False
        writer.add_scalar("loss", 1.0, 2)
        with pytest.raises(OSError, match="No space left"):
            await writer.flush()
        full_disk.room = None
    damaged, whole = event_files()
    assert [event.step for event in summary_iterator(whole)] == [0, 2]
    assert damaged.stat().st_size > 10


async def test_a_close_over_a_full_disk_says_what_is_lost(
    tmp_path: Path, full_disk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    writer = FileWriter(tmp_path, calls=full_disk)
    await writer.open()
    writer.start(0)
    await writer.flush()
    full_disk.room = 0
    writer.add_scalar("loss", 1.0, 1)
    with pytest.raises(OSError, match="No space left") as caught:
        await writer.close()
    assert writer.closed
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.__notes__ == ["2 records were not written."]  # the value, and STOP
    assert "2 records for the events of" in caplog.text
    await writer.close()


async def test_dropped_events_are_counted_in_the_file(
    tmp_path: Path, hung_disk: Any, scalars: Callable[[], Scalars], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncmon.summary.event_log.MOST_PENDING", 5)
    writer = FileWriter(tmp_path, calls=hung_disk)
    await hang(writer, hung_disk)
    writer.add_session_log(SessionLog(SessionLog.CHECKPOINT, "model.ckpt-1"), 1)
    for step in range(1, 1001):
        writer.add_scalar("loss", float(step), step)
    assert writer.dropped == 996  # the session log is not dropped
    hung_disk.released.set()
    await writer.close()
    assert scalars() == [
        (0, "first", 0.0),
        *((step, "loss", float(step)) for step in range(997, 1001)),
        (1000, "asyncmon/dropped_events", 996.0),
    ]


async def test_a_directory_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    directory = tmp_path / "file" / "logs"
    async with assert_nothing_left_behind():
        writer = FileWriter(directory)
        writer.add_scalar("loss", 1.0, 1)
        with pytest.raises(NotADirectoryError, match=f"cannot be written to '{directory}'"):
            await writer.open()
        with pytest.raises(NotADirectoryError, match=f"cannot be written to '{directory}'"):
            async with writer:
                raise AssertionError("not reached")
    (tmp_path / "file").unlink()
    async with writer:
        pass
    (path,) = directory.iterdir()
    assert [event.step for event in summary_iterator(path)] == [0, 1]  # kept all the time


async def test_a_file_that_disappears_is_replaced(
    tmp_path: Path, event_files: Callable[[], list[Path]], scalars: Callable[[], Scalars]
) -> None:
    async with FileWriter(tmp_path) as writer:
        event_files()[0].unlink()
        writer.add_scalar("loss", 1.0, 1)
        await writer.flush()
        assert scalars() == [(1, "loss", 1.0)]


async def test_one_event_that_cannot_be_encoded_does_not_take_others_with_it(
    tmp_path: Path, scalars: Callable[[], Scalars], caplog: pytest.LogCaptureFixture
) -> None:
    class Graph:
        def get_operations(self) -> list[Any]:
            return [object()]

    async with FileWriter(tmp_path, Graph()) as writer:
        writer.add_scalar("loss", 1.0, 1)
    assert scalars() == [(1, "loss", 1.0)]
    assert "cannot be encoded and is left out" in caplog.text
