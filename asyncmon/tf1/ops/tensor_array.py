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


class _Elements:
    """The value of a flow: elements by index. Any other value, such as a zero, has no elements."""

    __slots__ = ("items", "size")
    shape, dtype = (), np.dtype(object)

    def __init__(self, size: int, items: dict[int, Any]) -> None:
        self.size = size
        self.items = items

    def __array_ufunc__(self, ufunc: Any, method: str, *flows: Any, **_options: Any) -> Any:
        """Return the sum of two gradients of a flow; ``np.add`` is the only function called."""
        parts = [flow for flow in flows if isinstance(flow, _Elements)]
        total = _Elements(max(part.size for part in parts), dict(parts[0].items))
        for part in parts[1:]:
            for i, x in part.items.items():
                total.items[i] = total.items[i] + x if i in total.items else x
        return total


def _found(flow: Any) -> _Elements:
    return flow if isinstance(flow, _Elements) else _Elements(0, {})


def _scatter(flow: Any, indices: Any, values: Any, *, mode: str) -> _Elements:
    """Return a flow with more elements; ``mode`` is "fixed" or "grow", or "add" for a gradient."""
    old = _found(flow)
    items, size = dict(old.items), old.size
    rows = [values] if np.ndim(indices) == 0 else values
    for i, x in zip(np.ravel(indices).tolist(), rows, strict=True):
        x = np.array(x) if not isinstance(x, bytes) else as_objects(x)
        if i < 0 or (i >= size and mode == "fixed"):
            raise InvalidArgumentError(
                f"Tried to write to index {i} but array is not resizeable and size is: {size}"
            )
        if mode == "add":
            items[i] = items[i] + x if i in items else x
        elif i in items:
            raise InvalidArgumentError(
                f"Could not write to TensorArray index {i} because it has already been written to."
            )
        else:
            items[i] = x
        size = max(size, i + 1)
    return _Elements(size, items)


def _gather(flow: Any, indices: Any, sizes: Any = None, *, dtype: g.DType, shape: Shape) -> Any:
    """Return an element or a stack; with ``sizes``, its shape, missing elements are zeros."""
    old = _found(flow)
    known: Any = shape if sizes is None else sizes.tolist()[np.ndim(indices) :]
    missing = np.zeros(known, dtype.numpy) if is_known(known) else None
    rows = []
    for i in np.ravel(indices).tolist():
        x = old.items.get(i, missing)
        if x is None or (sizes is None and not 0 <= i < old.size):
            raise InvalidArgumentError(
                f"Could not read from TensorArray index {i}: "
                + ("it was not written" if 0 <= i < old.size else f"the array size is {old.size}")
            )
        rows.append(x)
    if np.ndim(indices) == 0:
        return rows[0][()] if dtype is g.string or np.ndim(rows[0]) == 0 else rows[0]
    if len({x.shape for x in rows}) > 1:
        raise InvalidArgumentError(
            f"TensorArray has inconsistent shapes: {sorted({x.shape for x in rows})}"
        )
    return np.stack(rows) if rows else np.zeros((0, *[d or 0 for d in shape or ()]), dtype.numpy)


def _gather_rule(_: g.Spec, at: g.Spec, _sizes: Any = None, *, dtype: g.DType, shape: Any) -> g.Spec:
    return g.Spec(dtype, None if at.shape is None or shape is None else (*at.shape, *shape))


def _scatter_gradient(op: g.Operation, grad: g.Tensor) -> list[Any]:
    _flow, indices, values = op.inputs
    attrs = {"dtype": values.dtype, "shape": values.spec.shape and values.spec.shape[_rank(indices) :]}
    return [grad, None, g.create_op("TensorArrayGather", (grad, indices, g.shape(values)), attrs)]


def _rank(indices: g.Tensor) -> int:
    return len(indices.spec.shape or ())


def _gather_gradient(op: g.Operation, grad: g.Tensor) -> list[Any]:
    inputs = (g.create_op("TensorArray", (0,)), op.inputs[1], grad)
    more = [None] * (len(op.inputs) - 1)
    return [g.create_op("TensorArrayScatter", inputs, {"mode": "add"}), *more]


_FLOW = g.Spec(variant, ())
g.register(g.OpDef("TensorArray", lambda size: _Elements(int(size), {}), lambda _: _FLOW, ZERO))
g.register(g.OpDef("TensorArraySize", lambda flow: np.int32(_found(flow).size),
    lambda _: g.Spec(g.int32, ()), ZERO))  # fmt: skip
g.register(g.OpDef("TensorArrayScatter", _scatter, lambda *_, mode: _FLOW, _scatter_gradient))
g.register(g.OpDef("TensorArrayGather", _gather, _gather_rule, _gather_gradient))


