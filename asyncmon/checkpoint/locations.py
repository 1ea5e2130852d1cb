"""Paths and URLs of checkpoints and directories."""

from __future__ import annotations

import importlib
import os
from typing import cast

from asyncmon.checkpoint.store import LocalFiles, Store
from asyncmon.system.files import FileCalls, system_calls
from asyncmon.system.urls import is_url


def open_store(directory: str, calls: FileCalls | None = None) -> Store:
    """Return the store of a directory or URL, without reading or making anything.

    Raises:
        ImportError: a URL needs the extra ``cloud``.
    """
    if is_url(directory):
        module = importlib.import_module("asyncmon.checkpoint.cloud")
        return cast("Store", module.ObjectStore(directory))
    return LocalFiles(directory, calls or system_calls.get())


def split(prefix: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the directory and the base name of a checkpoint's prefix."""
    prefix = os.fspath(prefix)
    if is_url(prefix):
        directory, _, basename = prefix.rpartition("/")
        return directory, basename
    directory, basename = os.path.split(prefix)
    return directory or ".", basename


def join(directory: str, path: str) -> str:
    """Resolve a path in the state file of a directory."""
    if is_url(path) or os.path.isabs(path):
        return path
    if is_url(directory):
        return f"{directory.rstrip('/')}/{path}"
    return os.path.join(directory, path)


def spelled(prefix: str) -> str:
    """Return the directory of a checkpoint's prefix as it is written there; "" for none."""
    return split(prefix)[0] if is_url(prefix) else os.path.split(prefix)[0]


def relative(directory: str, path: str) -> str:
    """Return a path relative to a directory, for a state file that can be moved."""
    if is_url(path):
        inside = path.removeprefix(f"{directory.rstrip('/')}/")
        return inside if not is_url(inside) else path
    if os.path.isabs(directory) and not os.path.isabs(path):
        return path
    return os.path.relpath(path, directory)


def identity(path: str) -> str:
    """Return one string for all paths of a checkpoint, relative or by links. Blocking."""
    if is_url(path):
        return path
    directory, basename = split(path)
    return os.path.join(os.path.realpath(directory), basename)


def own_path(directory: str, path: str) -> str | None:
    """Return a checkpoint's path as ``directory/name``; None if it is elsewhere. Blocking."""
    own = join(directory, split(path)[1])
    return own if identity(own) == identity(path) else None


def resolved(directory: str | os.PathLike[str]) -> str:
    """Return a directory without links, or a URL without a slash at its end. Blocking."""
    path = os.fspath(directory)
    return path.rstrip("/") if is_url(path) else os.path.realpath(path)


def absolute(path: str) -> str:
    """Return a path that does not depend on the working directory."""
    return path if is_url(path) else os.path.abspath(path)
