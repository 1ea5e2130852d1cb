"""The writes of a commit: in blocks that stay in the cache, on several cores where that pays."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon.graph.kernels.parallel import CORES, parallel_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncmon.graph.execution.plan import Update
    from asyncmon.graph.execution.run_state import Run

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

    def make(self) -> None:
        """Do it: what was copied is in the cache then, and is not fetched again."""
        for new, old in self.copies:
            np.copyto(new, old)
        self.updates[0].function(*self.arrays, *self.inputs)


_BLOCK = 1 << 18  # elements: large enough that threads seldom meet at the interpreter's lock
_SHARED = 1 << 18  # elements: with fewer, other cores are not worth waking


def apply_all(calls: Sequence[Call], run: Run | None) -> None:
    """Write. The caller has turned floating point warnings off.

    Args:
        calls: what to write.
        run: gets its trace, if it wants one.
    """
    if run is not None and run.trace is not None:
        for call in calls:
            _traced(call, run)
        return
    if len(calls) == 1 and calls[0].arrays[0].size <= _BLOCK // 2:
        calls[0].make()
        return
    blocks: list[Callable[[], None]] = []
    total = 0
    for call in sorted(calls, key=_size, reverse=True):
        if call.updates[0].blockwise:
            total += call.arrays[0].size
            blocks += [block.make for block in _cut(call)]
        else:
            call.make()
    if total > _SHARED:
        parallel_for(blocks)
    else:
        for block in blocks:
            block()


def _size(call: Call) -> int:
    """What takes long is begun first, so that all threads are done at about the same time."""
    size: int = call.arrays[0].size
    return size


def _traced(call: Call, run: Run) -> None:
    """Do one call, and note what it takes; to the bit what it is otherwise."""
    first = call.updates[0]
    blocks = list(_cut(call)) if first.blockwise else [call]
    before = perf_counter()
    parallel_for(block.make for block in blocks)
    run.note(first.op, before, call.arrays)
    for update in call.updates[1:]:  # done along with the first
        run.note(update.op, perf_counter(), ())


def _cut(call: Call) -> Iterator[Call]:
    """Yield what is to be done for each block: inputs of the arrays' shape are cut as they are."""
    updates, arrays, inputs, copies = call
    shape, size = arrays[0].shape, arrays[0].size
    if size <= _BLOCK // 2:
        yield call
        return
    blocks = -(-size // _BLOCK)
    step = -(-size // (-(-blocks // CORES) * CORES))  # as many for each core, all of one size
    step = max(step, _BLOCK // 4)
    alike = [i for i, x in enumerate(inputs) if x.__class__ is np.ndarray and x.shape == shape]
    for at in range(0, size, step):
        block = slice(at, at + step)
        part = inputs.copy()
        for i in alike:
            part[i] = inputs[i][block]
        yield Call(
            updates,
            [array[block] for array in arrays],
            part,
            [(new[block], old[block]) for new, old in copies],
        )
