"""System calls that differ between operating systems, with a fallback for each.

Differences to Linux:

* macOS: there is no processor affinity, so all cores count. ``fsync`` passes data to the drive, which
  may cache it: a power failure can lose the last checkpoint, a killed process cannot.
* Windows: there is no ``fcntl``. Locks are those of ``msvcrt``, mandatory and exclusive, on a byte
  after the text of the lock file. Shared locks are not needed: an open file cannot be deleted or
  replaced. Therefore :func:`replace` retries, and a rejected deletion means "in use". Directories
  cannot be opened and need no fsync: NTFS journals names. There is no fork.
* A system, or a file system, without locks raises :class:`OSError` with ``ENOTSUP``.
* A child process inherits descriptors. On Windows it opens shared memory by name and gets a duplicate
  of a socket. Only Linux kills a child with its parent; elsewhere the child detects the parent's end.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import mmap
import os
import select
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


_fcntl = _module("fcntl")
_msvcrt = _module("msvcrt")
_LOCKED_BYTE = 1 << 30
_ATTEMPTS, _PAUSE_SECS = 50, 0.02
_PR_SET_PDEATHSIG = 1
_NICENESS = 10
_BINARY: int = getattr(os, "O_BINARY", 0)

NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
"""The flag to refuse a symbolic link; 0 where there is none."""
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
"""The flag to open a pipe without waiting for its other end; 0 where there is none."""
DIRECTORY: int | None = os.O_RDONLY | os.O_DIRECTORY if hasattr(os, "O_DIRECTORY") else None
"""The flags to open a directory for fsync; None where directories need no fsync."""


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def open_file(path: str | os.PathLike[str], flags: int) -> int:
    """Return a new binary descriptor that child processes do not inherit."""
    return os.open(path, flags | _BINARY, 0o666)


def pause(seconds: float) -> None:
    """Block the calling thread before it tries a call again."""
    time.sleep(seconds)


def lock(descriptor: int, *, shared: bool = False) -> None:
    """Lock an open file against other processes, without waiting. A crash releases the lock.

    Args:
        descriptor: the descriptor of the file.
        shared: take a shared lock, which excludes exclusive ones only.

    Raises:
        BlockingIOError: another holder has a conflicting lock.
        OSError: the system or the file system has no locks.
    """
    if _fcntl is not None:
        _fcntl.flock(descriptor, (_fcntl.LOCK_SH if shared else _fcntl.LOCK_EX) | _fcntl.LOCK_NB)
    elif _msvcrt is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    elif not shared:
        _lock_byte(descriptor)


def unlock(descriptor: int) -> None:
    """Release a lock. OSError if the system has no locks."""
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
    """Rename within a directory atomically, replacing the target. Blocking."""
    # Windows refuses while the target is open. Readers of small files are fast.
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
    """Read into a buffer from a position of a file, and return the number of bytes read.

    Without ``preadv`` it moves the position of the descriptor, so it is not thread-safe.
    """
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], position)
    os.lseek(descriptor, position, os.SEEK_SET)
    data = os.read(descriptor, len(buffer))
    buffer[: len(data)] = data
    return len(data)


def after_fork_in_child(fn: Callable[[], Any]) -> None:
    """Register a function to call in every forked child, on systems with fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=fn)


def disk_of(path: Path) -> str:
    """Return the free space of a path's file system, and whether it is read-only."""
    text = f"{shutil.disk_usage(path).free:,} bytes free"
    if hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY:
        text += ", on a read-only file system"
    return text


def file_system_of(path: Path) -> str | None:
    """Return the type of a path's file system, ``"ext4"`` or ``"nfs4"``; None: unknown. Linux only."""
    with contextlib.suppress(OSError):
        return _file_system_in(Path("/proc/self/mountinfo").read_text(), path.resolve())
    return None


def _file_system_in(mounts: str, path: Path) -> str | None:
    """Return the type of the innermost mount of an absolute path, of the lines of ``mountinfo``."""
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        # Spaces and backslashes of a path are octal escapes.
        place = Path(fields.split(" ")[4].encode().decode("unicode_escape"))
        # The last one of several mounts on one directory is the visible one.
        if path.is_relative_to(place) and (found is None or len(place.parts) >= found[0]):
            found = len(place.parts), kind.split(" ")[0]
    return None if found is None else found[1]


def machine_id() -> str | None:
    """Return a text that two processes share if they see each other's process ids; None: unknown.

    Linux only.
    """
    # The boot, and the namespace of process ids, as containers share the name of a host.
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return None


