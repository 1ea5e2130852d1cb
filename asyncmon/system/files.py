"""Blocking file operations, in worker threads.

All access to disks uses this module. aiofiles carries the small files that are on no data path and
need not be durable: :func:`read_bytes`, :func:`write_bytes`, :func:`list_names`. :func:`in_thread` runs
other blocking functions. Durable files are written through :class:`FileCalls`, whose calls tests can
make fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import aiofiles
import aiofiles.os
import anyio.to_thread

from asyncmon.system import clock, portable
from asyncmon.system.cancellation import outlast
from asyncmon.system.process_local import ProcessLocal

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_LARGEST = 1 << 30
_PAUSES_SECS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.3)
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
_PASSING = _SHORT | {
    errno.EIO, errno.ESTALE, errno.EINTR, errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT,
    errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
}  # fmt: skip

BESIDE = ".asyncmon-"
"""The prefix of temporary files, which are renamed when they are complete. A crash may leave them."""

run_sync: ProcessLocal[Callable[..., Awaitable[Any]]] = ProcessLocal(lambda: anyio.to_thread.run_sync)
"""Calls a blocking function in a thread of this process. See :func:`anyio.to_thread.run_sync`."""


async def in_thread(
    fn: Callable[[*Ts], T],
    *args: *Ts,
    lost: Callable[[T], object] | None = None,
    on_cancel: Callable[[], object] | None = None,
) -> T:
    """Run a blocking function in a worker thread and return its result.

    A cancelled caller still waits for the function, after any number of cancellations: when this call
    ends, the function has ended, and a file that it writes is complete.

    Args:
        fn: the function.
        *args: its arguments.
        lost: called with the result if the caller was cancelled, for example to close a file.
        on_cancel: called when the caller is cancelled, to make the function end early.
    """
    return await _to_the_end(asyncio.ensure_future(_worker(fn, *args)), lost, on_cancel)


async def _to_the_end(
    work: asyncio.Future[T],
    lost: Callable[[T], object] | None = None,
    on_cancel: Callable[[], object] | None = None,
) -> T:
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
        await outlast(work)
        # The exception is retrieved in any case: asyncio logs errors that are not.
        if not work.cancelled() and work.exception() is None and lost is not None:
            lost(work.result())
        del work  # else the traceback would keep the result alive, for example an open file
        raise


async def in_thread_abandonable(fn: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run a blocking function in a worker thread; a cancelled caller abandons it.

    For a disk that may hang. The function may still run after the caller has ended.
    """
    return await _worker(fn, *args, abandon=True)


async def _worker(fn: Callable[[*Ts], T], *args: *Ts, abandon: bool = False) -> T:
    result: T = await run_sync.get()(fn, *args, abandon_on_cancel=abandon)
    return result


async def read_bytes(path: str | os.PathLike[str], start: int = 0, count: int = -1) -> bytes:
    """Return up to ``count`` bytes of a file from a position; all of them if it is -1."""

    async def read() -> bytes:
        async with aiofiles.open(path, "rb") as file:
            if start:
                await file.seek(start)
            return await file.read(count)

    # An abandoned read would leave the file open.
    return await _to_the_end(asyncio.ensure_future(read()))


async def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file, which is created with its directory if it is missing. A crash may lose it."""

    async def write() -> None:
        await aiofiles.os.makedirs(Path(path).parent, exist_ok=True)
        async with aiofiles.open(path, "wb") as file:
            await file.write(data)

    await _to_the_end(asyncio.ensure_future(write()))


async def list_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names in a directory, sorted."""
    return sorted(await aiofiles.os.listdir(path))


def patiently(call: Callable[[*Ts], T], *args: *Ts, errors: Collection[int] = _PASSING) -> T:
    """Read, and read again for a second after an error that may pass. Blocking.

    The called function must open the file again, as its descriptor may be stale.

    Args:
        call: reads.
        *args: its arguments.
        errors: the numbers of errors after which to try again. Not BlockingIOError: a lock is taken.

    Raises:
        OSError: the last attempt failed.
    """
    # A network file system reports a file that another host has replaced (ESTALE), a disk or a network
    # a short failure, the system a lack of descriptors or memory. None says anything about the file.
    for pause in _PAUSES_SECS:
        try:
            return call(*args)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in errors:
                raise
        portable.pause(pause)
    return call(*args)


