"""Products of matrices, and orthogonal ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.build import convert_pair, create_op
from asyncmon.graph.core.op import OpDef, register
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.kernels.matmul import product
from asyncmon.graph.ops.shape_ops import like

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array


def _matmul(
    a: Array, b: Array, out: Array | None = None, *, transpose_a: bool, transpose_b: bool
) -> Any:
    if transpose_a:
        a = a.swapaxes(-1, -2)
    if transpose_b:
        b = b.swapaxes(-1, -2)
    if a.dtype.char == "e":  # numpy multiplies halves one by one
        return product(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    return product(a, b, out)


def _multiplications(a: Spec, b: Spec, result: Spec, *, transpose_a: bool, transpose_b: bool) -> int:
    inner = (a.shape or ())[-2 if transpose_a else -1]
    return (rules.num_elements(result.shape) or 0) * (inner or 0)


def _matmul_shape(a: Spec, b: Spec, *, transpose_a: bool, transpose_b: bool) -> Spec:
    rules.check_same_dtype("MatMul", a, b, ("a", "b"))
    rules.check_dtype(a.dtype, rules.NUMBERS, "a")
    for spec in (a, b):
        rules.with_rank_at_least(spec.shape, 2)
    if a.shape is None or b.shape is None:
        return Spec(a.dtype, None)
    rows, inner = a.shape[-2:] if not transpose_a else a.shape[:-3:-1]
    inner_b, columns = b.shape[-2:] if not transpose_b else b.shape[:-3:-1]
    rules.merge_dim(inner, inner_b)
    batch = rules.broadcast(a.shape[:-2], b.shape[:-2]) or ()
    return Spec(a.dtype, (*batch, rows, columns))


def _matmul_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    a, b = op.inputs
    flip_a, flip_b = op.attrs["transpose_a"], op.attrs["transpose_b"]
    grad_a = _product(b, grad, flip_b, True) if flip_a else _product(grad, b, False, not flip_b)
    grad_b = _product(grad, a, True, flip_a) if flip_b else _product(a, grad, not flip_a, False)
    if _is_matrix(a) and _is_matrix(b):
        return [grad_a, grad_b]
    return [_sum_batch(grad_a, a, b), _sum_batch(grad_b, b, a)]


def _is_matrix(x: Tensor) -> bool:
    return x.spec.shape is not None and len(x.spec.shape) == 2


def _product(x: Tensor, y: Tensor, flip_x: bool, flip_y: bool) -> Tensor:
    return create_op("MatMul", (x, y), {"transpose_a": flip_x, "transpose_b": flip_y})


def _sum_batch(grad: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """Sum the gradient over the batch dimensions along which ``x`` was broadcast."""
    if x.spec.shape is not None and other.spec.shape is not None:
        batch, other_batch = x.spec.shape[:-2], other.spec.shape[:-2]
        if batch == other_batch and None not in batch:
            return grad
    return like("SumToShape", (grad,), x)


register(OpDef("MatMul", _matmul, _matmul_shape, _matmul_gradient, out=True, flops=_multiplications))


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the product of matrices, or of batches of them that broadcast. TF1: ``tf.matmul``.

    Args:
        a: tensor of rank 2 or higher; the last two dimensions are the matrix.
        b: tensor of the same dtype.
        transpose_a: take the transpose of each matrix of ``a``.
        transpose_b: take the transpose of each matrix of ``b``.
        adjoint_a: the same for real tensors.
        adjoint_b: the same for real tensors.
        a_is_sparse: a hint of the original's, which changes no value.
        b_is_sparse: likewise.

    Raises:
        ValueError: shapes do not fit, or both transpose and adjoint are asked for.
        TypeError: dtypes differ.
    """
    if transpose_a and adjoint_a:
        raise ValueError("Only one of `transpose_a` and `adjoint_a` can be True.")
    if transpose_b and adjoint_b:
        raise ValueError("Only one of `transpose_b` and `adjoint_b` can be True.")
    x, y = convert_pair(a, b, name or "MatMul")
    if adjoint_a and x.dtype.is_complex:
        x, adjoint_a, transpose_a = create_op("Conj", (x,)), False, True
    if adjoint_b and y.dtype.is_complex:
        y, adjoint_b, transpose_b = create_op("Conj", (y,)), False, True
    attrs = {"transpose_a": transpose_a or adjoint_a, "transpose_b": transpose_b or adjoint_b}
    return create_op("MatMul", (x, y), attrs, name)


def _orthogonal_basis(normal: Array) -> Any:
    """Return an orthonormal basis of the columns, uniformly distributed for normal input."""
    q, r = np.linalg.qr(normal.astype(np.float64, copy=False))
    return (q * np.sign(np.diagonal(r))).astype(normal.dtype)


register(OpDef("OrthogonalBasis", _orthogonal_basis, rules.like_first))
