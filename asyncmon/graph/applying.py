"""The writes of a commit: in blocks that stay in the cache, on several cores where that pays."""

from __future__ import annotations

import os
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from asyncmon.graph.plan import Update
    from asyncmon.graph.run_state import Run

__all__ = ["Call", "apply_all"]

Call = tuple["tuple[Update, ...]", list[Any], list[Any]]
"""Updates of one kind, the arrays they write, and the other inputs of their function."""

_BLOCK = 1 << 18  # elements: large enough that threads seldom meet at the interpreter's lock
_SHARED = 1 << 19  # elements: with fewer, other cores are not worth waking
_HELPERS = max(0, len(os.sched_getaffinity(0)) - 1) if hasattr(os, "sched_getaffinity") else 1


def apply_all(calls: Sequence[Call], run: Run | None, helpers: Executor | None) -> None:
    """Write. The caller has turned floating point warnings off.

    Args:
        calls: what to write.
        run: gets its trace, if it wants one.
        helpers: threads that may take a share of large arrays.
    """
    blocks: deque[tuple[Any, list[Any]]] = deque()
    traced = run is not None and run.trace is not None
    total = 0
    for updates, arrays, inputs in calls:
        function, size = updates[0].function, arrays[0].size
        before = perf_counter() if traced else 0.0
        if not updates[0].blockwise or size <= _BLOCK:
            function(*arrays, *inputs)
        elif traced:
            _drain(deque(_cut(function, arrays, inputs)))
        else:
            total += size
            blocks += _cut(function, arrays, inputs)
        if run is not None and traced:
            run.note(updates[0].op, before, arrays)
            for update in updates[1:]:  # done along with the first
                run.note(update.op, perf_counter(), ())
    if blocks:
        _share(blocks, helpers if total > _SHARED else None)


def _cut(function: Any, arrays: list[Any], inputs: list[Any]) -> list[tuple[Any, list[Any]]]:
    """Return the calls for each block: inputs of the arrays' shape are cut as they are."""
    shape, size = arrays[0].shape, arrays[0].size
    arguments = [*arrays, *inputs]
    cut = [x.__class__ is np.ndarray and x.shape == shape for x in arguments]
    return [
        (function, [x[at : at + _BLOCK] if c else x for x, c in zip(arguments, cut, strict=True)])
        for at in range(0, size, _BLOCK)
    ]


def _share(blocks: deque[tuple[Any, list[Any]]], helpers: Executor | None) -> None:
    """Work on blocks together with other threads: whoever is free takes the next one."""
    count = min(_HELPERS, len(blocks) - 1) if helpers is not None else 0
    shares = [helpers.submit(_drain, blocks) for _ in range(count)] if helpers is not None else []
    try:
        _drain(blocks)
    finally:
        blocks.clear()
        for share in shares:
            if not share.cancel():  # one that has not begun, for all threads are busy, is not needed
                share.result()


@np.errstate(all="ignore")
def _drain(blocks: deque[tuple[Any, list[Any]]]) -> None:
    while True:
        try:
            function, arguments = blocks.popleft()
        except IndexError:
            return
        function(*arguments)
