"""Paths and URLs of checkpoints, and the store behind each."""

from __future__ import annotations

import importlib
import os
from typing import cast

from asyncmon.checkpoint.local_files import LocalFiles
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


def own_path(directory: str, path: str) -> str | None:
    """Return the path of a checkpoint below ``directory``; None if it is in another one. Blocking."""
    own = join(directory, split(path)[1])
    return own if identity(own) == identity(path) else None


def absolute(path: str) -> str:
    """Return a path that means the same in every working directory."""
    return path if is_url(path) else os.path.abspath(path)
