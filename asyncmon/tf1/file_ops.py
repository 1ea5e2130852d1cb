"""Whole files in a graph: ``tf.read_file``, ``tf.write_file``, ``tf.matching_files``."""

from __future__ import annotations

import glob
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon import graph as g
from asyncmon.checkpoint.os_errors import error_class
from asyncmon.errors import AlreadyExistsError
from asyncmon.files import beside, in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Raise the OSError of a block as the OpError that TF1 raises, with the file's name."""
    try:
        yield
    except OSError as error:
        cls = AlreadyExistsError if isinstance(error, FileExistsError) else error_class(error)
        raise cls(f"{error.filename or path}; {error.strerror or error}") from error


def read_file(filename: Any, name: str | None = None) -> g.Tensor:
    """Return the bytes of a file, a string scalar. TF1: ``tf.read_file``. Read in a worker thread.

    In the run: NotFoundError where there is no such file.
    """
    return g.create_op("ReadFile", (filename,), None, name)


def write_file(filename: Any, contents: Any, name: str | None = None) -> g.Operation:
    """Return an operation that writes a file, with its directories. TF1: ``tf.write_file``.

    It is written beside and then renamed, in a worker thread. It stays where the run fails later on.
    """
    return g.create_operation("WriteFile", (filename, contents), None, name)


def matching_files(pattern: Any, name: str | None = None) -> g.Tensor:
    """Return the names of the files that match, sorted, a string vector. TF1: ``tf.matching_files``.

    Patterns are a string scalar or vector; their ``*``, ``?`` and ``[...]`` match no ``/``.
    """
    return g.create_op("MatchingFiles", (pattern,), None, name)


def bytes_of(value: Any) -> bytes:
    """Return the bytes in a string scalar."""
    item = value.item() if isinstance(value, np.ndarray) else value
    return item if isinstance(item, bytes) else str(item).encode()


def _path_of(value: Any) -> str:
    return bytes_of(value).decode()


def _read(path: str) -> bytes:
    with file_errors(path):
        return Path(path).read_bytes()


def _write(path: str, contents: Any) -> None:
    target = Path(path)
    with file_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        written = target.with_name(beside(target.name))
        written.write_bytes(bytes_of(contents))
        written.replace(target)


def _matching(patterns: Any) -> Any:
    found: set[bytes] = set()
    for one in np.ravel(patterns):
        pattern = _path_of(one)
        fixed = re.split(r"[*?\[\\]", pattern)[0]
        where = "" if os.path.dirname(fixed) else "./"
        found.update(f"{where}{path}".encode() for path in glob.glob(pattern, include_hidden=True))
    return np.array(sorted(found), object)


async def _read_file(run: Any, op: Any, filename: Any) -> bytes:
    return await in_thread(_read, _path_of(filename))


async def _write_file(run: Any, op: Any, filename: Any, contents: Any) -> None:
    await in_thread(_write, _path_of(filename), contents)


async def _matching_files(run: Any, op: Any, patterns: Any) -> Any:
    return await in_thread(_matching, patterns)


def _rule(*outputs: g.Spec, most: int = 0) -> Any:
    """Return a rule: inputs are strings, of so many dimensions at most."""

    def check(*inputs: g.Spec) -> Any:
        for spec in inputs:
            if spec.dtype is not g.string or (spec.shape is not None and len(spec.shape) > most):
                kind = "scalar or vector" if most else "scalar"
                raise ValueError(f"Names, patterns and contents are a string {kind}, got {spec}.")
        return outputs

    return check


g.register(g.AwaitedOpDef("ReadFile", _read_file, _rule(g.Spec(g.string, ())), nowait=True))
g.register(g.AwaitedOpDef("WriteFile", _write_file, _rule(), nowait=True, changes=True))
_names = _rule(g.Spec(g.string, (None,)), most=1)
g.register(g.AwaitedOpDef("MatchingFiles", _matching_files, _names, nowait=True))
