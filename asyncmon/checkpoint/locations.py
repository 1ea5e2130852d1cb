"""Where checkpoints lie: paths and URLs, and the store behind each."""

from __future__ import annotations

import importlib
import os
import weakref
from typing import TYPE_CHECKING, cast

from asyncmon.checkpoint.local import LocalStore
from asyncmon.files import FileCalls

if TYPE_CHECKING:
    from asyncmon.checkpoint.store import Store

OS_CALLS = FileCalls()
"""The system's own calls; tests pass others."""


def is_url(path: str) -> bool:
    """Return true for places in an object store, ``scheme://...``."""
    return "://" in path


def open_store(directory: str, calls: FileCalls = OS_CALLS) -> Store:
    """Return the store of a directory or URL. Nothing is read or made yet.

    Raises:
        ImportError: a URL needs the extra ``cloud``, which is not installed.
    """
    if is_url(directory):
        cloud = importlib.import_module("asyncmon.checkpoint.cloud")
        return cast("Store", cloud.ObjectStore(directory))
    return LocalStore(directory, calls)


class Claims:
    """The directories that a saver saves into, which are its own until they are released.

    Args:
        calls: the system calls to write with.
    """

    def __init__(self, calls: FileCalls) -> None:
        self._calls = calls
        self._stores: dict[str, Store] = {}
        weakref.finalize(self, _release, self._stores)

    def store(self, directory: str) -> Store:
        """Return a directory's store, which may be claimed."""
        if directory not in self._stores:
            self._stores[directory] = open_store(directory, self._calls)
        return self._stores[directory]

    def release(self) -> None:
        """Let other processes save there."""
        _release(self._stores)


def _release(stores: dict[str, Store]) -> None:
    while stores:
        stores.popitem()[1].release_nowait()


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


def absolute(path: str) -> str:
    """Return a path that means the same in every working directory."""
    return path if is_url(path) else os.path.abspath(path)
