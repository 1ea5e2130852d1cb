"""The kinds of a queue, and where each of them runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Literal, NamedTuple

from asyncmon.jobs.execution import Kind
from asyncmon.system.children import source_of

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
        source_of(fn, ", or pass executor='inline'")
    return KindSpec(fn, executor)


def uses_torch(namespace: Mapping[str, Any]) -> bool:
    """Return whether a module has imported torch, or something of it, by its names."""
    return any(
        (value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", "")))
        .partition(".")[0] == "torch"
        for value in list(namespace.values())
    )  # fmt: skip
