"""TF1: ``tf.TensorArray``, a list of tensors that a loop writes and reads.

The flow of an array is a tensor; its value is an object with all the elements. A write returns an array
with a new flow, and gradients pass through the flow as through any tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core.dtypes import as_objects, variant
from asyncmon.graph.core.op import ZERO
from asyncmon.graph.core.shape import Shape, is_known

__all__ = ["TensorArray"]


class _Elements:
    """The value of a flow: elements by index. Any other value, such as a zero, has no elements."""

    __slots__ = ("items", "size")
    shape, dtype = (), np.dtype(object)

    def __init__(self, size: int, items: dict[int, Any]) -> None:
        self.size, self.items = size, items

    @classmethod
    def of(cls, flow: Any) -> _Elements:
        return flow if isinstance(flow, cls) else cls(0, {})

    def add(self, i: int, x: Any) -> None:
        self.items[i] = self.items[i] + x if i in self.items else x
        self.size = max(self.size, i + 1)

    def __array_ufunc__(self, ufunc: Any, method: str, *flows: Any, **_options: Any) -> Any:
        """Return the sum of gradients of a flow; ``np.add`` is the only function called."""
        first, *others = map(_Elements.of, flows)
        total = _Elements(first.size, dict(first.items))
        for i, x in (pair for other in others for pair in other.items.items()):
            total.add(i, x)
        return total


def _scatter(flow: Any, indices: Any, values: Any, *, mode: str) -> _Elements:
    """Return a flow with more elements; ``mode`` is "fixed" or "grow", or "add" for a gradient."""
    old = _Elements.of(flow)
    made = _Elements(old.size, dict(old.items))
    rows = [values] if np.ndim(indices) == 0 else values
    for i, x in zip(np.ravel(indices).tolist(), rows, strict=True):
        if i < 0 or (i >= old.size and mode == "fixed"):
            why = f"array is not resizeable and size is: {old.size}"
            raise InvalidArgumentError(f"Tried to write to index {i} but {why}")
        if i in made.items and mode != "add":
            raise InvalidArgumentError(f"TensorArray index {i} has already been written to.")
        made.add(i, as_objects(x) if isinstance(x, bytes) else np.array(x))
    return made


def _gather(flow: Any, indices: Any, sizes: Any = None, *, dtype: g.DType, shape: Shape) -> Any:
    """Return an element or a stack; with ``sizes``, its shape, missing elements are zeros."""
    old = _Elements.of(flow)
    known: Any = shape if sizes is None else sizes.tolist()[np.ndim(indices) :]
    missing = np.zeros(known, dtype.numpy) if is_known(known) else None
    rows = []
    for i in np.ravel(indices).tolist():
        inside = 0 <= i < old.size
        x = old.items.get(i, missing)
        if x is None or (sizes is None and not inside):
            why = "it was not written" if inside else f"the array size is {old.size}"
            raise InvalidArgumentError(f"Could not read from TensorArray index {i}: {why}")
        rows.append(x)
    if np.ndim(indices) == 0:
        return rows[0][()]
    if len(shapes := {x.shape for x in rows}) > 1:
        raise InvalidArgumentError(f"TensorArray has inconsistent shapes: {sorted(shapes)}")
    return np.stack(rows) if rows else np.zeros((0, *[d or 0 for d in shape or ()]), dtype.numpy)


def _scatter_gradient(op: g.Operation, grad: g.Tensor) -> list[Any]:
    _flow, at, x = op.inputs
    attrs = {"dtype": x.dtype, "shape": x.spec.shape and x.spec.shape[len(at.spec.shape or ()) :]}
    return [grad, None, g.create_op("TensorArrayGather", (grad, at, g.shape(x)), attrs)]


def _gather_gradient(op: g.Operation, grad: g.Tensor) -> list[Any]:
    inputs = (g.create_op("TensorArray", (0,)), op.inputs[1], grad)
    flow = g.create_op("TensorArrayScatter", inputs, {"mode": "add"})
    return [flow, *[None] * (len(op.inputs) - 1)]


_FLOW = g.Spec(variant, ())
g.register(g.OpDef("TensorArray", lambda size: _Elements(int(size), {}), lambda _: _FLOW, ZERO))
g.register(g.OpDef("TensorArraySize", lambda flow: np.int32(_Elements.of(flow).size),
    lambda _: g.Spec(g.int32, ()), ZERO))  # fmt: skip
g.register(g.OpDef("TensorArrayScatter", _scatter, lambda *_, mode: _FLOW, _scatter_gradient))
g.register(g.OpDef("TensorArrayGather", _gather, lambda _, at, _sizes=None, *, dtype, shape:
    g.Spec(dtype, None if at.shape is None or shape is None else (*at.shape, *shape)),
    _gather_gradient))  # fmt: skip


class TensorArray:
    """A list of tensors of one dtype, for loops. TF1: same name.

    It may be a loop variable, and a result of ``tf.cond``. An element is written once, and can be read
    several times: ``clear_after_read`` has no effect, like the other arguments that are not below.

    Args:
        dtype: of the elements.
        size: the number of elements, an int or an int32 scalar.
        dynamic_size: writes after the end enlarge it.
        flow: the flow of another array, instead of ``size``.
        infer_shape: all elements have one static shape, that of the first one written.
        element_shape: the static shape of the elements.

    InvalidArgumentError in the run for an index out of range, an element that is written twice or read
    before it is written (zeros if its shape is known), or a stack of different shapes.

    Example:
        >>> squares = tf.TensorArray(tf.float32, size=3)
        >>> _, squares = tf.while_loop(
        ...     lambda i, _: i < 3,
        ...     lambda i, found: (i + 1, found.write(i, tf.to_float(i * i))),
        ...     (0, squares),
        ... )
        >>> await sess.run(squares.stack())
        array([0., 1., 4.], dtype=float32)
    """

    # fmt: off
    def __init__(
        self, dtype: Any, size: Any = None, dynamic_size: bool | None = None,
        clear_after_read: bool | None = None, tensor_array_name: str | None = None, handle: Any = None,
        flow: g.Tensor | None = None, infer_shape: bool = True, element_shape: Any = None,
        colocate_with_first_write_call: bool = True, name: str | None = None,
    ) -> None:
        # fmt: on
        if handle is not None or (size is None) == (flow is None):
            raise ValueError(f"Give size= or flow=, and no handle; got {size!r}, {flow!r}, {handle!r}.")
        self.dtype, self.dynamic_size = g.as_dtype(dtype), bool(dynamic_size)
        self.element_shape = g.TensorShape(element_shape)
        self.flow: g.Tensor = g.create_op("TensorArray", (size,), None, name) if flow is None else flow
        self._infers = infer_shape

    graph = property(lambda self: self.flow.graph, doc="The graph of the flow.")

    def _as_tensor(self) -> g.Tensor:
        return self.flow

    def _with_tensor(self, flow: g.Tensor) -> TensorArray:
        """Return this array with another flow, such as that inside of a loop."""
        options: Any = {"infer_shape": self._infers, "element_shape": self.element_shape}
        return TensorArray(self.dtype, None, self.dynamic_size, flow=flow, **options)

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Return the array with an element written, which replaces this one. TF1: same name.

        With a vector of indices, the rows of the value are written. TypeError or ValueError for a value
        of another dtype or shape.
        """
        x = g.convert_to_tensor(value, None if hasattr(value, "dtype") else self.dtype)
        if x.dtype is not self.dtype:
            raise TypeError(f"The array has elements of {self.dtype.name}, cannot write {x!r}.")
        at = g.convert_to_tensor(index)
        mode = {"mode": "grow" if self.dynamic_size else "fixed"}
        inputs = (self.flow, at, x)
        found = self._with_tensor(g.create_op("TensorArrayScatter", inputs, mode, name))
        if self._infers and x.shape.ndims is not None and at.shape.ndims is not None:
            found.element_shape = found.element_shape.merge_with(x.shape[at.shape.ndims :])
        return found

    scatter = write

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """Return the array with the rows of a tensor as its elements. TF1: same name."""
        x = g.convert_to_tensor(value, None if hasattr(value, "dtype") else self.dtype)
        return self.write(g.range(g.shape(x)[0]), x, name)

    def read(self, index: Any, name: str | None = None) -> g.Tensor:
        """Return an element, or the stack of those at a vector of indices. TF1: same name."""
        shape = self.element_shape
        attrs = {"dtype": self.dtype, "shape": None if shape.ndims is None else tuple(shape.as_list())}
        return g.create_op("TensorArrayGather", (self.flow, index), attrs, name)

    gather = read

    def stack(self, name: str | None = None) -> g.Tensor:
        """Return the stack of all elements. TF1: same name."""
        return self.read(g.range(self.size()), name)

    def size(self, name: str | None = None) -> g.Tensor:
        """Return the number of elements, an int32 scalar. TF1: same name."""
        return g.create_op("TensorArraySize", (self.flow,), None, name)
