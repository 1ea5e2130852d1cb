"""Gradients that are products of matrices and go into an update alone: never there as a whole.

The gradient of a dense layer is as large as its weights, and each element is used once, by the
optimizer. So the product is put off until the update, which is done block by block: some rows of the
gradient are computed and used while they are in the cache.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon.graph.liveness import inputs_of
from asyncmon.graph.packs import LARGEST
from asyncmon.graph.plan import Kind, execute_bare
from asyncmon.graph.registers import elements

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from asyncmon.graph.arrays import Array
    from asyncmon.graph.plan import Instruction, Update
    from asyncmon.graph.registers import Registers

__all__ = ["Product", "product_of", "with_products"]


class Product(NamedTuple):
    """``rows @ columns``, which an update gets as its input ``at``, flat."""

    at: int
    rows: Array
    columns: Array

    def part(self, first: int, last: int) -> Product:
        """Return the product that has some of the rows."""
        return self._replace(rows=self.rows[first:last])

    def value(self) -> Array:
        """Compute it."""
        value: Array = np.matmul(self.rows, self.columns)
        return value

    def put_in(self, inputs: Sequence[Any], value: Array) -> list[Any]:
        """Return an update's inputs with a value of the product among them."""
        return [*inputs[: self.at], value.reshape(-1), *inputs[self.at + 1 :]]


def with_products(
    updates: Sequence[Update],
    code: Sequence[Instruction],
    kept: Collection[int],
    registers: Registers,
) -> list[Update]:
    """Find products that one update alone uses, and put them off until then.

    Args:
        updates: of a plan.
        code: of a plan; what is put off is not needed there any more.
        kept: registers that others look at when the code has run.
        registers: of the plan.
    """
    uses = Counter(kept)
    uses.update(i for instruction in code for i in inputs_of(instruction))
    uses.update(i for update in updates for i in update.inputs)
    products = {
        instruction[4]: instruction
        for instruction in code
        if instruction[0] == Kind.BINARY and _has_factors(instruction) and uses[instruction[4]] == 1
    }
    written = frozenset(slot for update in updates for slot in update.slots)
    return [_with_product(update, products, written, registers) for update in updates]


def _with_product(
    update: Update,
    products: dict[int, Instruction],
    written: frozenset[int],
    registers: Registers,
) -> Update:
    variable = update.op.inputs[0]
    if not update.blockwise or update.copied or (elements(variable) or 0) <= LARGEST:
        return update
    for i in update.inputs:
        instruction = products.get(i)
        if instruction is not None and instruction[5] is not None:
            spec = instruction[5].outputs[0].spec
            fits = spec.shape == variable.spec.shape and spec.dtype == variable.spec.dtype
            if fits and not any(registers.slots_in(j) & written for j in inputs_of(instruction)):
                return replace(update, product=instruction)
    return update


def _has_factors(instruction: Instruction) -> bool:
    op = instruction[5]
    if op is None or op.op_def.factors is None:
        return False
    return op.outputs[0].dtype.as_numpy_dtype.char in "fd"


def product_of(update: Update, registers: list[Any]) -> Product | None:
    """Return the product of an update, to be computed; None where there is none.

    Raises:
        InvalidArgumentError: the factors do not fit.
    """
    instruction = update.product
    if instruction is None:
        return None
    _kind, _function, a, b, out, op = instruction
    assert op is not None and op.op_def.factors is not None
    left, right = registers[a], registers[b]
    if left.ndim == right.ndim == 2:
        rows, columns = op.op_def.factors(left, right, **op.attrs)
        shape = update.op.inputs[0].spec.shape
        if rows.shape[1] == len(columns) and (len(rows), columns.shape[1]) == shape:
            return Product(update.inputs.index(out), rows, columns)
    execute_bare((instruction,), registers, None)  # says what does not fit, and where
    return None
