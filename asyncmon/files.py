"""Blocking calls, made in one place and never on the event loop's thread.

Everything that touches a disk goes through here: small whole files by :func:`read_bytes` and
:func:`write_atomic`, anything longer as a plain function handed to :func:`in_thread`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import aiofiles
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["fsync_dir", "in_thread", "make_dirs", "read_bytes", "replace_file", "write_atomic"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def in_thread(fn: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run a blocking function in a worker thread and return what it returns.

    A cancelled caller still waits for the function: the bytes of a file are whole when this leaves.
    """
    return await anyio.to_thread.run_sync(fn, *args)


async def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the whole content of a small file."""
    async with aiofiles.open(path, "rb") as file:
        return await file.read()


async def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a small file by new content, whole or not at all. See :func:`replace_file`."""
    await in_thread(replace_file, Path(path), data)


async def make_dirs(path: str | os.PathLike[str]) -> None:
    """Create a directory and its parents where they are missing."""
    await in_thread(lambda: Path(path).mkdir(parents=True, exist_ok=True))


def replace_file(path: Path, data: bytes) -> None:
    """Write beside, fsync, rename, fsync the directory. Blocking: call it in a worker thread.

    Relies on rename within one directory being atomic, which POSIX promises of local filesystems.
    """
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    fsync_dir(path.parent)


def fsync_dir(directory: Path) -> None:
    """Make renames and deletions in a directory durable. Blocking."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
