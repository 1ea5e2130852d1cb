"""The two things a graph is made of. TF1: ``tf.Tensor``, ``tf.Operation``.

Operators build nodes in the current graph by op type name, through the graph; the ops themselves are
entries of the table, which this file does not know.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asyncmon.graph.core.indexing import encode_index, is_mask
from asyncmon.graph.core.shape import TensorShape, as_shape, is_compatible, merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import NoReturn

    from asyncmon.graph.core.dtypes import DType
    from asyncmon.graph.core.graph import Graph
    from asyncmon.graph.core.op import OpRecord, Spec

__all__ = ["Operation", "Operators", "Tensor"]


class Operation:
    """A node: an op type, its inputs and attributes. TF1: ``tf.Operation``. Made by ``create_op``."""

    __slots__ = (
        "__weakref__",
        "attrs",
        "control_inputs",
        "device",
        "graph",
        "id",
        "inputs",
        "name",
        "op_def",
        "outputs",
        "rng_key",
    )

    def __init__(
        self,
        graph: Graph,
        id: int,
        name: str,
        op_def: OpRecord,
        inputs: tuple[Tensor, ...],
        control_inputs: tuple[Operation, ...],
        attrs: dict[str, Any],
        device: str,
    ) -> None:
        self.graph = graph
        self.id = id
        self.name = name
        self.op_def = op_def
        self.inputs = inputs
        self.control_inputs = control_inputs
        self.attrs = attrs
        self.device = device
        self.outputs: tuple[Tensor, ...] = ()
        self.rng_key: tuple[int | None, int] | None = None

    @property
    def type(self) -> str:
        """The op type, ``"MatMul"``."""
        return self.op_def.name

    @property
    def op(self) -> Operation:
        """The operation itself, as ``tensor.op`` is for a tensor."""
        return self

    def get_attr(self, name: str) -> Any:
        """Return an attribute. ValueError where there is none of that name."""
        try:
            return self.attrs[name]
        except KeyError:
            raise ValueError(
                f"Operation {self.name!r} has no attr named {name!r}; it has {sorted(self.attrs)}."
            ) from None

    def values(self) -> tuple[Tensor, ...]:
        """Return the outputs. TF1: same name."""
        return self.outputs

    def __repr__(self) -> str:
        return f"<Operation {self.name!r} type={self.type}>"


class Operators:
    """Arithmetic for whatever stands for a tensor: :class:`Tensor` and ``Variable``."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy leaves `array + tensor` to the tensor

    graph: Graph

    def __add__(self, other: Any) -> Tensor:
        return self.graph.binary("AddV2", self, other, "add")

    def __radd__(self, other: Any) -> Tensor:
        return self.graph.binary("AddV2", other, self, "add")

    def __sub__(self, other: Any) -> Tensor:
        return self.graph.binary("Sub", self, other, "sub")

    def __rsub__(self, other: Any) -> Tensor:
        return self.graph.binary("Sub", other, self, "sub")

    def __mul__(self, other: Any) -> Tensor:
        return self.graph.binary("Mul", self, other, "mul")

    def __rmul__(self, other: Any) -> Tensor:
        return self.graph.binary("Mul", other, self, "mul")

    def __truediv__(self, other: Any) -> Tensor:
        return self.graph.binary("RealDiv", self, other, "truediv")

    def __rtruediv__(self, other: Any) -> Tensor:
        return self.graph.binary("RealDiv", other, self, "truediv")

    def __floordiv__(self, other: Any) -> Tensor:
        return self.graph.binary("FloorDiv", self, other, "floordiv")

    def __rfloordiv__(self, other: Any) -> Tensor:
        return self.graph.binary("FloorDiv", other, self, "floordiv")

    def __mod__(self, other: Any) -> Tensor:
        return self.graph.binary("FloorMod", self, other, "mod")

    def __rmod__(self, other: Any) -> Tensor:
        return self.graph.binary("FloorMod", other, self, "mod")

    def __pow__(self, other: Any) -> Tensor:
        return self.graph.binary("Pow", self, other, "pow")

    def __rpow__(self, other: Any) -> Tensor:
        return self.graph.binary("Pow", other, self, "pow")

    def __matmul__(self, other: Any) -> Tensor:
        return self.graph.binary("MatMul", self, other, "matmul", _PLAIN_MATMUL)

    def __rmatmul__(self, other: Any) -> Tensor:
        return self.graph.binary("MatMul", other, self, "matmul", _PLAIN_MATMUL)

    def __neg__(self) -> Tensor:
        return self.graph.unary("Neg", self)

    def __abs__(self) -> Tensor:
        return self.graph.unary("Abs", self)

    def __invert__(self) -> Tensor:
        return self.graph.unary("LogicalNot", self)

    def __and__(self, other: Any) -> Tensor:
        return self.graph.binary("LogicalAnd", self, other, "and")

    def __rand__(self, other: Any) -> Tensor:
        return self.graph.binary("LogicalAnd", other, self, "and")

    def __or__(self, other: Any) -> Tensor:
        return self.graph.binary("LogicalOr", self, other, "or")

    def __ror__(self, other: Any) -> Tensor:
        return self.graph.binary("LogicalOr", other, self, "or")

    def __xor__(self, other: Any) -> Tensor:
        return self.graph.binary("LogicalXor", self, other, "xor")

    def __rxor__(self, other: Any) -> Tensor:
        return self.graph.binary("LogicalXor", other, self, "xor")

    def __lt__(self, other: Any) -> Tensor:
        return self.graph.binary("Less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return self.graph.binary("LessEqual", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return self.graph.binary("Greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return self.graph.binary("GreaterEqual", self, other)

    def __getitem__(self, index: Any) -> Tensor:
        if is_mask(index):
            return self.graph.unary("BooleanMask", self, (index,), {"axis": 0}, "boolean_mask")
        inputs, encoded = encode_index(index)
        return self.graph.unary("StridedSlice", self, inputs, {"index": encoded}, "strided_slice")

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


_PLAIN_MATMUL: Mapping[str, Any] = {"transpose_a": False, "transpose_b": False}


class Tensor(Operators):
    """An output of an operation. TF1: ``tf.Tensor``.

    Holds no value: ``await session.run(tensor)`` computes one. Equality and hash are those of the
    object.
    """

    __slots__ = ("__weakref__", "graph", "name", "op", "spec", "value_index")

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
        """The static shape, as far as it is known."""
        return TensorShape(self.spec.shape)

    @property
    def device(self) -> str:
        """The device the op was built under; kept, not used."""
        return self.op.device

    def get_shape(self) -> TensorShape:
        """Return :attr:`shape`. TF1: same name."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Add to what is known of the static shape. TF1: same name.

        Raises:
            ValueError: the shape contradicts what is known.
        """
        known, new = self.spec.shape, as_shape(shape)
        if not is_compatible(known, new):
            raise ValueError(f"Tensor {self.name!r} has shape {self.shape}; it cannot be set to {new}.")
        merged = merge(known, new)
        if merged != known:
            self.graph.asserted.add(self)
            self.spec = replace(self.spec, shape=merged)

    def consumers(self) -> list[Operation]:
        """Return the operations that have it for an input, as they were built. TF1: same name."""
        return [op for op in self.graph.get_operations() if self in op.inputs]

    def __len__(self) -> NoReturn:
        raise TypeError(
            f"len is not well defined for {self!r}; use its shape, or shape(tensor) in the graph."
        )

    def __repr__(self) -> str:
        shape = "" if self.spec.shape is None else f" shape={self.shape},"
        return f'Tensor("{self.name}",{shape} dtype={self.dtype.name})'
