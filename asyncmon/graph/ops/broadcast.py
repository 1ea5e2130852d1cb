"""The adjoint of broadcasting: sum a gradient to the shape of an operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core.op import OpDef, register
from asyncmon.graph.core.spec import Shape, Spec
from asyncmon.graph.ops.shape_ops import broadcast_like, like

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array


def sum_to_shape(value: Array, shape: Any) -> Any:
    """Sum the axes along which an array of ``shape`` was broadcast to the shape of ``value``."""
    target = tuple(shape)
    found = np.shape(value)
    if found == target:
        return value
    extra = len(found) - len(target)
    axes = tuple(range(extra)) + tuple(
        extra + i for i, d in enumerate(target) if d == 1 and found[extra + i] != 1
    )
    return np.add.reduce(value, axis=axes, keepdims=False).reshape(target)


def _spec(value: Spec, shape: Spec) -> Spec:
    return Spec(value.dtype, shape.known_dims())


def _gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    value, _ = op.inputs
    return [broadcast_like(grad, value), None]


register(OpDef("SumToShape", sum_to_shape, _spec, _gradient, aliases=True))


def unbroadcast(grad: Tensor, operand: Tensor, other: Tensor) -> Tensor:
    """Return ``grad``, of the shape of ``operand + other``, summed to the shape of ``operand``.

    Adds no node where the static shapes say that ``operand`` was not broadcast.
    """
    shape = operand.spec.shape
    if operand is other or not _is_broadcast(shape, other.spec.shape):
        return grad
    return like("SumToShape", (grad,), operand)


def _is_broadcast(shape: Shape, other: Shape) -> bool:
    """Return false where the static shapes say that the first operand is not broadcast."""
    if shape is None or other is None or len(other) > len(shape):
        return True
    tail = shape[len(shape) - len(other) :]
    return any((a is None or a == 1) and b != 1 for a, b in zip(tail, other, strict=True))
