"""Functions of ``tf.math``, ``tf.linalg`` and ``tf.random`` that are not in ``tf`` itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon import graph as g
from asyncmon.tf1.more_math import matrix_transpose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph import Tensor

__all__ = [
    "adjoint", "categorical", "matvec", "multiply_no_nan", "polyval", "reciprocal_no_nan",
    "reduce_euclidean_norm",
]  # fmt: skip


def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Return the root of the sum of squares along axes. TF1: ``tf.math.reduce_euclidean_norm``."""
    with g.name_scope(name, "EuclideanNorm"):
        x = g.convert_to_tensor(input_tensor)
        return g.sqrt(g.reduce_sum(g.square(x), axis, keepdims))


def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x * y``, 0 where ``y`` is 0, whatever ``x`` is. TF1: ``tf.math.multiply_no_nan``."""
    with g.name_scope(name, "multiply_no_nan"):
        y = g.convert_to_tensor(y)
        zero = g.equal(y, 0)
        x = g.convert_to_tensor(x, y.dtype)
        kept = g.create_op("SelectV2", (zero, g.zeros_like(x * y), x))
        return g.multiply(kept, y)


def reciprocal_no_nan(x: Any, name: str | None = None) -> Tensor:
    """Return ``1 / x``, 0 where ``x`` is 0. TF1: ``tf.math.reciprocal_no_nan``."""
    x = g.convert_to_tensor(x)
    return g.div_no_nan(g.ones_like(x), x, name)


def polyval(coeffs: Sequence[Any], x: Any, name: str | None = None) -> Tensor:
    """Return the value of a polynomial, its highest coefficient first. TF1: ``tf.math.polyval``.

    Raises:
        ValueError: the coefficients are no list.
    """
    if not isinstance(coeffs, list):
        raise ValueError(f"Argument coeffs must be list type, got {coeffs!r}.")
    with g.name_scope(name, "polyval"):
        x = g.convert_to_tensor(x)
        total = g.zeros_like(x)
        for one in coeffs:
            total = total * x + g.convert_to_tensor(one, x.dtype)
        return total


def matvec(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the products of matrices and vectors. TF1: ``tf.linalg.matvec``."""
    with g.name_scope(name, "MatVec"):
        product = g.matmul(
            a,
            g.expand_dims(b, -1),
            transpose_a=transpose_a,
            adjoint_a=adjoint_a,
            a_is_sparse=a_is_sparse,
            b_is_sparse=b_is_sparse,
        )
        return g.squeeze(product, [-1])


def adjoint(matrix: Any, name: str | None = None) -> Tensor:
    """Return the conjugates of matrices, transposed. TF1: ``tf.linalg.adjoint``."""
    return matrix_transpose(matrix, name or "adjoint", conjugate=True)


def categorical(
    logits: Any,
    num_samples: Any,
    dtype: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return classes drawn by unnormalised log probabilities. TF1: ``tf.random.categorical``."""
    return g.multinomial(logits, num_samples, seed, name, g.int64 if dtype is None else dtype)
