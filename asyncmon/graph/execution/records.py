"""Records of a plan: loads and stores of variables, results, parts of control nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from asyncmon.errors import FailedPreconditionError
from asyncmon.graph.core.node import Operation, Tensor


@dataclass(slots=True, eq=False)
class Read:
    """Load a variable. ``required``: it must be initialised."""

    slot: int
    register: int
    name: str
    required: bool

    def uninitialized(self) -> FailedPreconditionError:
        """Return the error for a variable without a value."""
        return FailedPreconditionError(
            f"Attempting to use uninitialized value {self.name}. Run its initializer, or "
            "global_variables_initializer(), first."
        )


@dataclass(slots=True, eq=False)
class Swap:
    """Store a register as the new value of a variable.

    ``owned``: the array is not shared, so it need not be copied.
    """

    slot: int
    register: int
    owned: bool
    dtype: np.dtype[Any]

    def value(self, value: Any) -> Any:
        """Return the value to store: an unshared array, or a numpy scalar, which is immutable."""
        if value.__class__ is self.dtype.type:
            return value
        if not isinstance(value, np.ndarray) or value.dtype != self.dtype:
            return np.array(value, self.dtype, order="C")
        if self.owned and value.base is None and value.flags.c_contiguous and value.flags.writeable:
            return value
        return value.copy()


@dataclass(slots=True, eq=False)
class Update:
    """An update in place, applied by the commit."""

    op: Operation
    function: Callable[..., None]
    slots: tuple[int, ...]
    inputs: tuple[int, ...]
    blockwise: bool
    copied: tuple[int, ...] = ()
    """Inputs that may share memory with a variable that is updated in place."""


@dataclass(slots=True, eq=False)
class Fetch:
    """A register to return. ``fresh``: without a copy, because the array is not shared."""

    register: int
    fresh: bool

    def of(self, value: Any) -> Any:
        """Return the caller's result for the value in the register."""
        if not isinstance(value, np.ndarray):
            return value
        if value.ndim == 0:
            return value[()]
        return value if self.fresh and value.flags.writeable else value.copy()


class Live(NamedTuple):
    """The computed part of a node that runs subgraphs.

    Attributes:
        kernel: see :class:`asyncmon.graph.core.op.ControlOpDef`.
        targets: the computed outputs of each subgraph.
        parameters: the fed parameters of each subgraph, captures last.
        inputs: the used inputs of the node.
    """

    kernel: Callable[..., Any]
    targets: Sequence[Sequence[Tensor]]
    parameters: Sequence[Sequence[Tensor]]
    inputs: Sequence[Tensor]

    @classmethod
    def all_of(cls, op: Operation) -> Self:
        """Return the record of a whole node."""
        kernel, branches = op.op_def.kernel, op.attrs["branches"]
        assert kernel is not None, "a node without live() has a kernel"
        return cls(kernel, [x.targets for x in branches], [x.parameters for x in branches], op.inputs)
