"""Diagonals, bands and norms of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.construction.build import convert_to_tensor, create_op, name_scope
from asyncmon.graph.construction.convert import renamed_argument
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.op import OpDef, register
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.ops.axes import axes_of
from asyncmon.graph.ops.create import zeros_like
from asyncmon.graph.ops.functions import abs, sqrt
from asyncmon.graph.ops.gather import gather
from asyncmon.graph.ops.join import concat
from asyncmon.graph.ops.reduce import reduce_max, reduce_prod, reduce_sum
from asyncmon.graph.ops.shape_ops import cast, reshape, shape

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array


# --- diagonals ------------------------------------------------------------------------------------
def _matrix_diag(diagonal: Array) -> Array:
    n = diagonal.shape[-1]
    result = np.zeros((*diagonal.shape, n), diagonal.dtype)
    result[..., np.arange(n), np.arange(n)] = diagonal
    return result


def _matrix_diag_rule(diagonal: Spec) -> Spec:
    shape = rules.with_rank_at_least(diagonal.shape, 1)
    return Spec(diagonal.dtype, None if shape is None else (*shape, shape[-1]))


def _part(x: Array) -> Any:
    return np.diagonal(x, axis1=-2, axis2=-1)


def _part_rule(x: Spec) -> Spec:
    shape = rules.with_rank_at_least(x.shape, 2)
    if shape is None:
        return Spec(x.dtype, None)
    rows, columns = shape[-2:]
    least = None if rows is None or columns is None else min(rows, columns)
    return Spec(x.dtype, (*shape[:-2], least))


def _set_diag(x: Array, diagonal: Array) -> Array:
    result, at = np.array(x), np.arange(min(x.shape[-2:]))
    if diagonal.shape != (*x.shape[:-2], len(at)):
        raise InvalidArgumentError(
            f"The diagonal of a tensor of shape {list(x.shape)} has shape "
            f"{[*x.shape[:-2], len(at)]}, got {list(diagonal.shape)}"
        )
    result[..., at, at] = diagonal
    return result


def _set_rule(x: Spec, diagonal: Spec) -> Spec:
    rules.check_same_dtype("MatrixSetDiag", x, diagonal, ("input", "diagonal"))
    rules.merge(_part_rule(x).shape, diagonal.shape)
    return Spec(x.dtype, x.shape)


def _set_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    diagonal = create_op("MatrixDiagPart", (grad,))
    return [create_op("MatrixSetDiag", (grad, zeros_like(diagonal))), diagonal]


def _part_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    return [create_op("MatrixSetDiag", (zeros_like(op.inputs[0]), grad))]


register(OpDef("MatrixDiag", _matrix_diag, _matrix_diag_rule,
    lambda op, grad: [create_op("MatrixDiagPart", (grad,))]))  # fmt: skip
register(OpDef("MatrixDiagPart", _part, _part_rule, _part_gradient, aliases=True))
register(OpDef("MatrixSetDiag", _set_diag, _set_rule, _set_gradient))


def matrix_diag(diagonal: Any, name: str | None = None) -> Tensor:
    """Return square matrices with the last dimension on their diagonals. TF1: same name.

    Other diagonals than the main one are not supported.
    """
    return create_op("MatrixDiag", (diagonal,), None, name or "diag")


def matrix_diag_part(input: Any, name: str | None = None) -> Tensor:
    """Return the main diagonals of matrices, the last two dimensions. TF1: same name."""
    return create_op("MatrixDiagPart", (input,), None, name or "diag_part")


def matrix_set_diag(input: Any, diagonal: Any, name: str | None = None) -> Tensor:
    """Return matrices with other main diagonals. TF1: same name."""
    x = convert_to_tensor(input)
    return create_op("MatrixSetDiag", (x, diagonal), None, name or "set_diag")


def diag(diagonal: Any, name: str | None = None) -> Tensor:
    """Return a tensor of twice the rank with the elements on its diagonal. TF1: ``tf.diag``."""
    with name_scope(name, "Diag"):
        x = convert_to_tensor(diagonal)
        rules.with_rank_at_least(x.spec.shape, 1)
        sizes = shape(x)
        result = reshape(matrix_diag(reshape(x, [-1])), concat([sizes, sizes], 0))
        if x.spec.shape is not None:
            result.set_shape(x.spec.shape * 2)
        return result


def diag_part(input: Any, name: str | None = None) -> Tensor:
    """Return the diagonal of a tensor whose shape is some sizes twice. TF1: ``tf.diag_part``.

    Raises:
        ValueError: the rank is not known, odd or zero, or the shape is none of these.
    """
    with name_scope(name, "DiagPart"):
        x = convert_to_tensor(input)
        known = x.spec.shape
        if not known or len(known) % 2:
            raise ValueError(f"diag_part() needs a known even rank of at least 2, got {x!r}.")
        half = len(known) // 2
        kept = rules.merge(known[:half], known[half:])
        sizes = shape(x)[:half]
        rows = reduce_prod(sizes)
        result = reshape(matrix_diag_part(reshape(x, [rows, rows])), sizes)
        result.set_shape(kept)
        return result


def trace(x: Any, name: str | None = None) -> Tensor:
    """Return the sums of the diagonals of matrices, the last two dimensions. TF1: same name."""
    with name_scope(name, "Trace"):
        return reduce_sum(matrix_diag_part(x), [-1])


# --- bands ----------------------------------------------------------------------------------------
def _band(x: Array, lower: Array, upper: Array) -> Any:
    rows, columns = x.shape[-2:]
    below, above = int(lower), int(upper)
    if below > rows or above > columns:
        raise InvalidArgumentError(
            f"num_lower and num_upper must be at most the sizes {rows}, {columns}, got {below}, {above}"
        )
    offset = np.arange(columns) - np.arange(rows)[:, None]
    inside = ((below < 0) | (-offset <= below)) & ((above < 0) | (offset <= above))
    return np.where(inside, x, x.dtype.type(0))


def _band_rule(x: Spec, lower: Spec, upper: Spec) -> Spec:
    for bound, what in ((lower, "num_lower"), (upper, "num_upper")):
        rules.check_dtype(bound.dtype, (dtypes.int32, dtypes.int64), what)
        rules.with_rank(bound.shape, 0)
    rules.with_rank_at_least(x.shape, 2)
    return Spec(x.dtype, x.shape)


register(OpDef("MatrixBandPart", _band, _band_rule, lambda op, grad:
    [create_op("MatrixBandPart", (grad, *op.inputs[1:])), None, None]))  # fmt: skip


def matrix_band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> Tensor:
    """Return matrices with zeros outside of a band around the diagonal. TF1: same name.

    ``num_lower`` diagonals below and ``num_upper`` above the main one are kept; all if negative.
    """
    inputs = (convert_to_tensor(input), num_lower, num_upper)
    return create_op("MatrixBandPart", inputs, None, name)


# --- norms ----------------------------------------------------------------------------------------
def norm(
    tensor: Any,
    ord: Any = "euclidean",
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the norms of vectors or matrices. TF1: ``tf.norm``.

    Args:
        tensor: floats or complex numbers.
        ord: "euclidean", a positive number, or numpy's ``inf``; of matrices also "fro", 1 and inf.
        axis: None: all elements as one vector; an int: vectors; two ints: matrices.
        keepdims: keep the axes, with size 1.
        name: the scope of the ops.
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
    with name_scope(name, "norm"):
        x = convert_to_tensor(tensor)
        size = abs(x)
        if ord in ("euclidean", "fro", 2):
            squares = reduce_sum(size * size, axes, True)
            result = sqrt(squares)
        elif matrix:
            assert isinstance(axes, tuple)
            down, across = axes if ord == 1 else axes[::-1]
            result = reduce_max(reduce_sum(size, down, True), across, True)
        elif ord == np.inf:
            result = reduce_max(size, axes, True)
        elif ord == 1:
            result = reduce_sum(size, axes, True)
        else:
            result = reduce_sum(size**ord, axes, True) ** (1.0 / ord)
        result = result if keep else reduce_sum(result, axes)
        return cast(result, x.dtype)  # that of complex numbers is complex, too


def cross(a: Any, b: Any, name: str | None = None) -> Tensor:
    """Return the cross products of vectors of three elements, the last dimension. TF1: same name."""
    with name_scope(name, "Cross"):
        x, y = convert_to_tensor(a), convert_to_tensor(b)
        for vector in (x, y):
            known = rules.with_rank_at_least(vector.spec.shape, 1)
            rules.merge_dim(3, None if known is None else known[-1])
        once, twice = (gather(x, at, axis=-1) for at in ([1, 2, 0], [2, 0, 1]))
        other_once, other_twice = (gather(y, at, axis=-1) for at in ([1, 2, 0], [2, 0, 1]))
        return once * other_twice - twice * other_once
