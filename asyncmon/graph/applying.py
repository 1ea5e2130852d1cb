"""The writes of a commit: in blocks that stay in the cache, on several cores where that pays."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon.graph.sharing import CORES, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncmon.graph.plan import Update
    from asyncmon.graph.run_state import Run

__all__ = ["Call", "Copy", "apply_all"]

Copy = tuple[Any, Any]
"""An array to be filled, and the one of the same shape that is copied into it."""


class Call(NamedTuple):
    """Updates of one kind, done by one function.

    Attributes:
        updates: which.
        arrays: what they write.
        inputs: what else their function takes.
        copies: those of ``arrays`` that get their content from another one first.
    """

    updates: tuple[Update, ...]
    arrays: list[Any]
    inputs: list[Any]
    copies: Sequence[Copy] = ()


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
    for call in calls:
        updates, arrays, inputs, copies = call
        first, size = updates[0], arrays[0].size
        before = perf_counter() if traced else 0.0
        if not first.blockwise or size <= _BLOCK // 2:
            _update(copies, first.function, *arrays, *inputs)
        else:
            total += size
            blocks += _cut(call)
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


def _cut(call: Call) -> Iterator[partial[None]]:
    """Yield what is to be done for each block: inputs of the arrays' shape are cut as they are."""
    function, arrays = call.updates[0].function, call.arrays
    shape, size = arrays[0].shape, arrays[0].size
    arguments = [*arrays, *call.inputs]
    cut = [x.__class__ is np.ndarray and x.shape == shape for x in arguments]
    blocks = -(-size // _BLOCK)
    step = -(-size // (-(-blocks // CORES) * CORES))  # as many for each core, all of one size
    for at in range(0, size, step):
        block = slice(at, at + step)
        yield partial(
            _update,
            [(new[block], old[block]) for new, old in call.copies],
            function,
            *[x[block] if c else x for x, c in zip(arguments, cut, strict=True)],
        )


def _update(copies: Sequence[Copy], function: Callable[..., None], *arguments: Any) -> None:
    """Copy and update: what was copied is in the cache then, and is not fetched from memory again."""
    for new, old in copies:
        np.copyto(new, old)
    function(*arguments)
