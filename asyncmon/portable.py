"""System calls that differ between operating systems, with one fallback each.

Linux is the reference. What differs elsewhere:

* macOS: no processor affinity, so every core counts. ``fsync`` hands the data to the drive, whose own
  cache may still hold it: a power cut can lose the last checkpoint there, a killed process cannot.
* Windows: no ``fcntl``. A lock is that of ``msvcrt``, mandatory and exclusive, on a byte behind the
  text of the lock file. A shared lock is not needed: the system refuses to delete or replace an open
  file. So :func:`replace` retries for a while, and a deletion that is refused counts as "in use".
  Directories cannot be opened, and need no fsync: NTFS journals names. There is no fork.
* A system, or a file system, that has no locks at all raises :class:`OSError` with ``ENOTSUP``.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


_fcntl = _module("fcntl")
_msvcrt = _module("msvcrt")
_LOCKED_BYTE = 1 << 30
_ATTEMPTS, _PAUSE_SECS = 50, 0.02
_BINARY: int = getattr(os, "O_BINARY", 0)

DIRECTORY: int | None = os.O_RDONLY | os.O_DIRECTORY if hasattr(os, "O_DIRECTORY") else None
"""The flags that open a directory for fsync; None where directories need none."""


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def open_file(path: str | os.PathLike[str], flags: int) -> int:
    """Return a new descriptor, binary, which child processes do not inherit."""
    return os.open(path, flags | _BINARY, 0o666)


def lock(descriptor: int, *, shared: bool = False) -> None:
    """Lock an open file without waiting. Other processes see it; a crash releases it.

    Args:
        descriptor: of the file.
        shared: several holders may have a shared lock; none beside an exclusive one.

    Raises:
        BlockingIOError: another holder has a lock that excludes this one.
        OSError: the system or the file system has no locks.
    """
    if _fcntl is not None:
        _fcntl.flock(descriptor, (_fcntl.LOCK_SH if shared else _fcntl.LOCK_EX) | _fcntl.LOCK_NB)
    elif _msvcrt is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    elif not shared:
        _lock_byte(descriptor)


def unlock(descriptor: int) -> None:
    """Release a lock. OSError where there are none."""
    if _fcntl is not None:
        _fcntl.flock(descriptor, _fcntl.LOCK_UN)


def _lock_byte(descriptor: int) -> None:
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        _msvcrt.locking(descriptor, _msvcrt.LK_NBLCK, 1)
    except OSError as error:
        raise BlockingIOError(errno.EWOULDBLOCK, str(error)) from error
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename within a directory, replacing the target, atomically. Blocking.

    Windows refuses while the target is open; readers of small files do not for long.
    """
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            os.replace(source, target)
        except PermissionError:
            if os.name != "nt" or not attempts_left:
                raise
            time.sleep(_PAUSE_SECS)
        else:
            return


def read_at(descriptor: int, buffer: memoryview, position: int) -> int:
    """Fill a buffer from a position of a file, and return how many bytes there were.

    Without ``preadv`` it moves the descriptor: then one thread at a time.
    """
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], position)
    os.lseek(descriptor, position, os.SEEK_SET)
    data = os.read(descriptor, len(buffer))
    buffer[: len(data)] = data
    return len(data)


def map_file(descriptor: int) -> mmap.mmap:
    """Map a whole file, which must not be empty, to be read."""
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


def after_fork_in_child(fn: Callable[[], Any]) -> None:
    """Have a function called in every forked child; nothing to do where there is no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=fn)


def disk_of(path: Path) -> str:
    """Return what is known of a path's file system: its free space, and whether it is read-only."""
    text = f"{shutil.disk_usage(path).free:,} bytes free"
    if hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY:
        text += ", on a read-only file system"
    return text


def user_id() -> int | None:
    """Return the number of the user this process runs as; None where users have none."""
    return os.geteuid() if hasattr(os, "geteuid") else None
