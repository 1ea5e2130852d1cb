"""The file calls of a simulated process, on the disk of the simulation."""

from __future__ import annotations

import errno
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from asyncmon.system import clock
from asyncmon.system.files import FileCalls
from tests.simulation.disk import Disk, Node, error, stat_of
from tests.simulation.process import Process

_FIRST = 1 << 20  # no descriptor of the real system


class ProcessDiedError(BaseException):
    """The process has died during a call. None of its code handles this."""


@dataclass(eq=False)
class _Open:
    node: Node
    path: Path
    position: int = 0
    appends: bool = False


class SimulatedFiles(FileCalls):
    """The calls of one process.

    Args:
        disk: the files.
        process: the process.
    """

    def __init__(self, disk: Disk, process: Process) -> None:
        self._disk = disk
        self._process = process
        self._open: dict[int, _Open] = {}
        self._numbers = itertools.count(_FIRST)
        self.crash_in: int | None = None
        """The number of changes until the machine crashes in the midst of them."""

    def open_paths(self) -> list[str]:
        """Return the paths of the open files."""
        return [str(one.path) for one in self._open.values()]

    def release(self) -> None:
        """Close all files, as the end of a process does."""
        for descriptor in tuple(self._open):
            self.close(descriptor)

    def make_dirs_nowait(self, path: Path) -> None:
        self._call()
        for one in reversed((path, *path.parents)):
            if not self._disk.exists(one):
                self._change()
                self._disk.make(self._process.name, one, clock.wall(), is_directory=True)

    def exists(self, path: Path) -> bool:
        self._call()
        return self._disk.exists(path)

    def stat(self, path: Path) -> os.stat_result:
        self._call()
        return stat_of(self._disk.node(path))

    def fstat(self, descriptor: int) -> os.stat_result:
        return stat_of(self._at(descriptor).node)

    def open(self, path: Path, flags: int) -> int:
        self._call()
        if not self._disk.exists(path):
            if not flags & os.O_CREAT:
                raise error(errno.ENOENT, path)
            self._change()
            self._disk.make(self._process.name, path, clock.wall())
        elif flags & os.O_EXCL:
            raise error(errno.EEXIST, path)
        node = self._disk.node(path)
        if node.is_directory and flags & (os.O_WRONLY | os.O_RDWR):
            raise error(errno.EISDIR, path)
        descriptor = next(self._numbers)
        self._open[descriptor] = _Open(node, path, appends=bool(flags & os.O_APPEND))
        return descriptor

    def read_at(self, descriptor: int, buffer: memoryview, position: int) -> int:
        self._call()
        data = self._at(descriptor).node.content[position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def map(self, descriptor: int) -> bytes:
        self._call()
        return bytes(self._at(descriptor).node.content)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self._call(changes=True)
        file = self._at(descriptor)
        if file.appends:
            file.position = len(file.node.content)
        written = self._disk.write(
            self._process.name, file.node, file.position, bytes(data), clock.wall()
        )
        file.position += written
        return written

    def truncate(self, descriptor: int, length: int) -> None:
        self._call(changes=True)
        file = self._at(descriptor)
        self._disk.truncate(self._process.name, file.node, length, clock.wall())
        file.position = length

    def fsync(self, descriptor: int) -> None:
        self._call(changes=True)
        file = self._at(descriptor)
        self._disk.flush(file.node, file.path)

    def sync_directory(self, path: Path) -> None:
        self._call(changes=True)
        self._disk.flush(self._disk.node(path), path)

    def close(self, descriptor: int) -> None:
        file = self._open.pop(descriptor, None)
        if file is not None:
            file.node.locks.pop(file, None)
        elif not self._process.is_dead:
            raise error(errno.EBADF, descriptor)

    def replace(self, source: Path, target: Path) -> None:
        self._call(changes=True)
        self._disk.rename(self._process.name, source, target)

    def unlink(self, path: Path) -> None:
        self._call(changes=True)
        self._disk.unlink(self._process.name, path)

    def listdir(self, path: Path) -> list[str]:
        self._call()
        return self._disk.listdir(path)

    def lock(self, descriptor: int, *, shared: bool = False) -> None:
        self._call()
        file = self._at(descriptor)
        others = [is_shared for one, is_shared in file.node.locks.items() if one is not file]
        if others and not (shared and all(others)):
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", str(file.path))
        file.node.locks[file] = shared

    def unlock(self, descriptor: int) -> None:
        if not self._process.is_dead:
            file = self._at(descriptor)
            file.node.locks.pop(file, None)

    def _at(self, descriptor: int) -> _Open:
        if self._process.is_dead:
            raise ProcessDiedError
        found = self._open.get(descriptor)
        if found is None:
            raise error(errno.EBADF, descriptor)
        return found

    def _call(self, *, changes: bool = False) -> None:
        if self._process.is_dead:
            raise ProcessDiedError
        self._process.blocked += self._disk.call_secs
        if changes:
            self._change()

    def _change(self) -> None:
        """Count a change; crash before it if its turn has come."""
        if self.crash_in is not None:
            if self.crash_in == 0:
                self.crash_in = None
                self._process.crash()
                raise ProcessDiedError
            self.crash_in -= 1
