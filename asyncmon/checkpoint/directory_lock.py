"""One process saves into a directory: who, and what a second one is told.

The process that saves into a directory holds an ``flock`` on ``.asyncmon.lock`` in it, from its first
save until the last of its savers gives the directory back. The system drops the lock of a process that
dies, however it dies. Savers of one process share it: they know of each other and take turns.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import socket
import threading
from typing import TYPE_CHECKING, ClassVar

from asyncmon import clock, portable
from asyncmon.errors import FailedPreconditionError

if TYPE_CHECKING:
    from pathlib import Path

    from asyncmon.files import FileCalls

LOCK_NAME = ".asyncmon.lock"

logger = logging.getLogger(__name__)


class DirectoryLock:
    """The lock of one directory, held by this process while any saver of it holds it.

    Example::

        lock = DirectoryLock.of(directory, calls)
        first = lock.acquire()  # true for the first saver of this process
        ...
        lock.release()
    """

    _held: ClassVar[dict[Path, DirectoryLock]] = {}
    _registry: ClassVar[threading.Lock] = threading.Lock()
    _forgets_at_fork: ClassVar[bool] = False

    def __init__(self, directory: Path, calls: FileCalls) -> None:
        self._path = directory / LOCK_NAME
        self._calls = calls
        self._descriptor: int | None = None
        self._holders = 0
        self._counting = threading.Lock()
        self.turn = threading.Lock()
        """Held by a thread of this process while it moves checkpoint files of the directory about."""

    @classmethod
    def of(cls, directory: Path, calls: FileCalls) -> DirectoryLock:
        """Return the lock of a directory, one object a process."""
        key = directory.resolve()
        with cls._registry:
            if not cls._forgets_at_fork:
                # A forked child shares the open file, and with it the lock, but is no holder of it.
                portable.after_fork_in_child(cls._forget)
                cls._forgets_at_fork = True
            return cls._held.setdefault(key, cls(key, calls))

    def acquire(self) -> bool:
        """Take the lock, or share it. Blocking, but never waits for another process.

        Returns:
            Whether the lock was taken by this call, and not held by this process before.

        Raises:
            FailedPreconditionError: another process has it.
            OSError: the lock file cannot be made.
        """
        with self._counting:
            if self._descriptor is not None and self._is_in_place():
                self._holders += 1
                return False
            self._drop()  # the directory was deleted, and with it the file that we had locked
            self._descriptor = self._take()
            self._holders += 1
            return True

    def release(self) -> None:
        """Give one holder's share back; the last one's frees the directory for other processes."""
        with self._counting:
            self._holders -= 1
            if self._holders <= 0:
                self._drop()
                self._holders = 0

    def _take(self) -> int:
        descriptor = self._calls.open(self._path, os.O_RDWR | os.O_CREAT)
        try:
            self._lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        with contextlib.suppress(
            OSError
        ):  # the lock holds; its text only serves the error of the others
            os.ftruncate(descriptor, 0)
            os.write(descriptor, self._holder())
        return descriptor

    def _lock(self, descriptor: int) -> None:
        try:
            self._calls.lock(descriptor)
        except BlockingIOError:
            holder = os.read(descriptor, 4096).decode(errors="replace").strip()
            raise FailedPreconditionError(
                f"Another process saves checkpoints into {str(self._path.parent)!r}:"
                f" {holder or 'unknown'}. Two of them would delete each other's: save into another"
                " directory, or stop that process."
            ) from None
        except OSError as error:
            if error.errno not in {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}:
                raise
            logger.warning(
                "The file system of %r has no locks: nobody will notice when a second process saves"
                " there.",
                str(self._path.parent),
            )

    def _holder(self) -> bytes:
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": clock.wall()}
        return json.dumps(who).encode() + b"\n"

    def _is_in_place(self) -> bool:
        assert self._descriptor is not None
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except OSError:
            return False

    def _drop(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    @classmethod
    def _forget(cls) -> None:
        for lock in cls._held.values():
            lock._drop()
        cls._held = {}
        cls._registry = threading.Lock()