class TensorArray:
    """A list of tensors of one dtype, for loops. TF1: same name.

    It may be a loop variable of ``tf.while_loop``, and a result of ``tf.cond``. An element is written
    once, and can be read more than once.

    Args:
        dtype: of the elements.
        size: the number of elements, an int or an int32 scalar.
        dynamic_size: writes after the end enlarge it.
        clear_after_read: no effect: a flow keeps its elements.
        tensor_array_name: no effect, as ``colocate_with_first_write_call``.
        handle: must be None: arrays have a flow only.
        flow: the flow of another array.
        infer_shape: all elements have one static shape, that of the first one written.
        element_shape: the static shape of the elements.
        name: the node's name.

    Raises:
        ValueError: neither ``size`` nor ``flow`` is given, or a ``handle`` is.

    Errors at run time: InvalidArgumentError for an index out of range, an element that is written twice
    or read before it is written (zeros if its shape is known), or a stack of different shapes.

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

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Any = None,
        flow: g.Tensor | None = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        if handle is not None or (size is None) == (flow is None):
            raise ValueError(
                f"TensorArray() needs either size= or flow=, and no handle; got size={size!r}, "
                f"flow={flow!r}, handle={handle!r}."
            )
        self.dtype = g.as_dtype(dtype)
        self.dynamic_size = bool(dynamic_size)
        self.element_shape = g.TensorShape(element_shape)
        self.flow: g.Tensor = g.create_op("TensorArray", (size,), None, name) if flow is None else flow
        self._infers = infer_shape

    @property
    def graph(self) -> Any:
        """The graph of the flow."""
        return self.flow.graph

    def _as_tensor(self) -> g.Tensor:
        return self.flow

    def _with_tensor(self, flow: g.Tensor) -> TensorArray:
        """Return this array with another flow, such as that inside of a loop."""
        return TensorArray(
            self.dtype, None, self.dynamic_size,
            flow=flow, infer_shape=self._infers, element_shape=self.element_shape,
        )  # fmt: skip

    def identity(self) -> TensorArray:
        """Return the array with a copy of the flow, for control dependencies. TF1: same name."""
        return self._with_tensor(g.identity(self.flow))

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Return the array with an element written, which replaces this one. TF1: same name.

        TypeError or ValueError for a value of another dtype or shape.
        """
        return self._written(index, value, 0, name or "TensorArrayWrite")

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """Return the array with the rows of a tensor as its elements. TF1: same name."""
        x = g.convert_to_tensor(value, self.dtype if not hasattr(value, "dtype") else None)
        return self.scatter(g.range(g.shape(x)[0]), x, name or "TensorArrayUnstack")

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """Return the array with the rows of a tensor written at indices. TF1: same name."""
        return self._written(indices, value, 1, name or "TensorArrayScatter")

    def _written(self, indices: Any, value: Any, rank: int, name: str) -> TensorArray:
        x = g.convert_to_tensor(value, None if hasattr(value, "dtype") else self.dtype)
        if x.dtype is not self.dtype:
            raise TypeError(f"The array has elements of {self.dtype.name}, cannot write {x!r}.")
        mode = {"mode": "grow" if self.dynamic_size else "fixed"}
        flow = g.create_op("TensorArrayScatter", (self.flow, indices, x), mode, name)
        found = self._with_tensor(flow)
        if self._infers and x.shape.ndims is not None:
            found.element_shape = found.element_shape.merge_with(x.shape[rank:])
        return found

    def read(self, index: Any, name: str | None = None) -> g.Tensor:
        """Return an element. TF1: same name."""
        shape = self.element_shape
        attrs = {"dtype": self.dtype, "shape": None if shape.ndims is None else tuple(shape.as_list())}
        return g.create_op("TensorArrayGather", (self.flow, index), attrs, name or "TensorArrayRead")

    def gather(self, indices: Any, name: str | None = None) -> g.Tensor:
        """Return the stack of the elements at a vector of indices. TF1: same name."""
        return self.read(indices, name or "TensorArrayGather")

    def stack(self, name: str | None = None) -> g.Tensor:
        """Return the stack of all elements. TF1: same name."""
        return self.gather(g.range(self.size()), name or "TensorArrayStack")

    def size(self, name: str | None = None) -> g.Tensor:
        """Return the number of elements, an int32 scalar. TF1: same name."""
        return g.create_op("TensorArraySize", (self.flow,), None, name)

    def close(self, name: str | None = None) -> g.Operation:
        """Return an operation that does nothing. TF1: same name."""
        return g.no_op(name)

    def __repr__(self) -> str:
        return f"TensorArray({self.dtype.name}, element_shape={self.element_shape})"
