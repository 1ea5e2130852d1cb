"""Paths and URLs of checkpoints, and the store behind each."""

from __future__ import annotations

import importlib
import os
import weakref
from typing import cast

from asyncmon.checkpoint.commit import clean_up
from asyncmon.checkpoint.directory_lock import DirectoryLock
from asyncmon.checkpoint.local_files import LocalFiles
from asyncmon.checkpoint.os_errors import op_errors
from asyncmon.checkpoint.store import Store
from asyncmon.system.files import FileCalls


def is_url(path: str) -> bool:
    """Return true for places in an object store, ``scheme://...``."""
    return "://" in path


def open_store(directory: str, calls: FileCalls | None = None) -> Store:
    """Return the store of a directory or URL. Nothing is read or made yet.

    Raises:
        ImportError: a URL needs the extra ``cloud``, which is not installed.
    """
    if is_url(directory):
        module = importlib.import_module("asyncmon.checkpoint.cloud")
        return cast("Store", module.ObjectStore(directory))
    return LocalFiles(directory, calls or FileCalls())


class Claims:
    """The directories that a saver saves into, and holds the locks of until it is closed.

    Args:
        calls: the system calls to write with; None for the system's own.
    """

    def __init__(self, calls: FileCalls | None) -> None:
        self._calls = calls or FileCalls()
        self._locks: set[DirectoryLock] = set()
        self._holder = object()
        weakref.finalize(self, _release, self._locks, self._holder)

    def open(self, directory: str) -> Store:
        """Return the store of a directory, which need not be claimed."""
        return open_store(directory, self._calls)

    def has_plain_files(self, directory: str) -> bool:
        """Return whether any process of this machine writes a file of a directory as this one does."""
        return not is_url(directory) and type(self._calls) is FileCalls

    def claim(self, directory: str) -> None:
        """Make a directory, lock other processes out and clean up after a crash. Blocking.

        Raises:
            FailedPreconditionError: another process saves there.
            OpError: the directory cannot be made or written.
        """
        store = self.open(directory)
        with op_errors(f"Checkpoints cannot be saved into {store.directory!r}", store.describe):
            store.make()
            store.lock.acquire(self._holder, self._calls, lambda: clean_up(store))
        self._locks.add(store.lock)

    def release(self) -> None:
        """Let other processes save there."""
        _release(self._locks, self._holder)


def _release(locks: set[DirectoryLock], holder: object) -> None:
    while locks:
        locks.pop().release(holder)


def split(prefix: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the directory and the base name of a checkpoint's prefix."""
    prefix = os.fspath(prefix)
    if is_url(prefix):
        directory, _, basename = prefix.rpartition("/")
        return directory, basename
    directory, basename = os.path.split(prefix)
    return directory or ".", basename


def join(directory: str, path: str) -> str:
    """Return the path of a state file's entry: relative ones are in its directory."""
    if is_url(path) or os.path.isabs(path):
        return path
    if is_url(directory):
        return f"{directory.rstrip('/')}/{path}"
    return os.path.join(directory, path)


def relative(directory: str, path: str) -> str:
    """Return a path as a state file in this directory has it, so that the directory can be moved."""
    if is_url(path):
        inside = path.removeprefix(f"{directory.rstrip('/')}/")
        return inside if "://" not in inside else path
    if os.path.isabs(directory) and not os.path.isabs(path):
        return path
    return os.path.relpath(path, directory)


def identity(path: str) -> str:
    """Return one text for all paths of a checkpoint: relative, absolute, through links. Blocking."""
    if is_url(path):
        return path
    directory, basename = split(path)
    return os.path.join(os.path.realpath(directory), basename)


def absolute(path: str) -> str:
    """Return a path that means the same in every working directory."""
    return path if is_url(path) else os.path.abspath(path)
