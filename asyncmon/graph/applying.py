"""The writes of a commit: in blocks that stay in the cache, on several cores where that pays."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.sharing import share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asyncmon.graph.plan import Update
    from asyncmon.graph.run_state import Run

__all__ = ["Call", "apply_all"]

Call = tuple["tuple[Update, ...]", list[Any], list[Any]]
"""Updates of one kind, the arrays they write, and the other inputs of their function."""

_BLOCK = 1 << 18  # elements: large enough that threads seldom meet at the interpreter's lock
_SHARED = 1 << 18  # elements: with fewer, other cores are not worth waking


def apply_all(calls: Sequence[Call], run: Run | None) -> None:
    """Write. The caller has turned floating point warnings off.

    Args:
        calls: what to write.
        run: gets its trace, if it wants one.
    """
    traced = run is not None and run.trace is not None
    blocks: list[partial[None]] = []
    total = 0
    for updates, arrays, inputs in calls:
        first, size = updates[0], arrays[0].size
        before = perf_counter() if traced else 0.0
        if not first.blockwise or size <= _BLOCK // 2:
            first.function(*arrays, *inputs)
        else:
            total += size
            blocks += _cut(first.function, arrays, inputs)
        if traced and run is not None:
            share(blocks)
            blocks, total = [], 0
            run.note(first.op, before, arrays)
            for update in updates[1:]:  # done along with the first
                run.note(update.op, perf_counter(), ())
    if total > _SHARED:
        share(blocks)
    else:
        for block in blocks:
            block()


def _cut(function: Any, arrays: list[Any], inputs: list[Any]) -> Iterator[partial[None]]:
    """Yield the calls for each block: inputs of the arrays' shape are cut as they are."""
    shape, size = arrays[0].shape, arrays[0].size
    arguments = [*arrays, *inputs]
    cut = [x.__class__ is np.ndarray and x.shape == shape for x in arguments]
    for at in range(0, size, _BLOCK):
        yield partial(
            function, *[x[at : at + _BLOCK] if c else x for x, c in zip(arguments, cut, strict=True)]
        )
