"""The values of a plan during compilation: registers, aliases, constants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.shape import num_elements

_LARGE = 1 << 10  # elements: a smaller value stays in its register until the run ends


class Values:
    """The values of one plan.

    Attributes:
        of: the register of each tensor.
        constants: the registers of constants, and their values.
        aliases: for registers that may share memory with other registers: these.
        external: registers whose array other code may share, with the slots that it may belong to.
        initial: the register of each variable before the run's writes, by slot.
        required: slots that must be initialised.
        iteration: the register with the iteration of the outer loop; None if it is not read.
        size: the number of registers.
        large: registers to free before the end of the run.
        weight: the number of computed elements, as far as known.
    """

    def __init__(self) -> None:
        self.of: dict[Tensor, int] = {}
        self.constants: dict[int, Any] = {}
        self.aliases: dict[int, set[int]] = {}
        self.external: dict[int, frozenset[int]] = {}
        self.initial: dict[int, int] = {}
        self.required: set[int] = set()
        self.iteration: int | None = None
        self.size = 0
        self.large: set[int] = set()
        self.weight: float = 0
        self._given: set[int] = set()
        self._scalars: dict[Any, int] = {}  # equal constants share a register

    def new(self, elements: int | None = 0) -> int:
        """Return a new register for a value of ``size`` elements; None: unknown."""
        register = self.size
        self.size += 1
        if elements is None or elements >= _LARGE:
            self.large.add(register)
        return register

    def all_of(self, tensors: Iterable[Tensor]) -> tuple[int, ...]:
        """Return the registers of tensors."""
        return tuple([self.of[tensor] for tensor in tensors])

    def feed(self, tensor: Tensor) -> int:
        """Return a register for a fed tensor, whose array belongs to the user."""
        register = self.of[tensor] = self.new()
        self.external[register] = frozenset()
        return register

    def variable(self, slot: int, *, required: bool) -> int:
        """Return the register of a variable before the run's writes."""
        register = self.initial.get(slot)
        if register is None:
            register = self.initial[slot] = self.new()
            self.external[register] = frozenset((slot,))
        if required:
            self.required.add(slot)
        return register

    def constant(self, op: Operation, values: Sequence[Any]) -> None:
        """Set the outputs of a node to constants."""
        for tensor, value in zip(op.outputs, values, strict=True):
            key = (value.dtype, value.tobytes()) if isinstance(value, np.generic) else None
            register = self._scalars.get(key)
            if register is None:
                register = self.feed(tensor)
                self.constants[register] = value
                if key is not None:
                    self._scalars[key] = register
            self.of[tensor] = register

    def outputs(self, op: Operation, fed: Collection[Tensor]) -> tuple[int, ...]:
        """Return registers for the outputs of a node. That of a fed tensor is not read."""
        found = []
        for tensor in op.outputs:
            elements = num_elements(tensor.spec.shape)
            register = self.new(elements)
            found.append(register)
            if tensor not in fed:
                self.of[tensor] = register
            self.weight += elements or 0
        return tuple(found)

    def of_iteration(self) -> int:
        """Return the register that holds the iteration, 0 outside of loops."""
        if self.iteration is None:
            self.iteration = self.new()
            self.constants[self.iteration] = 0
        return self.iteration

    def alias(self, registers: Iterable[int], others: Iterable[int]) -> None:
        """Record that registers may share memory with others."""
        for register in registers:
            self.aliases.setdefault(register, set()).update(others)
            slots = [self.external[i] for i in others if i in self.external]
            if slots:
                self.external[register] = frozenset().union(*slots)

    def give(self, register: int) -> bool:
        """Return whether a register's array is unshared and can be passed on without a copy."""
        arrays: set[int] = set()
        left = {register}
        while left:
            arrays |= left
            left = set().union(*(self.aliases.get(i, ()) for i in left)) - arrays
        alone = register not in self.external and self._given.isdisjoint(arrays)
        self._given |= arrays
        return alone

    def template(self) -> list[Any]:
        """Return the initial registers of a run."""
        registers: list[Any] = [None] * self.size
        for register, value in self.constants.items():
            registers[register] = value
        return registers
