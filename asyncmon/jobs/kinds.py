"""The kinds of a queue, and where each of them runs."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Literal, NamedTuple

from asyncmon.jobs.execution import Kind

Executor = Literal["inline", "process"]


class KindSpec(NamedTuple):
    """A registered kind."""

    fn: Kind
    executor: Executor


def kind_spec(fn: Any, executor: Executor | None) -> KindSpec:
    """Return a kind with its executor, see ``JobQueue.kind``.

    Raises:
        TypeError: it is no ``async def`` function.
        ValueError: the executor is unknown, or a child process cannot import the function.
    """
    if not inspect.iscoroutinefunction(fn):
        raise TypeError(f"A kind is an `async def` function of one argument, got {fn!r}.")
    if executor not in ("inline", "process", None):
        raise ValueError(f"executor must be 'inline', 'process' or None, got {executor!r}.")
    if executor is None:
        executor = "process" if uses_torch(fn.__globals__) else "inline"
    if executor == "process":
        if "<" in fn.__qualname__:
            raise ValueError(
                f"The kind {fn.__qualname__!r} is inside of a function, and a child process cannot"
                " import it. Move it to the top level of its module, or pass executor='inline'."
            )
        source_of(fn)
    return KindSpec(fn, executor)


def uses_torch(namespace: Mapping[str, Any]) -> bool:
    """Return whether a module has imported torch, or something of it, by its names."""
    return any(
        (value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", "")))
        .partition(".")[0] == "torch"
        for value in list(namespace.values())
    )  # fmt: skip


class Source(NamedTuple):
    """Where a child process finds a kind."""

    module: str | None
    path: str | None
    """The file of a program, which has no name to import."""
    function: str


def source_of(fn: Any) -> Source:
    """Return where a child process finds a kind.

    Raises:
        ValueError: its module is a notebook or an interactive one.
    """
    module: Any = sys.modules.get(fn.__module__)
    if fn.__module__ != "__main__":
        return Source(fn.__module__, None, fn.__qualname__)
    spec = getattr(module, "__spec__", None)
    if spec is not None:  # python -m
        return Source(spec.name, None, fn.__qualname__)
    path = getattr(module, "__file__", None)
    if path is None:
        raise ValueError(
            f"The kind {fn.__qualname__!r} is in no file that a child process can import. Move it to a"
            " module, or pass executor='inline'."
        )
    return Source(None, os.path.abspath(path), fn.__qualname__)
