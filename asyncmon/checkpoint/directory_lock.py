"""The lock of a directory, so that only one process saves into it.

The process holds a file lock on ``.asyncmon.lock`` from the opening of a session that saves there, or
its first save, until its last saver releases the directory. The savers of one process share the lock,
but only one session may train there. The system drops the lock when the process dies. An object store
has no locks: a process holds a lease there, which expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asyncmon.checkpoint.shared_files import SharedFiles
from asyncmon.errors import FailedPreconditionError
from asyncmon.system import clock, portable
from asyncmon.system.files import FileCalls, patiently, system_calls
from asyncmon.system.urls import is_url

LOCK_NAME = ".asyncmon.lock"

_TRIES, _PAUSE_SECS = 20, 0.01
"""A reader that looks whether the lock is free holds it for some microseconds, so it is tried again."""

logger = logging.getLogger(__name__)


class DirectoryLock:
    """The lock of one directory, held by this process while any saver of it holds it.

    Attributes:
        mutex: held by a thread that commits or deletes checkpoints of the directory.
        reserved: the names of tensor files of the current saves of this process.
        shared: the tensor files that several checkpoints have.
    """

    def __init__(self, directory: str) -> None:
        self.mutex = threading.Lock()
        self.reserved: set[str] = set()
        self.shared = SharedFiles()
        self._directory = directory
        self._path = None if is_url(directory) else Path(directory, LOCK_NAME)
        self._lease: Any = None  # of an object store
        self._descriptor: int | None = None
        self._calls = FileCalls()  # that opened it
        self._holders: set[object] = set()
        self._trainer: tuple[object, asyncio.AbstractEventLoop] | None = None  # one of the holders
        self._changing = threading.Lock()

    def acquire(
        self,
        holder: object,
        calls: FileCalls,
        clean_up: Callable[[], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Acquire or share the lock. Blocking, but waits for another process 0.2 s at most.

        Args:
            holder: holds the lock until :meth:`release`, even if it acquires it repeatedly.
            calls: the system calls to use.
            clean_up: called before the first holder of this process gets the lock.
            loop: the event loop of a session that is to be the only one here, until it is closed.

        Raises:
            FailedPreconditionError: another process holds the lock.
            ValueError: another session of this process does.
        """
        with self._changing:
            if loop is not None and self._trainer is not None:
                other, its_loop = self._trainer
                if other is not holder and not its_loop.is_closed():
                    raise two_trainers(self._directory)
            if not self._is_held():
                self.drop()
                self._calls = calls
                if self._path is not None:
                    self._descriptor = patiently(_take, self._path, calls)
                else:
                    lease = importlib.import_module("asyncmon.checkpoint.lease")  # needs the extra
                    self._lease = lease.Lease(self._directory)
                try:
                    clean_up()
                except BaseException:
                    self.drop()
                    raise
            self._holders.add(holder)
            if loop is not None:
                self._trainer = holder, loop

    def check(self) -> None:
        """Raise FailedPreconditionError if another process has taken a prefix of a store over."""
        if self._lease is not None:
            self._lease.check()

    def forget(self) -> None:
        """Drop the lock in a forked child, which the parent still holds."""
        if self._lease is not None:
            self._lease.forget()
            self._lease = None
        self.drop()

    def release(self, holder: object) -> None:
        """Remove a holder. After the last one, other processes can acquire the lock."""
        with self._changing:
            self._holders.discard(holder)
            if self._trainer is not None and self._trainer[0] is holder:
                self._trainer = None
            if not self._holders:
                self.drop()

    def _is_held(self) -> bool:
        """Return whether this process holds the lock and its file still exists."""
        if self._path is None:
            return self._lease is not None and not self._lease.is_lost
        if self._descriptor is None:
            return False
        try:
            found = patiently(self._calls.stat, self._path)
        except FileNotFoundError:
            return False
        # Another error is raised: a second clean-up would delete the saves that are in flight.
        return os.path.samestat(patiently(self._calls.fstat, self._descriptor), found)

    def drop(self) -> None:
        """Close the file, and with it the lock of this process."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # the descriptor is free even so
                self._calls.close(self._descriptor)
            self._descriptor = None


def two_trainers(directory: str) -> ValueError:
    """Return the error of a second hook, of one session or of two, that saves into a directory."""
    return ValueError(
        f"Two CheckpointSaverHooks save to {directory!r}: each would write, and delete, "
        "the other's checkpoints. Close the session of the first one where it is still open; "
        "else leave one out: MonitoredTrainingSession adds one of its own, "
        "unless it has save_checkpoint_steps=0."
    )


def is_held(directory: str) -> bool | None:
    """Return whether a process holds the lock of a local directory; None: unknown. Blocking."""
    calls, shared = system_calls.get(), os.name != "nt"  # Windows has no shared locks
    flags = (os.O_RDONLY if shared else os.O_RDWR) | portable.NO_FOLLOW | portable.NO_WAIT
    try:
        descriptor = calls.open(Path(directory, LOCK_NAME), flags)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        calls.lock(descriptor, shared=shared)  # for some microseconds, for which acquire() waits
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        calls.close_read(descriptor)
    return False


def _take(path: Path, calls: FileCalls) -> int:
    # A link could make this overwrite another file, and a pipe could make it wait.
    flags = os.O_RDWR | os.O_CREAT | portable.NO_FOLLOW | portable.NO_WAIT
    descriptor = calls.open(path, flags)
    try:
        if not stat.S_ISREG(calls.fstat(descriptor).st_mode):
            raise OSError(errno.EEXIST, "not a regular file", str(path))
        _lock(descriptor, path, calls)
    except BaseException:
        calls.close_read(descriptor)
        raise
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": clock.local_text(clock.wall())}
    with contextlib.suppress(OSError):  # the text is only for the error message of other processes
        calls.truncate(descriptor, 0)
        calls.write_all(descriptor, json.dumps(holder).encode() + b"\n")
    return descriptor


def _lock(descriptor: int, path: Path, calls: FileCalls) -> None:
    try:
        for _ in range(_TRIES - 1):
            with contextlib.suppress(BlockingIOError):
                return calls.lock(descriptor)
            portable.pause(_PAUSE_SECS)
        calls.lock(descriptor)
    except BlockingIOError:
        holder = calls.read(descriptor, 0, 4096).decode(errors="replace").strip()
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
