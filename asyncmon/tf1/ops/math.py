"""Inverse trigonometric functions, hyperbolic functions, and second derivatives."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from asyncmon import graph as tf
from asyncmon.graph.core import rules
from asyncmon.graph.core.indexed_slices import to_dense
from asyncmon.graph.core.rules import FLOATS, SMOOTH
from asyncmon.graph.ops import families
from asyncmon.graph.ops.elementwise import check_nonzero
from asyncmon.graph.ops.families import UnaryFunction

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "hessians", "sinh",
    "truncatediv", "truncatemod",
]  # fmt: skip

unary, binary = partial(families.unary, __name__), partial(families.binary, __name__)


def _truncated_rest(x: Any, y: Any, out: Any = None) -> Any:
    check_nonzero(y)
    return np.fmod(x, y, out=out)


def _truncated_quotient(x: Any, y: Any, out: Any = None) -> Any:
    if np.result_type(x, y).kind in "iu":
        return np.floor_divide(x - _truncated_rest(x, y), y, out=out)
    return np.trunc(np.divide(x, y), out=out)


# fmt: off
asin = unary("asin", "Asin", np.arcsin, SMOOTH, lambda g, x, y: g * tf.rsqrt(1 - x * x),
    "Return the inverse sine.")
acos = unary("acos", "Acos", np.arccos, SMOOTH, lambda g, x, y: -g * tf.rsqrt(1 - x * x),
    "Return the inverse cosine.")
atan = unary("atan", "Atan", np.arctan, SMOOTH, lambda g, x, y: g / (x * x + 1),
    "Return the inverse tangent.")
sinh = unary("sinh", "Sinh", np.sinh, SMOOTH, lambda g, x, y: g * cosh(x),
    "Return the hyperbolic sine.")
cosh: UnaryFunction = unary("cosh", "Cosh", np.cosh, SMOOTH, lambda g, x, y: g * sinh(x),
    "Return the hyperbolic cosine.")
asinh = unary("asinh", "Asinh", np.arcsinh, SMOOTH, lambda g, x, y: g / cosh(y),
    "Return the inverse hyperbolic sine.")
acosh = unary("acosh", "Acosh", np.arccosh, SMOOTH, lambda g, x, y: g / sinh(y),
    "Return the inverse hyperbolic cosine.")
atanh = unary("atanh", "Atanh", np.arctanh, SMOOTH, lambda g, x, y: g / (1 - x * x),
    "Return the inverse hyperbolic tangent.")
_atan2 = binary("atan2", "Atan2", np.arctan2, FLOATS,
    lambda g, y, x, z: ((scaled := g / (x * x + y * y)) * x, -(scaled * y)),
    "Return the angle of a point.", rule=rules.binary("Atan2", FLOATS, ("y", "x")))
truncatediv = binary("truncatediv", "TruncateDiv", _truncated_quotient, rules.REALS, None,
    "Return ``x / y`` rounded toward 0. Integers by zero: InvalidArgumentError in the run.")
truncatemod = binary("truncatemod", "TruncateMod", _truncated_rest, rules.REALS,
    lambda g, x, y, z: (g, g * -truncatediv(x, y)),
    "Return the remainder of :func:`truncatediv`, with the sign of ``x``.")
# fmt: on


def atan2(y: Any, x: Any, name: str | None = None) -> tf.Tensor:
    """Return the angle of the point (x, y), in (-pi, pi]. TF1: ``tf.atan2``."""
    return _atan2(y, x, name)


def hessians(
    ys: Any,
    xs: Any,
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
) -> list[tf.Tensor]:
    """Return the second derivatives of the sum of ``ys`` with respect to each x. TF1: ``tf.hessians``.

    Args:
        ys: a tensor, or a list of them.
        xs: tensors or variables of a known shape.
        colocate_gradients_with_ops, gate_gradients, aggregation_method: see :func:`gradients`.

    Returns:
        For each x of shape ``s`` a tensor of shape ``s + s``.
    """
    tensors = [tf.convert_to_tensor(x) for x in (xs if isinstance(xs, list | tuple) else [xs])]
    with tf.name_scope(name, "hessians", tensors):
        first = tf.gradients(ys, tensors, colocate_gradients_with_ops=colocate_gradients_with_ops)
        return [
            _hessian(grad, x, colocate_gradients_with_ops)
            for grad, x in zip(first, tensors, strict=True)
        ]


def _hessian(grad: Any, x: tf.Tensor, colocate: bool) -> tf.Tensor:
    shape = [d for d in x.spec.shape or (None,) if d is not None]
    if not x.shape.is_fully_defined():
        raise ValueError(f"hessians() needs a known shape, got {x!r}")
    flat = tf.create_op("Reshape", (to_dense(grad), [-1]))
    rows = [
        tf.gradients(flat[i], x, colocate_gradients_with_ops=colocate, unconnected_gradients="zero")[0]
        for i in range(prod(shape))
    ]
    whole = np.array(shape + shape, np.int32)
    return tf.create_op("Reshape", (tf.create_op("Pack", rows, {"axis": 0}), whole))
