"""Inverse trigonometric functions, and hyperbolic ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from asyncmon.graph import Tensor, rsqrt
from asyncmon.graph.core import rules
from asyncmon.graph.core.rules import FLOATS, SMOOTH
from asyncmon.graph.ops import families
from asyncmon.graph.ops.families import UnaryFunction

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh"]

unary, binary = partial(families.unary, __name__), partial(families.binary, __name__)

# fmt: off
asin = unary("asin", "Asin", np.arcsin, SMOOTH, lambda g, x, y: g * rsqrt(1 - x * x),
    "Return the inverse sine.")
acos = unary("acos", "Acos", np.arccos, SMOOTH, lambda g, x, y: -g * rsqrt(1 - x * x),
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
# fmt: on


def atan2(y: Any, x: Any, name: str | None = None) -> Tensor:
    """Return the angle of the point (x, y), in (-pi, pi]. TF1: ``tf.atan2``."""
    return _atan2(y, x, name)