class NotRegularFileError(OSError):
    """A directory, pipe, socket or device is in the place of a file."""


async def append_lines(path: str | os.PathLike[str], lines: Iterable[str], *, sync: bool) -> None:
    """Append lines to a file, which is created with its directory if it is missing.

    A last line that a crash has truncated is ended first. Must not be cancelled: see
    :func:`~asyncmon.system.cancellation.shielded`.

    Args:
        path: the file.
        lines: without their line ends.
        sync: return when the lines are durable.
    """
    data = "".join(f"{line}\n" for line in lines).encode()
    await in_thread(system_calls.get().append, Path(path), data, sync)


def is_file_name(name: object) -> bool:
    """Return whether this is the name of a file in a directory, and no path out of it."""
    if not isinstance(name, str) or name in {"", os.curdir, os.pardir}:
        return False
    return not any(one in name for one in (os.sep, os.altsep or os.sep, "/", "\0"))


def beside(name: str) -> str:
    """Return the name of a temporary file beside its target."""
    return f"{BESIDE}{clock.random_bytes(4).hex()}-{name}"


class FileCalls:
    """The system calls for durable files, one method each. Blocking, thread-safe.

    A test can subclass it to cause a crash, an error or a short write at each call. Every method
    raises the :class:`OSError` of the system.
    """

    def make_dirs(self, path: Path) -> None:
        """Create a directory and its missing parents durably."""
        missing = [one for one in (path, *path.parents) if not self.exists(one)]
        self.make_dirs_nowait(path)
        for one in missing:
            self.sync_directory(one.parent)

    def make_dirs_nowait(self, path: Path) -> None:
        """Create a directory and its missing parents, which a crash may lose."""
        path.mkdir(parents=True, exist_ok=True)

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or directory."""
        return path.exists()

    def stat(self, path: Path) -> os.stat_result:
        """Return the facts of the file at a path."""
        return os.stat(path)

    def fstat(self, descriptor: int) -> os.stat_result:
        """Return the facts of an open file."""
        return os.fstat(descriptor)

    def open(self, path: Path, flags: int) -> int:
        """Return a new descriptor that child processes do not inherit."""
        return portable.open_file(path, flags)

    def open_patiently(self, path: Path, flags: int) -> int:
        """Return :meth:`open`, tried again while there are no descriptors or no memory."""
        return patiently(self.open, path, flags, errors=_SHORT)

    def open_regular(self, path: Path) -> int:
        """Return a new descriptor to read a regular file. Never waits for a pipe. Call it patiently.

        Raises:
            NotRegularFileError: the path is not that of a regular file.
            OSError: any other error of the system.
        """
        try:
            descriptor = self.open(path, os.O_RDONLY | portable.NO_WAIT)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            raise NotRegularFileError(
                error.errno, "not a regular file", str(path)
            ) from error  # a socket
        try:
            mode = self.fstat(descriptor).st_mode
        except BaseException:
            self.close_read(descriptor)
            raise
        if not stat.S_ISREG(mode):
            self.close_read(descriptor)
            reason = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "not a regular file"
            raise NotRegularFileError(errno.EISDIR, reason, str(path))
        return descriptor

    def content(self, path: Path, begins: bytes = b"") -> bytes:
        """Return the content of a regular file of at most a GiB, see :func:`patiently`.

        Args:
            path: the file.
            begins: return only the first bytes of a file that does not begin with these.

        Raises:
            NotRegularFileError: the path is not that of a regular file.
            OSError: the file is too large, or any other error of the system.
        """
        return patiently(self._content, path, begins)

    def _content(self, path: Path, begins: bytes) -> bytes:
        descriptor = -1
        try:
            descriptor = self.open_regular(path)
            head = self.read(descriptor, 0, len(begins))
            if head != begins:
                return head
            if (size := self.fstat(descriptor).st_size) > _LARGEST:
                raise OSError(errno.EFBIG, f"{size} bytes, of at most {_LARGEST}", str(path))
            return self.read(descriptor, 0, size)
        except OSError as error:
            error.filename = error.filename or str(path)  # a read does not name its file
            raise
        finally:
            if descriptor >= 0:
                self.close_read(descriptor)

    def read(self, descriptor: int, start: int, count: int) -> bytes:
        """Return up to ``count`` bytes of an open file from a position."""
        buffer = bytearray(count)
        done = 0
        while done < count:
            more = self.read_at(descriptor, memoryview(buffer)[done:], start + done)
            if more == 0:
                break
            done += more
        return bytes(buffer[:done])

    def read_at(self, descriptor: int, buffer: memoryview, position: int) -> int:
        """Read into a buffer from a position of a file, and return the number of bytes read."""
        return portable.read_at(descriptor, buffer, position)

    def map(self, descriptor: int) -> mmap.mmap | bytes:
        """Return the content of an open file that is not empty, in memory and read-only."""
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)

    def append(self, path: Path, data: bytes, sync: bool) -> None:
        """Append lines to a file, see :func:`append_lines`."""
        self.make_dirs_nowait(path.parent)
        descriptor = self.open_patiently(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            size = self.fstat(descriptor).st_size
            if size and self.read(descriptor, size - 1, 1) != b"\n":
                data = b"\n" + data
            self.write_all(descriptor, data)
            if sync:
                self.fsync(descriptor)
        finally:
            self.close(descriptor)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write bytes and return the number written."""
        return os.write(descriptor, data)

    def write_all(self, descriptor: int, data: bytes | memoryview) -> None:
        """Write all bytes, by repeated calls of :meth:`write`."""
        written = self.write(descriptor, data)
        while written < len(data):
            more = self.write(descriptor, data[written:])
            if more == 0:
                raise OSError(f"the file takes no more than {written} of {len(data)} bytes")
            written += more

    def truncate(self, descriptor: int, length: int) -> None:
        """Truncate a file and seek to its end."""
        os.ftruncate(descriptor, length)
        os.lseek(descriptor, length, os.SEEK_SET)

    def fsync(self, descriptor: int) -> None:
        """Make the contents of a file, or the entries of a directory, durable."""
        os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Make renames and deletions in a directory durable."""
        if portable.DIRECTORY is not None:
            descriptor = self.open_patiently(path, portable.DIRECTORY)
            try:
                self.fsync(descriptor)
            finally:
                self.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a descriptor. An error reports a failed write; the descriptor is closed even so."""
        os.close(descriptor)

    def close_read(self, descriptor: int) -> None:
        """Close the descriptor of a file that was read: an error says nothing about the data."""
        with contextlib.suppress(OSError):
            self.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Rename within a directory atomically, replacing the target."""
        portable.replace(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        os.unlink(path)

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory."""
        return os.listdir(path)

    def lock(self, descriptor: int, *, shared: bool = False) -> None:
        """Lock an open file, or raise BlockingIOError. See :func:`portable.lock`."""
        portable.lock(descriptor, shared=shared)

    def unlock(self, descriptor: int) -> None:
        """Release the lock of an open file."""
        portable.unlock(descriptor)

    def write_file(
        self, path: Path, data: bytes | Iterable[bytes | memoryview], durable: bool = True
    ) -> None:
        """Write a new file durably, except for its directory entry. An error removes the file."""
        descriptor = self.open_patiently(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                for chunk in [data] if isinstance(data, bytes) else data:
                    self.write_all(descriptor, chunk)
                if durable:
                    self.fsync(descriptor)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.close(descriptor)
                raise
            self.close(descriptor)  # may report a write error too
        except BaseException:
            with contextlib.suppress(OSError):
                self.unlink(path)
            raise

    def put_files(self, directory: Path, files: Mapping[str, bytes], *, durable: bool = True) -> None:
        """Write small files durably, each replaced atomically, one after another.

        Earlier entries of the directory are durable before the first file is replaced. An error may
        leave some of the files replaced. Relies on atomic renames within a directory, which POSIX
        guarantees for local file systems. Not ``durable``: a crash of the machine may lose them.
        """
        written = {name: directory / f"{beside(name)}.new" for name in files}
        try:
            for name, data in files.items():
                self.write_file(written[name], data, durable)
            if durable:
                self.sync_directory(directory)
            for name, path in written.items():
                self.replace(path, directory / name)
                if durable:
                    self.sync_directory(directory)
        except BaseException:
            for path in written.values():
                with contextlib.suppress(OSError):
                    self.unlink(path)
            raise


system_calls: ProcessLocal[FileCalls] = ProcessLocal(FileCalls)
"""The calls of this process, unless an object has its own."""