def has_ended(machine: object, process: object) -> bool:
    """Return whether a process of a :func:`machine_id` is known to have ended."""
    if machine is None or machine != machine_id() or not isinstance(process, int) or process <= 0:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return process == os.getpid()  # an earlier one that had the number of this process


def user_id() -> int | None:
    """Return the user id of this process; None on systems without user ids."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def allow_descriptors() -> None:
    """Let this process open as many files and connections as the system allows it."""
    resource = _module("resource")
    if resource is not None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with contextlib.suppress(OSError, ValueError):  # macOS allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_descriptors() -> int | None:
    """Return how many files and connections this process may have open; None for no limit."""
    resource = _module("resource")
    if resource is None:
        return None
    soft: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


# --- child processes ------------------------------------------------------------------------------
class SharedMemory:
    """Memory shared by a process and its child. The system frees it when both have ended.

    Parts of it are mapped separately. The child inherits a descriptor, or opens it by name.

    Args:
        found: :meth:`described` of the parent's memory; None for new memory.
    """

    def __init__(self, found: str | None = None) -> None:
        self.descriptor = -1
        self._name = found or f"asyncmon-{os.urandom(16).hex()}"
        if found is not None:
            self.descriptor = int(found) if found.isdigit() else -1
        elif hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("asyncmon")
        elif os.name != "nt":
            self.descriptor, path = tempfile.mkstemp()
            os.unlink(path)

    def described(self) -> str:
        """Return a text from which the child opens the memory."""
        return self._name if self.descriptor < 0 else str(self.descriptor)

    def map(self, start: int, size: int, *, new: bool = False) -> mmap.mmap:
        """Map a part, which is reserved first if it is new. Blocking.

        Args:
            start: a multiple of 64 kB.
            size: likewise.
            new: whether the part was never mapped.

        Raises:
            OSError: there is not enough memory.
        """
        if self.descriptor < 0:
            name: dict[str, Any] = {"tagname": f"{self._name}-{start}"}
            return mmap.mmap(-1, size, **name)
        if new and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.descriptor, start, size)  # else a write could raise SIGBUS
        elif new:
            _write_zeros(self.descriptor, start, size)
        return mmap.mmap(self.descriptor, size, offset=start)

    def close(self) -> None:
        """Close the descriptor. Mapped parts stay valid."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _write_zeros(descriptor: int, start: int, size: int) -> None:
    """Reserve a part of a file on systems without a call for it. OSError if the disk is full."""
    end, zeros = start + size, bytes(1 << 16)
    while start < end:
        start += os.pwrite(descriptor, zeros[: end - start], start)


def give_back(mapping: mmap.mmap) -> None:
    """Return the memory of an unused part to the system, if the system supports it."""
    if hasattr(mmap, "MADV_REMOVE"):
        mapping.madvise(mmap.MADV_REMOVE)


def inherited(*descriptors: int) -> dict[str, Any]:
    """Return options of ``subprocess``: the child inherits descriptors, and gets no signals."""
    if os.name == "nt":
        return {}
    return {"pass_fds": descriptors, "start_new_session": True}


def give_socket(end: socket.socket, process: int) -> str:
    """Return a text from which a child takes over an inherited socket."""
    if hasattr(end, "share"):
        return base64.b64encode(end.share(process)).decode()
    return str(end.fileno())


def take_socket(given: str) -> socket.socket:
    """Return the socket for a text of :func:`give_socket`."""
    if given.isdigit():
        return socket.socket(fileno=int(given))
    fromshare: Any = getattr(socket, "fromshare")  # noqa: B009 - only Windows has it
    made: socket.socket = fromshare(base64.b64decode(given))
    return made


def end_with_parent() -> None:
    """Have the system kill this process when the thread that started it ends, if supported."""
    if sys.platform == "linux":
        ctypes = import_module("ctypes")
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 9)


def lower_priority(*, all_others: bool = False) -> None:
    """Lower the priority of the calling thread, or of the process's other threads. Linux only."""
    if sys.platform == "linux":
        own = threading.get_native_id()
        threads = [int(name) for name in os.listdir("/proc/self/task")] if all_others else [own]
        for thread in threads:
            if not (all_others and thread == own):
                os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)


def wait_for_end_of_parent(descriptor: int) -> None:
    """Wait until the other end of a pipe is closed or this process has another parent. Blocking."""
    parent = os.getppid()
    while True:
        if os.name != "nt" and not select.select([descriptor], [], [], 1.0)[0]:
            if os.getppid() != parent:
                return
        elif not os.read(descriptor, 1 << 10):
            return
