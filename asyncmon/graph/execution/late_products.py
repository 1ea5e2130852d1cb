"""Gradients that are products of matrices and go into an update alone: never there as a whole.

The gradient of a dense layer is as large as its weights, and each element is used once, by the
optimizer. So the product is put off until the update, which is done block by block: some rows of the
gradient are computed and used while they are in the cache. Where products take long they are computed
before, as any other value: an update cannot be cancelled, and who wants to look at the state waits for
it (:meth:`asyncmon.graph.execution.buffers.Buffers.layout` decides, for the shapes that are fed).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncmon.graph.core.op import OpDef
from asyncmon.graph.execution.liveness import inputs_of
from asyncmon.graph.execution.packs import LARGEST
from asyncmon.graph.execution.plan import Kind, execute_bare
from asyncmon.graph.execution.registers import elements

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from asyncmon.graph.core.node import Operation
    from asyncmon.graph.execution.plan import Instruction, Update
    from asyncmon.graph.execution.registers import Registers
    from asyncmon.graph.kernels.arrays import Array

__all__ = ["Product", "product_of", "with_products"]


_COLUMNS = range(16, 1 << 15)  # of fewer, products are slow; of more, a row is large already


class Product(NamedTuple):
    """``rows @ columns``, which an update gets as its input ``at``, flat."""

    op: Operation
    at: int
    rows: Array
    columns: Array

    def part(self, first: int, last: int) -> Product:
        """Return the product that has some of the rows."""
        return Product(self.op, self.at, self.rows[first:last], self.columns)


def with_products(
    updates: Sequence[Update],
    code: Sequence[Instruction],
    kept: Collection[int],
    registers: Registers,
) -> list[Update]:
    """Find products that one update alone uses: they may be put off until then.

    Args:
        updates: of a plan.
        code: of a plan.
        kept: registers that others look at when the code has run.
        registers: of the plan.
    """
    if not updates:
        return []
    uses = Counter(kept)
    uses.update(chain.from_iterable(map(inputs_of, code)))
    uses.update(i for update in updates for i in update.inputs)
    products = {
        instruction[4]: instruction
        for instruction in code
        if _is_product(instruction) and uses[instruction[4]] == 1
    }
    written = frozenset(slot for update in updates for slot in update.slots)
    return [
        replace(update, product=_product_for(update, products, written, registers))
        for update in updates
    ]


def _is_product(instruction: Instruction) -> bool:
    kind, op = instruction[0], instruction[5]
    if kind != Kind.BINARY or op is None or _factors(op) is None:
        return False
    return op.outputs[0].dtype.as_numpy_dtype.char in "fd"


def _factors(op: Operation) -> Callable[..., Any] | None:
    return op.op_def.factors if isinstance(op.op_def, OpDef) else None


def _product_for(
    update: Update,
    products: Mapping[int, Instruction],
    written: frozenset[int],
    registers: Registers,
) -> Instruction | None:
    """Return what computes an input of an update, if that can be put off.

    What it is computed of must not be written meanwhile, by this update or by others.
    """
    variable = update.op.inputs[0]
    shape = variable.spec.shape
    if not update.blockwise or update.copied or (elements(variable) or 0) <= LARGEST:
        return None
    if shape is None or len(shape) != 2 or shape[1] not in _COLUMNS:
        return None
    inputs = zip(update.op.inputs[update.op.op_def.refs :], update.inputs, strict=True)
    for tensor, register in inputs:
        product = products.get(register)
        if (
            product is not None
            and tensor.spec == variable.spec
            and not any(registers.slots_in(i) & written for i in inputs_of(product))
        ):
            return product
    return None


def product_of(update: Update, registers: list[Any]) -> Product | None:
    """Return the product that an update needs; None if it needs none, or has been computed.

    Raises:
        InvalidArgumentError: there is one whose factors do not fit.
    """
    if update.product is None or registers[update.product[4]] is not None:
        return None
    _kind, _function, a, b, out, op = update.product
    if op is not None and (factors := _factors(op)) and registers[a].ndim == registers[b].ndim == 2:
        rows, columns = factors(registers[a], registers[b], **op.attrs)
        wanted = update.op.inputs[0].spec.shape
        if rows.shape[1] == len(columns) and (len(rows), columns.shape[1]) == wanted:
            return Product(op, update.inputs.index(out), rows, columns)
    execute_bare((update.product,), registers, None)  # fails at its node, and says why
    return None
