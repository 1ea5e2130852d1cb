"""Random numbers: random_uniform, random_normal, truncated_normal, random_shuffle, multinomial, bases.

The numbers of an op depend only on its seeds and on the number of earlier runs of the session that
computed it. These counts are part of the state and of checkpoints: a restored session continues the
sequences of the saved one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_to_tensor, create_op, name_scope, shape_tensor
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import ZERO, OpDef, RandomOpDef, Spec, register
from asyncmon.graph.core.rules import shape_from
from asyncmon.graph.numerics.arrays import Array

if TYPE_CHECKING:
    from numpy.random import Generator


def _drawn_rule(shape: Spec, *_bounds: Spec, dtype: dtypes.DType, seed: int | None = None) -> Spec:
    rules.check_dtype(shape.dtype, (dtypes.int32, dtypes.int64), "shape")
    return Spec(dtype, shape_from(shape))


def _kernel(draw: Callable[[Generator, Any, Any], Any]) -> Callable[..., Array]:
    """Return the kernel of a function that draws float32 or float64; float16 is rounded float32."""

    def kernel(shape: Array, *, dtype: dtypes.DType, rng: Generator) -> Array:
        target = dtype.numpy
        wide = target if target.itemsize > 2 else np.dtype(np.float32)
        return np.asarray(draw(rng, tuple(shape.tolist()), wide)).astype(target, copy=False)

    return kernel


def _truncated(rng: Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    values = np.asarray(rng.standard_normal(shape, dtype))
    flat = values.reshape(-1)
    outside = np.flatnonzero(np.abs(flat) > 2)
    while outside.size:
        again = rng.standard_normal(outside.size, dtype)
        flat[outside] = again
        outside = outside[np.abs(again) > 2]
    return values


def _uniform_int(shape: Array, low: Array, high: Array, *, dtype: dtypes.DType, rng: Generator) -> Any:
    if not low < high:
        raise InvalidArgumentError(f"Need minval < maxval, got {low} >= {high}")
    return rng.integers(low, high, tuple(shape.tolist()), dtype.numpy)


def _uniform(shape: Array, *, dtype: dtypes.DType, rng: Generator) -> Array:
    if dtype is dtypes.float16:  # with so few digits that none rounds up to 1
        return (rng.integers(0, 2048, shape.tolist()) / 2048).astype(np.float16)
    return np.asarray(rng.random(shape.tolist(), dtype.numpy))


register(RandomOpDef("RandomUniform", _uniform, _drawn_rule, ZERO))
register(RandomOpDef("RandomUniformInt", _uniform_int, _drawn_rule, ZERO))
register(RandomOpDef("RandomStandardNormal", _kernel(lambda rng, *args: rng.standard_normal(*args)),
    _drawn_rule, ZERO))  # fmt: skip
register(RandomOpDef("TruncatedNormal", _kernel(_truncated), _drawn_rule, ZERO))


def random_uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return numbers from the uniform distribution on [minval, maxval). TF1: ``tf.random_uniform``.

    ``maxval`` is 1 by default, and required for integers: int32 or int64. The seed is by default
    derived from the graph's seed and the number of the op.
    """
    wanted, accepted = dtypes.as_dtype(dtype), (*rules.FLOATS, dtypes.int32, dtypes.int64)
    if wanted not in accepted:
        raise ValueError(
            f"Argument `dtype` got invalid value {wanted.name}. Accepted dtypes are "
            f"{[d.name for d in accepted]}."
        )
    if maxval is None and wanted.is_integer:
        raise ValueError(f"Must specify maxval for integer dtype {wanted.name}")
    maxval = 1 if maxval is None else maxval
    with name_scope(name, "random_uniform") as scope:
        low, high = (convert_to_tensor(v, wanted) for v in (minval, maxval))
        if wanted.is_integer:
            attrs = {"dtype": wanted, "seed": seed}
            return create_op("RandomUniformInt", (shape_tensor(shape), low, high), attrs, scope)
        if not (_is_number(minval) and _is_number(maxval)):
            minval, maxval = low, high
        if wanted is not dtypes.float16 or (_is_number(minval) and _is_number(maxval) and maxval == 1):
            return _scaled("RandomUniform", shape, minval, maxval - minval, wanted, seed, scope)
        values = _scaled("RandomUniform", shape, minval, maxval - minval, wanted, seed, "uniform")
        # float16 may round up to the limit
        return create_op("SelectV2", (values < high, values, low), None, scope)


