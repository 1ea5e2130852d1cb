"""The writes of a commit: in blocks that stay in the cache, on several cores where that pays."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon.graph.kernels.parallel import CORES, parallel_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from asyncmon.graph.execution.late_products import Product
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
        product: one of ``inputs``, if it is not computed yet.
    """

    updates: tuple[Update, ...]
    arrays: list[Any]
    inputs: list[Any]
    copies: Sequence[Copy] = ()
    product: Product | None = None

    def computed(self) -> Call:
        """Return the same with the product computed."""
        product = self.product
        if product is None:
            return self
        value = np.matmul(product.rows, product.columns).reshape(-1)
        inputs = [*self.inputs[: product.at], value, *self.inputs[product.at + 1 :]]
        return self._replace(inputs=inputs, product=None)

    def make(self) -> None:
        """Do it: what was copied or multiplied is in the cache then, and is not fetched again."""
        for new, old in self.copies:
            np.copyto(new, old)
        self.updates[0].function(*self.arrays, *self.computed().inputs)


_BLOCK = 1 << 18  # elements: large enough that threads seldom meet at the interpreter's lock
_FIRST = 0.57  # of two uneven pieces
_SHARED = 1 << 18  # elements: with fewer, other cores are not worth waking


def apply_all(calls: Sequence[Call], run: Run | None) -> None:
    """Write. The caller has turned floating point warnings off.

    Args:
        calls: what to write.
        run: gets its trace, if it wants one.
    """
    uneven = sum(call.product is not None for call in calls) > 1
    if run is not None and run.trace is not None:
        for call in calls:
            _traced(call, run, uneven=uneven)
        return
    if len(calls) == 1 and calls[0].arrays[0].size <= _BLOCK // 2:
        calls[0].make()
        return
    blocks: list[Callable[[], None]] = []
    total = 0
    for call in sorted(calls, key=_weight, reverse=True):
        if call.updates[0].blockwise:
            total += call.arrays[0].size
            blocks += [block.make for block in _cut(call, uneven=uneven)]
        else:
            call.make()
    if total > _SHARED:
        parallel_for(blocks)
    else:
        for block in blocks:
            block()


def _weight(call: Call) -> tuple[bool, int]:
    """What takes long is begun first, so that all who share it are done at about the same time."""
    return call.product is not None, call.arrays[0].size


def _traced(call: Call, run: Run, *, uneven: bool) -> None:
    """Do one call, and note what it takes; to the bit what it is otherwise."""
    first = call.updates[0]
    blocks = list(_cut(call, uneven=uneven)) if first.blockwise else [call]
    if call.product is not None:
        before = perf_counter()
        blocks = [block.computed() for block in blocks]
        run.note(call.product.op, before, [block.inputs[call.product.at] for block in blocks])
    before = perf_counter()
    parallel_for(block.make for block in blocks)
    run.note(first.op, before, call.arrays)
    for update in call.updates[1:]:  # done along with the first
        run.note(update.op, perf_counter(), ())


def _cut(call: Call, *, uneven: bool) -> Iterator[Call]:
    """Yield what is to be done for each block: inputs of the arrays' shape are cut as they are.

    Two threads that multiply halves come to their updates at the same time, and are in each other's way
    there. So where more products follow, which even it out, the first piece of two is the larger one.
    """
    updates, arrays, inputs, copies, product = call
    shape, size = arrays[0].shape, arrays[0].size
    if size <= _BLOCK // 2:
        yield call
        return
    blocks = -(-size // _BLOCK)
    step = -(-size // (-(-blocks // CORES) * CORES))  # as many for each core, all of one size
    step = max(step, _BLOCK // 4)
    if product is not None:  # whole rows
        columns = product.columns.shape[1]
        step = -(-step // columns) * columns
    alike = [i for i, x in enumerate(inputs) if x.__class__ is np.ndarray and x.shape == shape]
    bounds = [*range(0, size, step), size]
    if product is not None and uneven and len(bounds) == 3:
        bounds[1] = round(_FIRST * len(product.rows)) * columns
    for at, end in pairwise(bounds):
        block = slice(at, end)
        part = inputs.copy()
        for i in alike:
            part[i] = inputs[i][block]
        yield Call(
            updates,
            [array[block] for array in arrays],
            part,
            [(new[block], old[block]) for new, old in copies],
            product and product.part(at // columns, end // columns),
        )
