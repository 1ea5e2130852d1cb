"""The writers of one directory: one file for all of them, and a cached one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from asyncmon.summary import Event, FileWriter, FileWriterCache, SessionLog
from asyncmon.summary.shared_writer import SharedWriter

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_all_writers_of_a_directory_share_a_file_fw_8(
    tmp_path: Path, event_files: Callable[[], list[Path]], events: Callable[[], list[Event]]
) -> None:
    """FW-8: by its real path; the last one that records the session writes STOP."""
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    first = SharedWriter(tmp_path / "logs", None)
    second = SharedWriter(str(tmp_path / "link" / ".." / "logs" / ""), None)
    first.start(0)
    second.start(0)
    await first.close()
    second.add_scalars({"loss": 1.0}, 1)
    await second.close()
    assert first.file_writer is second.file_writer is None
    assert len(event_files()) == 1
    assert [event.session_log.status for event in events()] == [SessionLog.START, 0, SessionLog.STOP]


async def test_get_gives_the_same_writer_fw_8(
    tmp_path: Path, event_files: Callable[[], list[Path]]
) -> None:
    hook = SharedWriter(tmp_path / "logs", None)
    hook.start(0)
    writer = FileWriterCache.get(tmp_path / "logs")
    assert FileWriterCache.get(str(tmp_path / "a" / ".." / "logs")) is writer
    writer.add_scalar("loss", 1.0, 1)
    await hook.close()
    assert not writer.closed
    await FileWriterCache.clear()
    assert writer.closed
    assert len(event_files()) == 1
    again = FileWriterCache.get(tmp_path / "logs")
    assert again is not writer
    await again.close()
    assert FileWriterCache.get(tmp_path / "logs") is not again
    await FileWriterCache.clear()


async def test_what_was_cleared_is_on_the_disk_while_a_session_continues(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    hook = SharedWriter(tmp_path / "logs", None)
    hook.start(0)
    FileWriterCache.get(tmp_path / "logs").add_scalar("loss", 1.0, 1)
    await FileWriterCache.clear()
    assert [value.tag for event in events() if event.summary for value in event.summary.value] == [
        "loss"
    ]
    await hook.close()


async def test_clear_closes_all(tmp_path: Path) -> None:
    writers = [FileWriterCache.get(tmp_path / name) for name in "ab"]
    assert writers[0] is not writers[1]
    await FileWriterCache.clear()
    assert all(writer.closed for writer in writers)
    assert not FileWriterCache.get(tmp_path / "a").closed
    await FileWriterCache.clear()


async def test_a_writer_that_hangs_holds_up_no_end_of_a_hook(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging(FileWriter):
        async def flush(self) -> None:
            await asyncio.Event().wait()

    writer = Hanging(tmp_path)
    shared = SharedWriter(None, writer)
    shared.start(0)
    await shared.close()
    assert "did not write all events within 30 s" in caplog.text
    await writer.close()
