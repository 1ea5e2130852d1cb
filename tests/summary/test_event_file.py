"""The disk's side: unique names, whole records, short writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asyncmon.summary import summary_iterator
from asyncmon.summary.entries import Entry, scalar_fields
from asyncmon.summary.event_file import EventFile
from asyncmon.system.files import FileCalls


def entry(step: int) -> Entry:
    return (1.0, step, "loss", 0.5, scalar_fields)


def steps(path: Any) -> list[int]:
    return [event.step for event in summary_iterator(path)]


class Calls(FileCalls):
    """Writes few bytes at a time, as a system may, and records each flush."""

    def __init__(self) -> None:
        self.taken: list[Path] = []
        self.names: dict[int, Path] = {}
        self.synced: list[Path] = []

    def open(self, path: Path, flags: int) -> int:
        if path in self.taken:
            raise FileExistsError(path)
        descriptor = super().open(path, flags)
        self.names[descriptor] = path
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:  # type: ignore[override]  # bytes is all we write
        return super().write(descriptor, data[:7])

    def fsync(self, descriptor: int) -> None:
        self.synced.append(self.names[descriptor])


def test_a_short_write_is_gone_on_with(tmp_path: Path) -> None:
    file = EventFile(str(tmp_path), "", Calls())
    file.write([entry(1), entry(2)], sync=False)
    file.close()
    assert steps(file.path) == [0, 1, 2]


def test_many_events_are_written_in_pieces(tmp_path: Path) -> None:
    file = EventFile(str(tmp_path), "", FileCalls())
    file.write([entry(step) for step in range(1, 1001)], sync=False)
    file.close()
    assert steps(file.path) == list(range(1001))


def test_a_name_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    calls = Calls()
    first = EventFile(str(tmp_path), "", calls)
    first.open(5.0)
    name, _, number = str(first.path).rpartition(".")
    calls.taken.append(Path(f"{name}.{int(number) + 1:04d}"))
    second = EventFile(str(tmp_path), "", calls)
    second.open(5.0)
    assert second.path == f"{name}.{int(number) + 2:04d}"
    first.close()
    second.close()


def test_the_first_sync_makes_the_name_durable_too(tmp_path: Path) -> None:
    calls = Calls()
    file = EventFile(str(tmp_path), "", calls)
    file.write([entry(1)], sync=True)
    file.write([entry(2)], sync=True)
    file.close()
    path = Path(str(file.path))
    assert calls.synced == [path, tmp_path, path]


def test_a_close_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(FileCalls):
        def close(self, descriptor: int) -> None:
            super().close(descriptor)
            raise OSError(5, "Input/output error")

    file = EventFile(str(tmp_path), "", Failing())
    file.write([entry(1)], sync=False)
    file.close()
    assert "Input/output error" in caplog.text
