"""A file system in memory that records flushes: a crash of a machine loses the rest.

As on POSIX file systems, a file's content is durable after ``fsync`` of the file, its name after
``fsync`` of its directory. Without them a crash may keep any of it: of the names some of the first
changes, of a content the flushed part, the whole, or a part of the writes since.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(eq=False)
class Node:
    """A file or a directory, without its name.

    Attributes:
        number: the inode.
        is_directory: whether it is one.
        content: of the file.
        flushed: the content that a crash keeps.
        mtime: the time of the last write, in seconds since 1970.
        writer: the machine with unflushed writes.
        locks: the open files that hold a lock, with whether it is shared.
    """

    number: int
    is_directory: bool
    content: bytearray = field(default_factory=bytearray)
    flushed: bytes = b""
    mtime: float = 0.0
    writer: str | None = None
    locks: dict[Any, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class _Change:
    """A change of names that is not durable yet: new nodes by path, None for a name that is gone."""

    machine: str
    names: dict[str, Node | None]


def error(number: int, path: object) -> OSError:
    """Return the error of a system call."""
    return OSError(number, os.strerror(number), str(path))


class Disk:
    """The files of a simulation, shared by all of its processes, as a network file system is.

    Attributes:
        free: bytes that can still be written, None for any number.
        call_secs: seconds that each call takes.
        before_change: called before each change.
        runs: the number of simulations that used it, which have different random numbers.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(2)
        self._names: dict[str, Node] = {"/": Node(1, True)}
        self._flushed_names = dict(self._names)
        self._changes: list[_Change] = []
        self.free: int | None = None
        self.runs = 0
        self.call_secs = 0.0
        self.before_change: Callable[[], None] = lambda: None

    # Reads.

    def node(self, path: str | os.PathLike[str]) -> Node:
        """Return the node at a path. Raises FileNotFoundError."""
        found = self._names.get(os.path.abspath(path))
        if found is None:
            raise error(errno.ENOENT, path)
        return found

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Return whether there is a file or directory."""
        return os.path.abspath(path) in self._names

    def read(self, path: str | os.PathLike[str]) -> bytes:
        """Return the content of a file."""
        return bytes(self.node(path).content)

    def listdir(self, path: str | os.PathLike[str]) -> list[str]:
        """Return the names in a directory, sorted."""
        if not self.node(path).is_directory:
            raise error(errno.ENOTDIR, path)
        own = os.path.abspath(path)
        inside = (name for name in self._names if os.path.dirname(name) == own and name != own)
        return sorted(map(os.path.basename, inside))

    def files(self) -> dict[str, bytes]:
        """Return the contents of all files by their paths."""
        return {
            name: bytes(node.content) for name, node in self._names.items() if not node.is_directory
        }

    # Changes.

    def make(self, machine: str, path: Path, now: float, *, is_directory: bool = False) -> Node:
        """Make an empty file or a directory. Raises FileNotFoundError without a parent."""
        name = os.path.abspath(path)
        if not self.node(os.path.dirname(name)).is_directory:
            raise error(errno.ENOTDIR, path)
        self.before_change()
        made = Node(next(self._numbers), is_directory, mtime=now)
        self._rename(machine, {name: made})
        return made

    def write(self, machine: str, node: Node, position: int, data: bytes, now: float) -> int:
        """Write into a file and return the number of bytes that found room."""
        if self.free is not None:
            data = data[: self.free]
            if not data:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.free -= len(data)
        self.before_change()
        node.content[position : position + len(data)] = data
        node.mtime, node.writer = now, machine
        return len(data)

    def truncate(self, machine: str, node: Node, length: int, now: float) -> None:
        """Truncate a file."""
        self.before_change()
        if self.free is not None:
            self.free += max(0, len(node.content) - length)
        del node.content[length:]
        node.mtime, node.writer = now, machine

    def flush(self, node: Node, path: Path) -> None:
        """Make a content durable, or the names in a directory."""
        self.before_change()
        if not node.is_directory:
            node.flushed, node.writer = bytes(node.content), None
            return
        directory, rest = os.path.abspath(path), []
        for change in self._changes:
            inside = {
                name: one for name, one in change.names.items() if os.path.dirname(name) == directory
            }
            self._apply(self._flushed_names, inside)
            outside = {name: one for name, one in change.names.items() if name not in inside}
            if outside:
                rest.append(_Change(change.machine, outside))
        self._changes = rest

    def rename(self, machine: str, source: Path, target: Path) -> None:
        """Rename a file, replacing the target."""
        node, old = self.node(source), os.path.abspath(source)
        self.node(target.parent)
        self.before_change()
        self._rename(machine, {old: None, os.path.abspath(target): node})

    def unlink(self, machine: str, path: Path) -> None:
        """Remove the name of a file."""
        node = self.node(path)
        self.before_change()
        if self.free is not None:
            self.free += len(node.content)
        self._rename(machine, {os.path.abspath(path): None})

    # Crashes.

    def crash(self, machine: str, draw: random.Random) -> None:
        """Lose unflushed changes of a machine. Those of other machines stay."""
        own = [change for change in self._changes if change.machine == machine]
        kept = draw.choice([0, len(own), draw.randint(0, len(own))])
        for change in own[:kept]:
            self._apply(self._flushed_names, change.names)
        names = dict(self._flushed_names)
        self._changes = [change for change in self._changes if change.machine != machine]
        for change in self._changes:
            self._apply(names, change.names)
        self._names = {name: node for name, node in names.items() if self._is_reachable(names, name)}
        for node in self._names.values():
            if node.writer == machine and not node.is_directory:
                part = draw.randint(0, len(node.content))
                torn = bytes(node.content[:part]) + node.flushed[part:]
                node.content[:] = draw.choice([node.flushed, bytes(node.content), torn])
                node.flushed, node.writer = bytes(node.content), None

    def variants(self) -> Iterator[tuple[str, Disk]]:
        """Yield copies as they may be after a crash now, each with the lost changes."""
        yield "all that was not flushed", self._copy(self._flushed_names, True)
        yield "contents that were not flushed", self._copy(self._names, True)
        yield "nothing", self._copy(self._names, False)

    def _copy(self, names: dict[str, Node], flushed: bool) -> Disk:
        made = Disk()
        nodes: dict[int, Node] = {}
        for name, node in names.items():
            if self._is_reachable(names, name):
                content = node.flushed if flushed else bytes(node.content)
                copied = Node(node.number, node.is_directory, bytearray(content), content, node.mtime)
                made._names[name] = nodes.setdefault(node.number, copied)
        made._flushed_names = dict(made._names)
        made.runs = self.runs
        made._numbers = itertools.count(max(nodes) + 1)
        return made

    def _rename(self, machine: str, names: dict[str, Node | None]) -> None:
        self._apply(self._names, names)
        self._changes.append(_Change(machine, names))

    @staticmethod
    def _apply(names: dict[str, Node], changes: dict[str, Node | None]) -> None:
        for name, node in changes.items():
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node

    @staticmethod
    def _is_reachable(names: dict[str, Node], name: str) -> bool:
        while name != "/":
            name = os.path.dirname(name)
            if name not in names:
                return False
        return True


def stat_of(node: Node) -> os.stat_result:
    """Return the facts of a node."""
    mode = stat.S_IFDIR | 0o755 if node.is_directory else stat.S_IFREG | 0o644
    secs = int(node.mtime)
    values = (mode, node.number, 1, 1, 0, 0, len(node.content), secs, secs, secs)
    return os.stat_result(values, {"st_mtime": node.mtime, "st_mtime_ns": int(node.mtime * 1e9)})
