"""Whole files in a graph: ``tf.read_file``, ``tf.matching_files``."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.checkpoint.os_errors import error_class
from asyncmon.errors import AlreadyExistsError
from asyncmon.system.files import in_thread

__all__ = ["matching_files", "read_file"]


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Raise an OSError of the block as TF1's OpError, with the file's name."""
    try:
        yield
    except OSError as error:
        cls = AlreadyExistsError if isinstance(error, FileExistsError) else error_class(error)
        raise cls(f"{error.filename or path}; {error.strerror or error}") from error


def read_file(filename: Any, name: str | None = None) -> g.Tensor:
    """Return the bytes of a file, a string scalar. TF1: ``tf.read_file``.

    The run reads the file in a worker thread; NotFoundError if it does not exist.
    """
    return g.create_op("ReadFile", (filename,), None, name)


def matching_files(pattern: Any, name: str | None = None) -> g.Tensor:
    """Return the sorted names of matching files, a string vector. TF1: ``tf.matching_files``.

    ``pattern`` is a string scalar or vector; ``*``, ``?`` and ``[...]`` do not match ``/``.
    """
    if isinstance(pattern, list | tuple) and not pattern:
        pattern = g.constant([], g.string)
    return g.create_op("MatchingFiles", (pattern,), None, name)


def bytes_of(value: Any) -> bytes:
    """Return the bytes in a string scalar."""
    item = value.item() if isinstance(value, np.ndarray) else value
    return item if isinstance(item, bytes) else str(item).encode()


def _read(filename: Any) -> bytes:
    path = bytes_of(filename).decode()
    with file_errors(path):
        return Path(path).read_bytes()


def _matching(patterns: Any) -> Any:
    found: set[bytes] = set()
    for one in np.ravel(patterns):
        pattern = bytes_of(one).decode()
        fixed = re.split(r"[*?\[\\]", pattern)[0]
        where = "" if os.path.dirname(fixed) else "./"
        found.update(f"{where}{path}".encode() for path in glob.glob(pattern, include_hidden=True))
    return np.array(sorted(found), object)


def _read_rule(filename: g.Spec) -> g.Spec:
    if filename.dtype is not g.string or filename.shape not in (None, ()):
        raise ValueError(f"The name of a file is a string scalar, got {filename}.")
    return g.Spec(g.string, ())


def _matching_rule(pattern: g.Spec) -> g.Spec:
    if pattern.dtype is not g.string or (pattern.shape is not None and len(pattern.shape) > 1):
        raise ValueError(f"A pattern is a string scalar or vector, got {pattern}.")
    return g.Spec(g.string, (None,))


def _in_thread(kernel: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda _run, _op, value: in_thread(kernel, value)


g.register(g.AwaitedOpDef("ReadFile", _in_thread(_read), _read_rule, nowait=True))
g.register(g.AwaitedOpDef("MatchingFiles", _in_thread(_matching), _matching_rule, nowait=True))
