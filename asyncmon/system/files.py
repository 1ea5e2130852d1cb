"""Blocking calls, made in one place and never on the event loop's thread.

Everything that touches a disk goes through here: files are read by :func:`read_bytes`, lines of text
are written by :func:`append_lines`, anything else is a plain function handed to :func:`in_thread`. What
must be shown to survive any failing call is written through :class:`FileCalls`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import aiofiles
import anyio.to_thread

from asyncmon.system import portable
from asyncmon.system.cancellation import outlast

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BESIDE = ".asyncmon-"
"""How the names of files begin that are not in their place yet. A crash may leave them."""


async def in_thread(
    fn: Callable[[*Ts], T],
    *args: *Ts,
    lost: Callable[[T], object] | None = None,
    on_cancel: Callable[[], object] | None = None,
) -> T:
    """Run a blocking function in a worker thread and return what it returns.

    A cancelled caller still waits for the function, however often it is cancelled: when this leaves,
    nothing goes on behind the caller's back and the bytes of a file are whole.

    Args:
        fn: the function.
        *args: its arguments.
        lost: called with the result that a cancelled caller does not get, to close what was opened.
        on_cancel: called when the caller is cancelled, to make the function end early.
    """
    work = anyio.to_thread.run_sync(fn, *args)
    return await _to_the_end(asyncio.ensure_future(work), lost, on_cancel)


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
        del work  # else the traceback would keep its result alive, and what that holds open
        raise


async def in_thread_abandonable(fn: Callable[[*Ts], T], *args: *Ts) -> T:
    """Like :func:`in_thread`, but a cancelled caller leaves at once and the function goes on by itself.

    For a disk that may hang. The function must be safe to run behind everybody's back.
    """
    return await anyio.to_thread.run_sync(fn, *args, abandon_on_cancel=True)


async def read_bytes(path: str | os.PathLike[str], start: int = 0, count: int = -1) -> bytes:
    """Return up to ``count`` bytes of a file from a position on; all of them where it is -1."""

    async def read() -> bytes:
        async with aiofiles.open(path, "rb") as file:
            if start:
                await file.seek(start)
            return await file.read(count)

    # A read that is abandoned would leave the file open.
    return await _to_the_end(asyncio.ensure_future(read()))


async def append_lines(path: str | os.PathLike[str], lines: Iterable[str], *, sync: bool) -> None:
    """Append lines to a file; make it, with its directory, where it is missing.

    A last line that a crash has cut is ended first. Must not be cancelled: see
    :func:`~asyncmon.system.cancellation.shielded`.

    Args:
        path: the file.
        lines: without their line ends.
        sync: whether to return only when they are durable.
    """
    await make_dirs(Path(path).parent)
    async with aiofiles.open(path, "ab+") as file:
        if await file.tell():
            await file.seek(-1, os.SEEK_END)
            if await file.read(1) != b"\n":
                await file.write(b"\n")
        await file.write("".join(f"{line}\n" for line in lines).encode())
        if sync:
            await file.flush()
            await in_thread(os.fsync, file.fileno())


async def make_dirs(path: str | os.PathLike[str]) -> None:
    """Create a directory and its parents where they are missing."""
    await in_thread(lambda: Path(path).mkdir(parents=True, exist_ok=True))


def beside(name: str) -> str:
    """Return a fresh name for a file that is not in its place yet."""
    return f"{BESIDE}{os.urandom(4).hex()}-{name}"


class FileCalls:
    """The system calls with which durable files are written, one method each. Blocking, thread-safe.

    A subclass can fail, shorten or kill at each of them, so that a test of what a crash leaves behind
    runs the very code that a training run does. Every method raises :class:`OSError` as the system
    does.
    """

    def make_dirs(self, path: Path) -> None:
        """Create a directory and its parents where they are missing."""
        path.mkdir(parents=True, exist_ok=True)

    def open(self, path: Path, flags: int) -> int:
        """Return a new descriptor, which child processes do not inherit."""
        return portable.open_file(path, flags)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write bytes; return how many of them were taken."""
        return os.write(descriptor, data)

    def write_all(self, descriptor: int, data: bytes | memoryview) -> None:
        """Write bytes to the last one, by as many calls of :meth:`write` as it takes."""
        written = self.write(descriptor, data)
        while written < len(data):
            more = self.write(descriptor, data[written:])
            if more == 0:
                raise OSError(f"the file takes no more than {written} of {len(data)} bytes")
            written += more

    def truncate(self, descriptor: int, length: int) -> None:
        """Cut a file to a length and go on writing there."""
        os.ftruncate(descriptor, length)
        os.lseek(descriptor, length, os.SEEK_SET)

    def fsync(self, descriptor: int) -> None:
        """Make what was written, or a directory's entries, durable."""
        os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Make renames and deletions in a directory durable, by the methods above and below."""
        if portable.DIRECTORY is not None:
            descriptor = self.open(path, portable.DIRECTORY)
            try:
                self.fsync(descriptor)
            finally:
                self.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Give a descriptor back."""
        os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Rename within a directory, replacing the target, atomically."""
        portable.replace(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        os.unlink(path)

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory."""
        return os.listdir(path)

    def lock(self, descriptor: int) -> None:
        """Lock an open file exclusively, or raise BlockingIOError. See :func:`portable.lock`."""
        portable.lock(descriptor)

    def write_file(self, path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
        """Write a new file, durably but for its name in the directory; nothing of it on an error."""
        descriptor = self.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                for chunk in [data] if isinstance(data, bytes) else data:
                    self.write_all(descriptor, chunk)
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

    def put_files(self, directory: Path, files: Mapping[str, bytes]) -> None:
        """Put small files into their places, each whole, one after another, durably.

        Files of the directory that were written before are durable before the first one is in its
        place. After an error, some may be in their places. Relies on a rename within one directory
        being atomic, which POSIX promises of local file systems.
        """
        written = {name: directory / f"{beside(name)}.new" for name in files}
        try:
            for name, data in files.items():
                self.write_file(written[name], data)
            self.sync_directory(directory)
            for name, path in written.items():
                self.replace(path, directory / name)
            self.sync_directory(directory)
        except BaseException:
            for path in written.values():
                with contextlib.suppress(OSError):
                    self.unlink(path)
            raise
