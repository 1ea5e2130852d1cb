"""Diagonals and norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import rules
from asyncmon.graph.core.build import axes_of
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.graph.core.shape import merge

__all__ = [
    "clip_by_average_norm", "diag", "diag_part", "matrix_determinant", "matrix_inverse", "norm",
]  # fmt: skip

_OF_DIAGONALS = (*rules.FLOATS, g.int32, g.int64, *rules.COMPLEX)


# --- diagonals ------------------------------------------------------------------------------------
def diag(diagonal: Any, name: str | None = None) -> g.Tensor:
    """Return a tensor of twice the rank with the elements on its diagonal. TF1: ``tf.diag``."""
    with g.name_scope(name, "Diag"):
        x = g.convert_to_tensor(diagonal)
        rules.check_dtype(x.dtype, _OF_DIAGONALS, "diagonal")
        rules.with_rank_at_least(x.spec.shape, 1)
        sizes, flat = g.shape(x), g.reshape(x, [-1])
        count = g.shape(flat)[0]
        spread = g.scatter_nd(
            g.expand_dims(_positions(count), 1), flat, g.expand_dims(count * count, 0)
        )
        result = g.reshape(spread, g.concat([sizes, sizes], 0))
        if x.spec.shape is not None:
            result.set_shape(x.spec.shape * 2)
        return result


def diag_part(input: Any, name: str | None = None) -> g.Tensor:
    """Return the diagonal of a tensor whose shape is some sizes twice. TF1: ``tf.diag_part``.

    ValueError if the rank is not known, odd or zero, or the shape is none of these.
    """
    with g.name_scope(name, "DiagPart"):
        x = g.convert_to_tensor(input)
        known = x.spec.shape
        if not known or len(known) % 2:
            raise ValueError(f"diag_part() needs a known even rank of at least 2, got {x!r}.")
        half = len(known) // 2
        kept = merge(known[:half], known[half:])
        sizes = g.shape(x)[:half]
        result = g.reshape(g.gather(g.reshape(x, [-1]), _positions(g.reduce_prod(sizes))), sizes)
        result.set_shape(kept)
        return result


def _positions(count: g.Tensor) -> g.Tensor:
    """Return the positions of the diagonal in the elements of a square matrix of this size."""
    return g.range(count) * (count + 1)


# --- determinants and inverses --------------------------------------------------------------------
def _square(x: g.Spec) -> tuple[int | None, ...] | None:
    rules.check_dtype(x.dtype, (*rules.FLOATS, *rules.COMPLEX), "input")
    rules.with_rank_at_least(x.shape, 2)
    if x.shape is not None:
        merge(x.shape[-1:], x.shape[-2:-1])
    return x.shape


def _as(function: Any, x: Any) -> Any:
    """Compute half precision in float32: LAPACK has none."""
    half = x.dtype.itemsize == 2
    return np.asarray(function(x.astype(np.float32) if half else x), x.dtype)


def _determinant_rule(x: g.Spec) -> g.Spec:
    shape = _square(x)
    return g.Spec(x.dtype, None if shape is None else shape[:-2])


def _inverse(x: Any, *, adjoint: bool) -> Any:
    try:
        return _as(np.linalg.inv, np.conj(np.swapaxes(x, -1, -2)) if adjoint else x)
    except np.linalg.LinAlgError:
        raise InvalidArgumentError("Input is not invertible.") from None


def _inverse_rule(x: g.Spec, *, adjoint: bool) -> g.Spec:
    return g.Spec(x.dtype, _square(x))


def _determinant_gradient(op: g.Operation, grad: g.Tensor) -> list[g.Tensor | None]:
    inverse = matrix_inverse(op.inputs[0], adjoint=True)
    scale = grad * op.outputs[0]
    return [g.expand_dims(g.expand_dims(scale, -1), -1) * inverse]


def _inverse_gradient(op: g.Operation, grad: g.Tensor) -> list[g.Tensor | None]:
    y = op.outputs[0]
    if op.attrs["adjoint"]:
        return [-g.matmul(y, g.matmul(grad, y, adjoint_a=True), adjoint_b=False)]
    return [-g.matmul(y, g.matmul(grad, y, adjoint_b=True), adjoint_a=True)]


g.register(g.OpDef("MatrixDeterminant", lambda x: _as(np.linalg.det, x),
    _determinant_rule, _determinant_gradient))  # fmt: skip
g.register(g.OpDef("MatrixInverse", _inverse, _inverse_rule, _inverse_gradient))


def matrix_determinant(input: Any, name: str | None = None) -> g.Tensor:
    """Return the determinants of the inner matrices. TF1: same name."""
    return g.create_op("MatrixDeterminant", (g.convert_to_tensor(input),), None, name)


def matrix_inverse(input: Any, adjoint: bool = False, name: str | None = None) -> g.Tensor:
    """Return the inverses of the inner matrices, or of their adjoints. TF1: same name.

    InvalidArgumentError in the run for a matrix that has none.
    """
    attrs = {"adjoint": bool(adjoint)}
    return g.create_op("MatrixInverse", (g.convert_to_tensor(input),), attrs, name)


# --- norms ----------------------------------------------------------------------------------------
def norm(
    tensor: Any,
    ord: Any = "euclidean",
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    keep_dims: bool | None = None,
) -> g.Tensor:
    """Return the norms of vectors or matrices. TF1: ``tf.norm``.

    Args:
        tensor: floats or complex numbers.
        ord: "euclidean", a positive number, or numpy's ``inf``; of matrices also "fro", 1 and inf.
        axis: None: all elements as one vector; an int: vectors; two ints: matrices.
        keepdims: keep the axes, with size 1.
        keep_dims: an old name of ``keepdims``.

    Raises:
        ValueError: an order or axes that are not defined.
    """
    keep = bool(renamed_argument("keepdims", keepdims, "keep_dims", keep_dims))
    axes = axes_of(axis)
    matrix = isinstance(axis, list | tuple)
    if matrix and (not isinstance(axes, tuple) or len(axes) != 2 or axes[0] == axes[1]):
        raise ValueError(f"'axis' must be None, an integer, or two distinct integers, got {axis!r}")
    if ord not in (["euclidean", "fro", 1, np.inf] if matrix else ["euclidean", 1, 2, np.inf]) and (
        matrix or isinstance(ord, str) or ord <= 0
    ):
        kind = "matrix" if matrix else "vector"
        raise ValueError(f"'ord' is not supported as a {kind} norm, got {ord!r}")
    with g.name_scope(name, "norm"):
        x = g.convert_to_tensor(tensor)
        size = g.abs(x)
        if ord in ("euclidean", "fro", 2):
            squares = g.reduce_sum(size * size, axes, True)
            result = g.sqrt(squares)
        elif matrix:
            assert isinstance(axes, tuple)
            down, across = axes if ord == 1 else axes[::-1]
            result = g.reduce_max(g.reduce_sum(size, down, True), across, True)
        elif ord == np.inf:
            result = g.reduce_max(size, axes, True)
        elif ord == 1:
            result = g.reduce_sum(size, axes, True)
        else:
            result = g.reduce_sum(size**ord, axes, True) ** (1.0 / ord)
        result = result if keep else g.reduce_sum(result, axes)
        return g.cast(result, x.dtype)  # that of complex numbers is complex, too


def clip_by_average_norm(t: Any, clip_norm: Any, name: str | None = None) -> g.Tensor:
    """Scale a tensor down to a norm per element of at most ``clip_norm``.

    TF1: same name.
    """
    x = g.convert_to_tensor(t)
    with g.name_scope(name, "clip_by_average_norm", [x]) as scope:
        count = g.cast(g.size(x), x.dtype)
        inverse = g.rsqrt(g.reduce_sum(g.square(x)))
        limit = g.convert_to_tensor(clip_norm, x.dtype)
        scale = limit * g.minimum(inverse * count, 1 / limit)
        return g.create_op("Mul", (x, scale), None, scope)
