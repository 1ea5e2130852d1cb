"""One process saves into a directory; another one is refused with the name of the first.

The process that saves into a local directory holds a file lock on ``.asyncmon.lock`` in it, from its
first save until its last saver releases the directory. The system drops the lock of a process that
dies. Savers of one process share it. An object store has no locks: there the savers of this process
are counted, and no other process is seen.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from asyncmon.errors import FailedPreconditionError
from asyncmon.system import clock, portable
from asyncmon.system.files import FileCalls

LOCK_NAME = ".asyncmon.lock"

logger = logging.getLogger(__name__)


class DirectoryLock:
    """The lock of one directory, held by this process while any saver of it holds it.

    Attributes:
        mutex: held by a thread while it commits or deletes checkpoints of the directory.
        reserved: names of tensor files that saves of this process are about to write.
        readers: the objects that readers of this process have open, by a key of each reader.
    """

    _known: ClassVar[dict[str, DirectoryLock]] = {}
    _registry: ClassVar[threading.Lock] = threading.Lock()
    _forgets_at_fork: ClassVar[bool] = False

    def __init__(self, directory: str) -> None:
        self.mutex = threading.Lock()
        self.reserved: set[str] = set()
        self.readers: dict[object, str] = {}
        self._path = None if "://" in directory else Path(directory, LOCK_NAME)
        self._owner: Callable[[], object] = lambda: None
        self._descriptor: int | None = None
        self._holders: set[object] = set()
        self._changing = threading.Lock()

    @classmethod
    def of(cls, directory: str) -> DirectoryLock:
        """Return the lock of a directory, a path or the URL of a prefix; one object a process."""
        key = directory.rstrip("/") if "://" in directory else os.path.realpath(directory)
        with cls._registry:
            if not cls._forgets_at_fork:
                # A forked child shares the open file, and with it the lock, but is no holder of it.
                portable.after_fork_in_child(cls._forget)
                cls._forgets_at_fork = True
            return cls._known.setdefault(key, cls(key))

    def own(self, owner: object) -> bool:
        """Make an object the only one of this process that decides when to save here, while it exists.

        Returns:
            False where there is another one.
        """
        with self._registry:
            current = self._owner()
            if current is None:
                self._owner = weakref.ref(owner)
        return current is None or current is owner

    def disown(self, owner: object) -> None:
        """Let another object decide when to save here. Ignored of one that does not."""
        with self._registry:
            if self._owner() is owner:
                self._owner = lambda: None

    def acquire(self, holder: object, calls: FileCalls, clean_up: Callable[[], None]) -> None:
        """Take the lock, or share it. Blocking, but never waits for another process.

        Args:
            holder: holds it until :meth:`release`, however often it is acquired.
            calls: the system calls to take it with.
            clean_up: called where this process did not hold the lock, before any saver has it.

        Raises:
            FailedPreconditionError: another process has it.
            OSError: the lock file cannot be made.
        """
        with self._changing:
            if not self._is_held():
                self._drop()
                self._descriptor = None if self._path is None else _take(self._path, calls)
                try:
                    clean_up()
                except BaseException:
                    self._drop()
                    raise
            self._holders.add(holder)

    def release(self, holder: object) -> None:
        """Give a holder's share back; the last one's frees the directory for other processes."""
        with self._changing:
            self._holders.discard(holder)
            if not self._holders:
                self._drop()

    def _is_held(self) -> bool:
        """Return whether this process holds it, and the directory was not deleted meanwhile."""
        if self._path is None:
            return bool(self._holders)
        try:
            return self._descriptor is not None and os.path.samestat(
                os.fstat(self._descriptor), os.stat(self._path)
            )
        except OSError:
            return False

    def _drop(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    @classmethod
    def _forget(cls) -> None:
        for lock in cls._known.values():
            lock._drop()
        cls._known = {}
        cls._registry = threading.Lock()


def _take(path: Path, calls: FileCalls) -> int:
    """Return the descriptor of the locked file."""
    descriptor = calls.open(path, os.O_RDWR | os.O_CREAT)
    try:
        _lock(descriptor, path, calls)
    except BaseException:
        os.close(descriptor)
        raise
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": clock.wall()}
    with contextlib.suppress(OSError):  # the text only serves the error of other processes
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(holder).encode() + b"\n")
    return descriptor


def _lock(descriptor: int, path: Path, calls: FileCalls) -> None:
    try:
        calls.lock(descriptor)
    except BlockingIOError:
        holder = os.read(descriptor, 4096).decode(errors="replace").strip()
        raise FailedPreconditionError(
            f"Another process saves checkpoints into {str(path.parent)!r}: {holder or 'unknown'}."
            " Two of them would delete each other's: save into another directory, or stop that process."
        ) from None
    except OSError as error:
        if error.errno not in {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}:
            raise
        logger.warning(
            "The file system of %r has no locks: a second process that saves there goes unnoticed.",
            str(path.parent),
        )
