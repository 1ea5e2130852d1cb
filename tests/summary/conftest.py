"""Disks that hang or are full, and a look into the event files of a directory."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from asyncmon.summary import Event, summary_iterator
from asyncmon.system.files import FileCalls


class HungDisk(FileCalls):
    """Each write waits until the disk is released."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()

    def write(self, descriptor: int, data: bytes) -> int:  # type: ignore[override]  # bytes is all we write
        self.reached.set()
        assert self.released.wait(10), "the test did not release the disk"
        return super().write(descriptor, data)


class FullDisk(FileCalls):
    """Takes ``room`` bytes, cutting the write that goes beyond, and then refuses; None: takes all."""

    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self.repairable = True

    def write(self, descriptor: int, data: bytes) -> int:  # type: ignore[override]  # bytes is all we write
        if self.room is None:
            return super().write(descriptor, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = super().write(descriptor, data[: self.room])
        self.room -= taken
        return taken

    def truncate(self, descriptor: int, length: int) -> None:
        if not self.repairable:
            raise OSError(errno.EIO, "Input/output error")
        super().truncate(descriptor, length)


@pytest.fixture
def hung_disk() -> Iterator[HungDisk]:
    disk = HungDisk()
    yield disk
    disk.released.set()


@pytest.fixture
def full_disk() -> FullDisk:
    return FullDisk()


@pytest.fixture
def event_files(tmp_path: Path) -> Callable[[], list[Path]]:
    """Return a function that lists the event files of the test's directory, in order."""
    return lambda: sorted(tmp_path.rglob("events.out.tfevents.*"))


@pytest.fixture
def events(event_files: Callable[[], list[Path]]) -> Callable[[], list[Event]]:
    """Return a function that reads all events of the test's directory, without the version records."""

    def read() -> list[Event]:
        return [
            event
            for path in event_files()
            for event in summary_iterator(path)
            if event.WhichOneof("what") != "file_version"
        ]

    return read


@pytest.fixture
def scalars(events: Callable[[], list[Event]]) -> Callable[[], list[tuple[int, str, float]]]:
    """Return a function that reads all scalars of the test's directory as (step, tag, value)."""

    def read() -> list[tuple[int, str, float]]:
        return [
            (event.step, value.tag, value.simple_value)
            for event in events()
            for value in event.summary.value
            if value.HasField("simple_value")
        ]

    return read
