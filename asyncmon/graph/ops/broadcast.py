"""The adjoint of broadcasting: sum a gradient to the shape of an operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core.op import OpDef, register
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.ops.shape_ops import broadcast_like, like

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.kernels.arrays import Array


def sum_to_shape(value: Array, shape: Any) -> Any:
    """Sum the axes along which an array of ``shape`` was broadcast to the shape of ``value``."""
    target, found = tuple(shape), np.shape(value)
    if found == target:
        return value
    padded = (1,) * (len(found) - len(target)) + target
    axes = tuple(i for i, d in enumerate(found) if i < len(found) - len(target) or d != padded[i])
    return np.add.reduce(value, axis=axes, keepdims=False).reshape(target)


register(OpDef("SumToShape", sum_to_shape, lambda value, shape: Spec(value.dtype, shape.known_dims()),
    lambda op, grad: [broadcast_like(grad, op.inputs[0]), None], aliases=True))  # fmt: skip


def unbroadcast(grad: Tensor, operand: Tensor, other: Tensor) -> Tensor:
    """Return ``grad``, of the shape of ``operand + other``, summed to the shape of ``operand``.

    Adds no node where the static shapes say that ``operand`` was not broadcast.
    """
    x, y = operand.spec.shape, other.spec.shape
    if operand is other:
        return grad
    if x is not None and y is not None and len(x) >= len(y):
        pairs = zip(x[len(x) - len(y) :], y, strict=True)
        if not any((a is None or a == 1) and b != 1 for a, b in pairs):
            return grad
    return like("SumToShape", (grad,), operand)
