"""Nodes and their outputs. TF1: ``tf.Operation``, ``tf.Tensor``.

Operators add nodes by op type through the graph, whose class is in a module above this one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from asyncmon.graph.core.default_session import session_for
from asyncmon.graph.core.dtypes import DType, as_dtype
from asyncmon.graph.core.op import OpRecord, Spec
from asyncmon.graph.core.shape import TensorShape, as_shape, is_compatible, merge
from asyncmon.protobuf.graph_def import NodeDef, node_def_of
from asyncmon.system.error_text import line_at

Operator = Callable[["Operators", Any], "Tensor"]


class NodeGraph(Protocol):
    """The members of :class:`~asyncmon.graph.core.graph.Graph` that nodes and conversions use."""

    asserted: set[Tensor]
    _operations: dict[str, Operation]

    @property
    def outer(self) -> NodeGraph | None: ...
    @property
    def root(self) -> NodeGraph: ...
    @property
    def captures(self) -> Mapping[Tensor, Tensor]: ...
    def add_op(
        self,
        type: str,
        inputs: Sequence[Tensor],
        attrs: Mapping[str, Any] = ...,
        name: str | None = None,
    ) -> Operation: ...
    def create(
        self,
        type: str,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any] = ...,
        name: str | None = None,
        *,
        pair: bool = False,
    ) -> Operation: ...
    def capture(self, tensor: Tensor) -> Tensor: ...
    def capture_ref(self, tensor: Tensor) -> Tensor: ...
    def operand_name(self, label: str, operand: str | int) -> str: ...
    def get_operations(self) -> list[Operation]: ...
    def get_operation_by_name(self, name: str) -> Operation: ...
    def add_to_collections(self, names: Any, value: Any) -> None: ...


class Operation:
    """A node: an op type with inputs and attributes, added by ``create_op``. TF1: ``tf.Operation``."""

    __slots__ = (
        "__weakref__",
        "attrs",
        "control",
        "device",
        "graph",
        "id",
        "inputs",
        "name",
        "offset",
        "op_def",
        "origin",
        "outputs",
        "rng_key",
    )

    def __init__(
        self,
        graph: NodeGraph,
        id: int,
        name: str,
        op_def: OpRecord,
        inputs: tuple[Tensor, ...],
        control: tuple[Operation, ...],
        attrs: dict[str, Any],
    ) -> None:
        self.graph = graph
        self.id = id
        self.name = name
        self.op_def = op_def
        self.inputs = inputs
        self.control = control
        self.attrs = attrs
        self.device = ""
        self.outputs: tuple[Tensor, ...] = ()
        self.rng_key: tuple[int | None, int, int] | None = None
        self.origin: CodeType | None = None
        self.offset = 0

    @property
    def type(self) -> str:
        """The op type, ``"MatMul"``."""
        return self.op_def.name

    @property
    def control_inputs(self) -> list[Operation]:
        """A new list of its control dependencies. TF1: same name."""
        return list(self.control)

    @property
    def created_at(self) -> str | None:
        """The line of the user's code that created it, ``"train.py:12"``, or None."""
        return None if self.origin is None else ":".join(map(str, line_at(self.origin, self.offset)))

    @property
    def op(self) -> Operation:
        """The operation itself, as ``tensor.op`` is that of a tensor."""
        return self

    def get_attr(self, name: str) -> Any:
        """Return an attribute; ``"T"`` is the dtype of the first output, as it usually is in TF1.

        ValueError if there is no attribute of that name.
        """
        try:
            return self.attrs[name]
        except KeyError:
            if name == "T" and self.outputs:
                return self.outputs[0].dtype
            raise ValueError(
                f"Operation {self.name!r} has no attr named {name!r}; it has {sorted(self.attrs)}."
            ) from None

    @property
    def node_def(self) -> NodeDef:
        """The operation as a ``NodeDef``. TF1: same name."""
        return node_def_of(self)

    def values(self) -> tuple[Tensor, ...]:
        """Return the outputs. TF1: same name."""
        return self.outputs

    def run(self, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> Awaitable[None]:
        """Run it: ``await op.run()`` is ``await session.run(op, feed_dict)``. TF1: same name.

        ``session`` defaults to :func:`~asyncmon.graph.get_default_session`; ValueError if there is
        none, or if it runs another graph.
        """
        chosen = session_for(self.graph, session, "execute operation", "run")
        run: Awaitable[None] = chosen.run(self, feed_dict)
        return run

    def __repr__(self) -> str:
        return f"<Operation {self.name!r} type={self.type}>"


# --- indexing: ``tensor[...]`` is one op, StridedSlice ------------------------------------------------
# Its attribute "index" is a tuple of ints, None (a new axis), ``...`` and Range(start, stop, step).
# Arg(i) in place of an int is the i-th input after the tensor, a scalar of the run.
class Arg(NamedTuple):
    """A tensor in an index."""

    position: int


class Range(NamedTuple):
    """A slice, hashable."""

    start: int | Arg | None
    stop: int | Arg | None
    step: int | Arg | None


Item = Any
"""int | Arg | Range | None | ..."""


def is_mask(index: Any) -> bool:
    """Return true for a bool, or an array or tensor of bools, which selects its true elements."""
    dtype = getattr(index, "dtype", None)
    return isinstance(index, bool) or (dtype is not None and as_dtype(dtype).is_bool)


_SCALARS = frozenset(["int16", "int32", "int64"])


def encode_index(index: Any) -> tuple[list[Any], tuple[Item, ...]]:
    """Return the tensors in an index expression and its encoding as an attribute.

    TypeError if an entry is not an int, a slice, None, ``...`` or a scalar integer tensor.
    """
    inputs: list[Any] = []

    def scalar(value: Any) -> int | Arg | None:
        if value is None or type(value) is int:
            return value
        if hasattr(value, "_as_tensor"):
            value = value._as_tensor()
        if hasattr(value, "spec"):
            if value.spec.dtype.name not in _SCALARS or value.spec.shape not in ((), None):
                raise TypeError(
                    f"{value!r} cannot be an index; expected a scalar int32, int64 or int16. "
                    "Use gather() or boolean_mask() to pick by a vector or a mask."
                )
            inputs.append(value)
            return Arg(len(inputs) - 1)
        if hasattr(value, "__index__") and not isinstance(value, bool | np.bool_):
            return int(value.__index__())
        raise TypeError(
            f"Only integers, slices (`:`), ellipsis (`...`), None and scalar integer tensors are valid "
            f"indices, got {value!r}."
        )

    def item(entry: Any) -> Item:
        if entry is Ellipsis or entry is None:
            return entry
        if isinstance(entry, slice):
            return Range(scalar(entry.start), scalar(entry.stop), scalar(entry.step))
        return scalar(entry)

    entries = tuple(index) if isinstance(index, tuple | list) else (index,)
    encoded = tuple(item(entry) for entry in entries)
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise ValueError(f"An index can have one ellipsis, got {index!r}.")
    return inputs, encoded


# --- operators ----------------------------------------------------------------------------------------
def _pair(op_type: str, name: str, **attrs: Any) -> tuple[Operator, Operator]:
    """Return the operator of an op type, and the reflected operator."""

    opposite = f"__r{name}__"

    def operator(self: Operators, other: Any) -> Tensor:
        try:
            return self.graph.create(op_type, (self, other), attrs, name, pair=True).outputs[0]
        except TypeError:
            known = isinstance(other, Operators) or type(other).__module__ in ("builtins", "numpy")
            if known or not hasattr(type(other), opposite):
                raise
            return NotImplemented  # type: ignore[no-any-return]  # Python calls the other's

    def reflected(self: Operators, other: Any) -> Tensor:
        return self.graph.create(op_type, (other, self), attrs, name, pair=True).outputs[0]

    return operator, reflected


def _single(op_type: str) -> Callable[[Operators], Tensor]:
    return lambda self: self.graph.create(op_type, (self,)).outputs[0]


class Operators:
    """The operators of :class:`Tensor` and ``Variable``."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy leaves `array + tensor` to the tensor

    graph: NodeGraph

    __add__, __radd__ = _pair("AddV2", "add")
    __sub__, __rsub__ = _pair("Sub", "sub")
    __mul__, __rmul__ = _pair("Mul", "mul")
    __truediv__, __rtruediv__ = _pair("RealDiv", "truediv")
    __floordiv__, __rfloordiv__ = _pair("FloorDiv", "floordiv")
    __mod__, __rmod__ = _pair("FloorMod", "mod")
    __pow__, __rpow__ = _pair("Pow", "pow")
    __matmul__, __rmatmul__ = _pair("MatMul", "matmul", transpose_a=False, transpose_b=False)
    __and__, __rand__ = _pair("LogicalAnd", "and")
    __or__, __ror__ = _pair("LogicalOr", "or")
    __xor__, __rxor__ = _pair("LogicalXor", "xor")
    __lt__ = _pair("Less", "Less")[0]
    __le__ = _pair("LessEqual", "LessEqual")[0]
    __gt__ = _pair("Greater", "Greater")[0]
    __ge__ = _pair("GreaterEqual", "GreaterEqual")[0]
    __neg__ = _single("Neg")
    __abs__ = _single("Abs")
    __invert__ = _single("LogicalNot")

    def __getitem__(self, index: Any) -> Tensor:
        if is_mask(index):
            op = self.graph.create("BooleanMask", (self, index), {"axis": 0}, "boolean_mask")
        else:
            inputs, encoded = encode_index(index)
            attrs = {"index": encoded}
            op = self.graph.create("StridedSlice", (self, *inputs), attrs, "strided_slice")
        return op.outputs[0]

    def __iter__(self) -> Iterator[Tensor]:
        raise TypeError(f"{self!r} is not iterable: its values exist only in a run. Use unstack().")

    def __array__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError(
            f"Cannot convert {self!r} to a numpy array: its value exists only in a run. Use run()."
        )

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"Using {self!r} as a Python bool is not allowed: its value exists only in a run. "
            "Use `if t is not None:` to test for a tensor, cond() to choose inside the graph."
        )


class Tensor(Operators):
    """An output of an operation. TF1: ``tf.Tensor``.

    It holds no value: ``await session.run(tensor)`` computes one. Equality is identity.
    """

    __slots__ = ("__weakref__", "assign", "graph", "name", "op", "spec", "value_index")

    assign: Callable[..., Tensor]
    """Sets the part of a variable that this is. Missing in other tensors."""

    def __init__(self, op: Operation, value_index: int, spec: Spec) -> None:
        self.graph = op.graph
        self.op = op
        self.value_index = value_index
        self.spec = spec
        self.name = f"{op.name}:{value_index}"

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.spec.dtype

    @property
    def shape(self) -> TensorShape:
        """The static shape, which may be partially known."""
        return TensorShape(self.spec.shape)

    @property
    def device(self) -> str:
        """The device of the op, "" by default."""
        return self.op.device

    def get_shape(self) -> TensorShape:
        """Return :attr:`shape`. TF1: same name."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Refine the static shape. TF1: same name. ValueError if the shapes are not compatible."""
        known, new = self.spec.shape, as_shape(shape)
        if not is_compatible(known, new):
            raise ValueError(f"Tensor {self.name!r} has shape {self.shape}; it cannot be set to {new}.")
        merged = merge(known, new)
        if merged != known:
            self.graph.asserted.add(self)
            self.spec = replace(self.spec, shape=merged)

    def eval(self, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> Awaitable[Any]:
        """Compute it: ``await t.eval()`` is ``await session.run(t, feed_dict)``. TF1: same name.

        ``session`` defaults to :func:`~asyncmon.graph.get_default_session`; ValueError if there is
        none, or if it runs another graph.
        """
        chosen = session_for(self.graph, session, "evaluate tensor", "eval")
        value: Awaitable[Any] = chosen.run(self, feed_dict)
        return value

    def consumers(self) -> list[Operation]:
        """Return the operations that it is an input of, in order of creation. TF1: same name."""
        return [op for op in self.graph.get_operations() if self in op.inputs]

    def __len__(self) -> NoReturn:
        raise TypeError(
            f"len is not well defined for {self!r}; use its shape, or shape(tensor) in the graph."
        )

    def __repr__(self) -> str:
        shape = "" if self.spec.shape is None else f" shape={self.shape},"
        return f'Tensor("{self.name}",{shape} dtype={self.dtype.name})'
