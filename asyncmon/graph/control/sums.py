"""Sums over the elements of stacks: what the gradient of a loop makes of terms of its iterations.

A stack is an array; where the shapes of its elements differ, an array of arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.shape import Shape
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.linalg import float_product, product_gradients
from asyncmon.graph.ops.shape_ops import broadcast_like, like, sum_to_shape


def _rows(stack: Array, axis: int) -> Any:
    """Return matrices put below (axis 0) or beside each other."""
    if stack.dtype == object or not len(stack):
        return np.concatenate(list(stack), axis) if len(stack) else None
    if axis:
        return stack.swapaxes(0, 1).reshape(stack.shape[1], -1)
    return stack.reshape(-1, *stack.shape[2:])


def _product(
    a: Array, b: Array, out: Array | None = None, *, transpose_a: bool, transpose_b: bool, shape: Shape
) -> Any:
    if not len(a):
        found = np.empty([d or 0 for d in shape or ()], a.dtype) if out is None else out
        found.fill(0)
        return found
    left, right = _rows(a, int(not transpose_a)), _rows(b, int(transpose_b))
    left, right = left.T if transpose_a else left, right.T if transpose_b else right
    return float_product(left, right, out)


def _product_spec(a: Spec, b: Spec, *, shape: Shape, **_attrs: Any) -> Spec:
    return Spec(a.dtype, shape)


def _flops(a: Spec, b: Spec, result: Spec, *, shape: Shape, **_attrs: Any) -> int:
    (n, rows, columns), (_, *others) = a.shape or (0, 0, 0), b.shape or (0, 0, 0)
    return (n or 0) * (rows or 0) * (columns or 0) * (max([d or 0 for d in others]))


def _sum(stack: Array, shape: Array) -> Any:
    if stack.dtype == object:
        return sum([sum_to_shape(x, shape) for x in stack])
    if len(shape) == 1 and stack.ndim > 2 and stack.shape[-1] == shape[0]:
        return np.add.reduce(stack.reshape(-1, stack.shape[-1]), axis=0, dtype=stack.dtype)
    return sum_to_shape(stack, shape)


def _concat(stack: Array) -> Any:
    found = _rows(stack, 0)
    return np.zeros((0, *stack.shape[2:]), stack.dtype) if found is None else found


register(OpDef("StackedProduct", _product, _product_spec, product_gradients, out=True, flops=_flops))
register(OpDef("StackedSum", _sum, lambda stack, shape: Spec(stack.dtype, shape.known_dims()),
    lambda op, grad: [broadcast_like(grad, op.inputs[0]), None], aliases=True))  # fmt: skip
register(OpDef("StackedConcat", _concat,
    lambda stack: Spec(stack.dtype, None if stack.shape is None else (None, *stack.shape[2:])),
    lambda op, grad: [like("Reshape", (grad,), op.inputs[0])], aliases=True))  # fmt: skip


def sum_of_products(a: Tensor, b: Tensor, product: Operation) -> Tensor:
    """Return the sum of the products of the elements of two stacks of matrices; ``product`` is one."""
    attrs = {**product.attrs, "shape": product.outputs[0].spec.shape}
    return create_op("StackedProduct", (a, b), attrs)


def sum_to_like(stack: Tensor, x: Tensor) -> Tensor:
    """Return the sum of a stack's elements, each of which is summed to the shape of ``x``."""
    return like("StackedSum", (stack,), x)


def concat_rows(stack: Tensor) -> Tensor:
    """Return the elements of a stack, put below each other."""
    return create_op("StackedConcat", (stack,))