def random_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return numbers from the normal distribution. TF1: ``tf.random_normal``.

    ``mean`` and ``stddev`` broadcast to the shape. ``seed`` is as for :func:`random_uniform`.
    """
    with name_scope(name, "random_normal") as scope:
        return _scaled("RandomStandardNormal", shape, mean, stddev, dtype, seed, scope)


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return normal numbers at most 2 standard deviations from the mean. TF1: same name."""
    with name_scope(name, "truncated_normal") as scope:
        return _scaled("TruncatedNormal", shape, mean, stddev, dtype, seed, scope)


def _scaled(
    op_type: str, shape: Any, shift: Any, scale: Any, dtype: Any, seed: int | None, scope: str
) -> Tensor:
    """Draw, scale and shift without redundant ops; the last op has the name of the scope."""
    wanted = dtypes.as_dtype(dtype)
    if not wanted.is_floating:
        raise TypeError(f"dtype must be a floating type, got {wanted.name}")
    attrs = {"dtype": wanted, "seed": seed}
    scales = not (_is_number(scale) and scale == 1)
    shifts = not (_is_number(shift) and shift == 0)
    values = create_op(op_type, (shape_tensor(shape),), attrs, None if scales or shifts else scope)
    if scales:
        factor = convert_to_tensor(scale, wanted)
        values = create_op("Mul", (values, factor), None, "mul" if shifts else scope)
    if shifts:
        values = create_op("AddV2", (values, convert_to_tensor(shift, wanted)), None, scope)
    return values


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


register(RandomOpDef("RandomShuffle", lambda value, *, rng:
    np.take(value, rng.permutation(len(value)), axis=0) if np.ndim(value) else value,
    rules.like_first))  # fmt: skip


def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """Return the rows of a tensor in random order. TF1: ``tf.random_shuffle``."""
    return create_op("RandomShuffle", (value,), {"seed": seed}, name)


def _multinomial(logits: Array, num_samples: Array, *, dtype: dtypes.DType, rng: Generator) -> Any:
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True), dtype=np.float64)
    steps = np.cumsum(odds, axis=-1)
    points = rng.random((len(logits), int(num_samples))) * steps[:, -1:]
    picked = np.empty(points.shape, np.intp)
    for i, (row, at) in enumerate(zip(steps, points, strict=True)):
        picked[i] = np.searchsorted(row, at, side="right")
    return np.minimum(picked, logits.shape[-1] - 1).astype(dtype.numpy)


def _multinomial_rule(logits: Spec, count: Spec, *, dtype: dtypes.DType, **_seed: object) -> Spec:
    rules.check_dtype(logits.dtype, rules.REALS, "logits")
    rows, _ = rules.with_rank(logits.shape, 2)
    rules.with_rank(count.shape, 0)
    rules.check_dtype(count.dtype, (dtypes.int32,), "num_samples")
    return Spec(dtype, (rows, *(count.known_dims() or (None,))))


register(RandomOpDef("Multinomial", _multinomial, _multinomial_rule, ZERO))


def multinomial(
    logits: Any,
    num_samples: Any,
    seed: int | None = None,
    name: str | None = None,
    output_dtype: Any = None,
) -> Tensor:
    """Return ``num_samples`` classes, int64, for each row of log probabilities. TF1: same name."""
    dtype = dtypes.int64 if output_dtype is None else dtypes.as_dtype(output_dtype)
    attrs = {"dtype": dtype, "seed": seed}
    return create_op("Multinomial", (logits, num_samples), attrs, name or "multinomial")


def _orthogonal_basis(normal: Array) -> Any:
    """Return an orthonormal basis of the columns, which is uniformly distributed for normal input."""
    q, r = np.linalg.qr(normal.astype(np.float64, copy=False))
    return (q * np.sign(np.diagonal(r))).astype(normal.dtype)


register(OpDef("OrthogonalBasis", _orthogonal_basis, rules.like_first))
