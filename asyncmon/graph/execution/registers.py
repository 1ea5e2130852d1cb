"""Where a plan's values live while it runs: numbered registers, and what is known of each."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.execution.state import StateStore

__all__ = ["Registers", "elements"]


class Registers:
    """The registers of one plan.

    Attributes:
        of: the register of each tensor.
        constants: those with a value that never changes.
        views: of those that may hold an array, or a view of it, of others: these others.
        borrowed: those whose array may be somebody else's, with the slots it may be the array of.
        base: the register of each variable as it is before the run's writes, by slot.
        required: slots that must be initialised.
        iteration: the one with the iteration of the loop that the plan is in; None where nobody asks.
        weight: how many elements are computed, as far as that is known.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.of: dict[Tensor, int] = {}
        self.constants: dict[int, Any] = {}
        self.borrowed: dict[int, frozenset[int]] = {}
        self.views: dict[int, set[int]] = {}
        self.base: dict[int, int] = {}
        self.required: set[int] = set()
        self.iteration: int | None = None
        self._scalars: dict[Any, int] = {}  # equal constants share a register
        self.size = 0
        self.weight = 0

    def new(self) -> int:
        """Return a register nobody uses."""
        self.size += 1
        return self.size - 1

    def all_of(self, tensors: Iterable[Tensor]) -> tuple[int, ...]:
        """Return the registers of tensors."""
        return tuple([self.of[tensor] for tensor in tensors])

    def given(self, tensor: Tensor) -> int:
        """Return a register for a fed tensor, whose array is the user's."""
        register = self.of[tensor] = self.new()
        self.borrowed[register] = frozenset()
        return register

    def variable(self, slot: int, *, required: bool) -> int:
        """Return the register that holds a variable as it is before the run's writes."""
        register = self.base.get(slot)
        if register is None:
            register = self.base[slot] = self.new()
            self.borrowed[register] = frozenset((slot,))
        if required:
            self.required.add(slot)
        return register

    def constant(self, op: Operation, values: Sequence[Any]) -> None:
        """Give the outputs of a node values that never change."""
        for tensor, value in zip(op.outputs, values, strict=True):
            key = (value.dtype, value.tobytes()) if isinstance(value, np.generic) else None
            register = self._scalars.get(key)
            if register is None:
                register = self.given(tensor)
                self.constants[register] = value
                if key is not None:
                    self._scalars[key] = register
            self.of[tensor] = register

    def outputs(self, op: Operation, given: Collection[Tensor]) -> tuple[int, ...]:
        """Return registers for what a node computes; of a fed one, that nobody reads."""
        found = []
        for tensor in op.outputs:
            register = self.new()
            found.append(register)
            if tensor not in given:
                self.of[tensor] = register
            self.weight += elements(tensor) or 0
        return tuple(found)

    def of_iteration(self) -> int:
        """Return the register that holds the iteration, 0 outside of loops."""
        if self.iteration is None:
            self.iteration = self.new()
            self.constants[self.iteration] = 0
        return self.iteration

    def lend(self, to: Iterable[int], lenders: Iterable[int]) -> None:
        """Note that some registers may hold the arrays, or views, of others."""
        for register in to:
            self.views.setdefault(register, set()).update(lenders)
            slots = [self.borrowed[i] for i in lenders if i in self.borrowed]
            if slots:
                self.borrowed[register] = frozenset().union(*slots)

    def slots_in(self, register: int) -> frozenset[int]:
        """Return the variables whose array a register may hold."""
        return self.borrowed.get(register, frozenset())

    def template(self) -> list[Any]:
        """Return the registers as a run finds them."""
        values: list[Any] = [None] * self.size
        for register, value in self.constants.items():
            values[register] = value
        return values


def elements(tensor: Tensor) -> int | None:
    """Return how many elements a tensor has, or None where that is not known."""
    shape = tensor.spec.shape
    if not shape:
        return None if shape is None else 1
    if None in shape:
        return None
    return prod(d for d in shape if d is not None)
