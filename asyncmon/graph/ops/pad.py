"""``pad``: a tensor with more around it."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.op import OpDef, Spec, register

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

    Gradients = list[Tensor | None]


def _pad(x: Array, paddings: Array, constant: Array) -> Array:
    widths = _widths(paddings, np.ndim(x))
    shape = [a + n + b for (a, b), n in zip(widths, np.shape(x), strict=True)]
    result = np.full(shape, constant, x.dtype)
    result[_inside(widths, np.shape(x))] = x
    return result


def _widths(paddings: Array, rank: int) -> list[tuple[int, int]]:
    if paddings.shape != (rank, 2):
        raise InvalidArgumentError(
            f"The first dimension of paddings must be the rank of inputs: {paddings.shape}, {rank}"
        )
    if paddings.size and paddings.min() < 0:
        raise InvalidArgumentError(f"Paddings must be non-negative: {paddings.tolist()}")
    return [(int(a), int(b)) for a, b in paddings]


def _inside(widths: list[tuple[int, int]], shape: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(builtins.slice(a, a + n) for (a, _), n in zip(widths, shape, strict=True))


def _pad_spec(x: Spec, paddings: Spec, *_constant: Spec, **_attrs: object) -> Spec:
    rules.check_dtype(paddings.dtype, (dtypes.int32, dtypes.int64), "paddings")
    rows, columns = rules.with_rank(paddings.shape, 2)
    rules.merge_dim(columns, 2)
    if x.shape is None:
        return Spec(x.dtype, None if rows is None else (None,) * rows)
    rules.merge_dim(rows, len(x.shape))
    if paddings.value is None:
        return Spec(x.dtype, (None,) * len(x.shape))
    if paddings.value.size and paddings.value.min() < 0:
        raise ValueError(f"Paddings must be non-negative: {paddings.value.tolist()}")
    added = paddings.value.sum(axis=1)
    shape = tuple(None if n is None else n + int(m) for n, m in zip(x.shape, added, strict=True))
    return Spec(x.dtype, shape)


def _pad_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, paddings, _ = op.inputs
    begin = create_op("Reshape", (paddings[:, :1], [-1]))
    return [create_op("Slice", (grad, begin, create_op("Shape", (x,)))), None, None]


def _mirror(x: Array, paddings: Array, *, mode: str) -> Array:
    widths = _widths(paddings, np.ndim(x))
    limit = 0 if mode == "symmetric" else 1
    for (a, b), n in zip(widths, np.shape(x), strict=True):
        if max(a, b) > n - limit:
            raise InvalidArgumentError(
                f"paddings must be {'no greater' if not limit else 'less'} than the dimension size: "
                f"{a}, {b} {'not ' if limit else ''}greater than {n}"
            )
    if not widths:
        return np.array(x)
    return np.pad(x, widths, mode)  # type: ignore[call-overload]  # one of numpy's modes


def _mirror_grad(grad: Array, paddings: Array, *, mode: str) -> Array:
    """Add up what each element was mirrored to, one dimension after the other."""
    for axis, (a, b) in enumerate(_widths(paddings, grad.ndim)):
        if a or b:
            count = grad.shape[axis] - a - b
            source = np.pad(np.arange(count), (a, b), mode)  # type: ignore[call-overload]
            moved = np.zeros((count, *np.delete(grad.shape, axis)), grad.dtype)
            np.add.at(moved, source, np.moveaxis(grad, axis, 0))
            grad = np.moveaxis(moved, 0, axis)
    return grad


def _mirror_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, paddings = op.inputs
    result = create_op("MirrorPadGrad", (grad, paddings), op.attrs)
    result.set_shape(x.spec.shape)
    return [result, None]


def _mirror_grad_spec(grad: Spec, paddings: Spec, *, mode: str) -> Spec:
    return Spec(grad.dtype, None if grad.shape is None else (None,) * len(grad.shape))


def _mirror_grad_gradient(op: Operation, grad: Tensor) -> Gradients:
    return [create_op("MirrorPad", (grad, op.inputs[1]), op.attrs), None]


register(OpDef("PadV2", _pad, _pad_spec, _pad_gradient))
register(OpDef("MirrorPad", _mirror, _pad_spec, _mirror_gradient))
register(OpDef("MirrorPadGrad", _mirror_grad, _mirror_grad_spec, _mirror_grad_gradient, aliases=True))


def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: Any = 0,
) -> Tensor:
    """Return a tensor with more around it. TF1: ``tf.pad``.

    Args:
        tensor: the tensor.
        paddings: how many elements to add before and after, a row of two for each dimension.
        mode: "CONSTANT", "REFLECT" (without the edge) or "SYMMETRIC" (with it), in any case.
        name: the node's name.
        constant_values: what is added in the first mode.

    Raises:
        ValueError: an unknown mode, or paddings that do not fit.
    """
    x = convert_to_tensor(tensor)
    widths = convert_to_tensor(paddings, dtypes.int32 if not is_tensor_like(paddings) else None)
    mode = mode.upper()
    if mode == "CONSTANT":
        if type(constant_values) is int and constant_values == 0:  # nothing, in any dtype
            constant_values = "" if x.dtype is dtypes.string else x.dtype.as_numpy_dtype.type(0)
        around = convert_to_tensor(constant_values, x.dtype)
        return create_op("PadV2", (x, widths, around), None, name or "Pad")
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise ValueError(
            f"Value of argument `mode` expected to be one of CONSTANT, REFLECT, SYMMETRIC, got {mode!r}"
        )
    return create_op("MirrorPad", (x, widths), {"mode": mode.lower()}, name)
