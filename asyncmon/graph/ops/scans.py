"""Along one axis: where the extreme is (argmax, argmin), and running sums and products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.arguments import renamed_argument, static_int
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.op import OpDef, Spec, register

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array


__all__ = ["argmax", "argmin", "cumprod", "cumsum"]


_OUTSIDE = (
    "Dimension ({axis}) must be in the range {range}, where {rank} is the number of dimensions "
    "in the input"
)


def _arg_shape(x: Spec, *, axis: int, output_type: dtypes.DType) -> Spec:
    rules.check_dtype(x.dtype, (*rules.REALS, dtypes.bool), "input")
    if x.shape is None:
        return Spec(output_type, None)
    axis = rules.normalize_axis(axis, len(x.shape), error=_OUTSIDE)
    return Spec(output_type, x.shape[:axis] + x.shape[axis + 1 :])


def _arg_kernel(find: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: Array, *, axis: int, output_type: dtypes.DType) -> Any:
        if not np.ndim(x):  # numpy takes it for a vector
            raise InvalidArgumentError(f"Expected dimension in the range [0, 0), but got {axis}")
        return np.asarray(find(x, axis=axis), dtype=output_type.as_numpy_dtype)

    return kernel


register(OpDef("ArgMax", _arg_kernel(np.argmax), _arg_shape, rules.no_gradient))
register(OpDef("ArgMin", _arg_kernel(np.argmin), _arg_shape, rules.no_gradient))


def _arg(
    op_type: str, input: Any, axis: Any, name: str | None, dimension: Any, output_type: Any
) -> Tensor:
    axis = renamed_argument("axis", axis, "dimension", dimension)
    output = dtypes.as_dtype(output_type)
    rules.check_dtype(output, (dtypes.int32, dtypes.int64), "output_type")
    attrs = {"axis": 0 if axis is None else static_int(axis, "axis"), "output_type": output}
    return create_op(op_type, (convert_to_tensor(input),), attrs, name)


def argmax(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = dtypes.int64,
) -> Tensor:
    """Return the position of the greatest element along an axis, 0 by default. TF1: ``tf.argmax``."""
    return _arg("ArgMax", input, axis, name, dimension, output_type)


def argmin(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = dtypes.int64,
) -> Tensor:
    """Return the position of the smallest element along an axis, 0 by default. TF1: ``tf.argmin``."""
    return _arg("ArgMin", input, axis, name, dimension, output_type)


def _scan(ufunc: np.ufunc) -> Callable[..., Any]:
    def kernel(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Any:
        moved = np.moveaxis(x, axis, 0)
        if reverse:
            moved = moved[::-1]
        result = np.empty_like(moved)
        if exclusive:
            if len(moved):
                result[0] = ufunc.identity
                ufunc.accumulate(moved[:-1], axis=0, out=result[1:])
        else:
            ufunc.accumulate(moved, axis=0, out=result)
        return np.moveaxis(result[::-1] if reverse else result, 0, axis)

    return kernel


def _scan_shape(x: Spec, *, axis: int, exclusive: bool, reverse: bool) -> Spec:
    rules.check_dtype(x.dtype, rules.NUMBERS)
    if x.shape is not None:
        rules.normalize_axis(axis, len(x.shape))
    return Spec(x.dtype, x.shape)


def _cumsum_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    return [create_op("Cumsum", (grad,), {**op.attrs, "reverse": not op.attrs["reverse"]})]


def _cumprod_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    (x,) = op.inputs
    weighted = grad * op.outputs[0]
    return [create_op("Cumsum", (weighted,), {**op.attrs, "reverse": not op.attrs["reverse"]}) / x]


register(OpDef("Cumsum", _scan(np.add), _scan_shape, _cumsum_gradient))
register(OpDef("Cumprod", _scan(np.multiply), _scan_shape, _cumprod_gradient))


def _scan_attrs(axis: Any, exclusive: bool, reverse: bool) -> dict[str, Any]:
    return {"axis": static_int(axis, "axis"), "exclusive": bool(exclusive), "reverse": bool(reverse)}


def cumsum(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Return the running sum along an axis. TF1: ``tf.cumsum``.

    Args:
        x: the tensor.
        axis: to sum along.
        exclusive: the first result is 0, the last element is not added.
        reverse: start from the end.
        name: the node's name.
    """
    return create_op("Cumsum", (x,), _scan_attrs(axis, exclusive, reverse), name)


def cumprod(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Return the running product along an axis; arguments as :func:`cumsum`. TF1: ``tf.cumprod``.

    Its gradient divides by ``x``, as the original's does: it is not defined where an element is 0.
    """
    return create_op("Cumprod", (x,), _scan_attrs(axis, exclusive, reverse), name)
