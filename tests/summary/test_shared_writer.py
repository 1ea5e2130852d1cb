"""One writer a directory, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asyncmon.summary import FileWriter, FileWriterCache, SessionLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asyncmon.summary import Event

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_fw_8_all_who_write_into_a_directory_share_a_writer(
    tmp_path: Path, event_files: Callable[[], list[Path]], events: Callable[[], list[Event]]
) -> None:
    """FW-8: by its real path; the last to release writes STOP and closes."""
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    first = FileWriterCache.acquire(tmp_path / "logs")
    second = FileWriterCache.acquire(str(tmp_path / "link" / ".." / "logs" / ""))
    assert first is second
    first.start(0)
    second.start(0)
    await FileWriterCache.release(first)
    second.add_scalar("loss", 1.0, 1)
    assert not first.closed
    await FileWriterCache.release(second)
    assert first.closed
    assert len(event_files()) == 1
    assert [event.session_log.status for event in events()] == [SessionLog.START, 0, SessionLog.STOP]


async def test_fw_8_get_gives_the_same_writer_without_holding_it(tmp_path: Path) -> None:
    held = FileWriterCache.acquire(tmp_path)
    assert FileWriterCache.get(tmp_path) is held
    await FileWriterCache.release(held)
    assert held.closed
    writer = FileWriterCache.get(tmp_path)
    assert writer is not held
    writer.add_scalar("loss", 1.0, 1)
    await FileWriterCache.clear()
    assert writer.closed


async def test_directories_have_their_own_writers(tmp_path: Path) -> None:
    first = FileWriterCache.acquire(tmp_path / "a")
    second = FileWriterCache.acquire(tmp_path / "b")
    assert first is not second
    await FileWriterCache.release(first)
    await FileWriterCache.release(second)


async def test_a_writer_that_was_closed_is_not_handed_out_again(tmp_path: Path) -> None:
    first = FileWriterCache.acquire(tmp_path)
    await first.close()
    second = FileWriterCache.acquire(tmp_path)
    assert second is not first
    await FileWriterCache.release(first)  # it is closed already
    assert not second.closed
    await FileWriterCache.release(second)


async def test_releasing_too_often_is_an_error(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path)
    with pytest.raises(ValueError, match="was not acquired from FileWriterCache"):
        await FileWriterCache.release(writer)


async def test_clear_closes_all(tmp_path: Path) -> None:
    writers = [FileWriterCache.acquire(tmp_path / name) for name in "ab"]
    await FileWriterCache.clear()
    assert all(writer.closed for writer in writers)
    assert not FileWriterCache.acquire(tmp_path / "a").closed
    await FileWriterCache.clear()
