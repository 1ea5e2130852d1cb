"""Elementwise arithmetic of two tensors with broadcasting, one row each.

The operands must have the same dtype; a Python or numpy value takes the dtype of the tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.rules import FLOATS, NUMBERS, REALS, SMOOTH
from asyncmon.graph.numerics.arrays import Array, as_out
from asyncmon.graph.ops.families import BinaryFunction, binary, binary_function
from asyncmon.graph.ops.join import check_one_dtype

Pair = tuple[Tensor, Tensor]


def _squared_difference(x: Array, y: Array, out: Array | None = None) -> Any:
    difference = np.subtract(x, y, out=out)
    if x.dtype.kind == "c":
        return np.multiply(np.conjugate(difference), difference, out=out)
    return np.multiply(difference, difference, out=out)


def _true_divide(x: Array, y: Array, out: Array | None = None) -> Any:
    if out is None and x.dtype.kind in "iu" and x.dtype.itemsize <= 2:
        return np.true_divide(x, y, dtype=np.float32)
    return np.true_divide(x, y, out=out)


def _quotient_rule(x: Spec, y: Spec) -> Spec:
    spec: Spec = rules.binary("RealDiv")(x, y)
    if not spec.dtype.is_integer:
        return spec
    return Spec(dtypes.float32 if spec.dtype.size <= 2 else dtypes.float64, spec.shape)


def check_nonzero(divisor: Array) -> None:
    if divisor.dtype.kind in "iu" and not np.all(divisor):
        raise InvalidArgumentError("Integer division by zero")


def _floor_divide(x: Array, y: Array, out: Array | None = None) -> Any:
    check_nonzero(y)
    if y.dtype.kind in "iu":
        return np.floor_divide(x, y, out=out)
    quotient = np.divide(x, y, out=out)  # numpy's floor_divide gives 9 for 1.0 // 0.1
    return np.floor(quotient, out=as_out(quotient))


def _floor_mod(x: Array, y: Array, out: Array | None = None) -> Any:
    check_nonzero(y)
    return np.remainder(x, y, out=out)


def _div_no_nan(x: Array, y: Array, out: Array | None = None) -> Any:
    zero = np.equal(y, 0)
    quotient = np.asarray(np.divide(x, y, out=out))
    np.copyto(quotient, 0, where=zero)
    return quotient


def _pow_gradient(g: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Pair:
    # the exponent of a base that is not positive has no gradient
    positive = create_op("Greater", (x, create_op("ZerosLike", (x,))))
    base = create_op("SelectV2", (positive, x, create_op("OnesLike", (x,))))
    return g * y * x ** (y - 1), g * z * create_op("Log", (base,))


def _either(x_wins: Tensor, g: Tensor) -> Pair:
    zero = create_op("ZerosLike", (g,))
    return create_op("SelectV2", (x_wins, g, zero)), create_op("SelectV2", (x_wins, zero, g))


# fmt: off
add = binary("add", "AddV2", np.add, (*NUMBERS, dtypes.string), lambda g, x, y, z: (g, g),
    "Return ``x + y``; strings are joined.", node="Add")
subtract = binary("subtract", "Sub", np.subtract, NUMBERS, lambda g, x, y, z: (g, -g),
    "Return ``x - y``.")
multiply = binary("multiply", "Mul", np.multiply, NUMBERS, lambda g, x, y, z: (g * y, g * x),
    "Return ``x * y``, element by element.")
pow = binary("pow", "Pow", np.power, NUMBERS, _pow_gradient, "Return ``x`` to the power ``y``.")
squared_difference = binary("squared_difference", "SquaredDifference", _squared_difference, NUMBERS,
    lambda g, x, y, z: (of_x := g * 2 * (x - y), -of_x), "Return ``(x - y) ** 2``.")
realdiv = binary("realdiv", "RealDiv", _true_divide, NUMBERS, lambda g, x, y, z: (g / y, g * (-z / y)),
    "Return ``x / y``.", rule=_quotient_rule)
truediv = binary_function("truediv", "RealDiv", NUMBERS,
    "Return ``x / y``; integers give float64, those of up to 16 bits float32.", "truediv")
divide = binary_function("divide", "RealDiv", NUMBERS, "Return ``x / y`` as Python 3 does.",
    "truediv")
floordiv = binary("floordiv", "FloorDiv", _floor_divide, REALS, None, node="floordiv",
    doc="Return ``x / y`` rounded down. Integers by zero: InvalidArgumentError in the run.")
floormod = binary("floormod", "FloorMod", _floor_mod, REALS, lambda g, x, y, z: (g, g * -(x // y)),
    "Return the remainder of :func:`floordiv`, with the sign of ``y``; also ``tf.mod``.")
div_no_nan: BinaryFunction = binary("div_no_nan", "DivNoNan", _div_no_nan, SMOOTH,
    lambda g, x, y, z: (of_x := div_no_nan(g, y), -(of_x * z)),
    "Return ``x / y``, and 0 where ``y`` is 0.", node="div_no_nan")
maximum = binary("maximum", "Maximum", np.maximum, REALS, lambda g, x, y, z: _either(x >= y, g),
    "Return the greater of ``x`` and ``y``; where they are equal the gradient goes to ``x``.")
minimum = binary("minimum", "Minimum", np.minimum, REALS, lambda g, x, y, z: _either(x <= y, g),
    "Return the smaller of ``x`` and ``y``; where they are equal the gradient goes to ``x``.")
_atan2 = binary("atan2", "Atan2", np.arctan2, FLOATS,
    lambda g, y, x, z: ((scaled := g / (x * x + y * y)) * x, -(scaled * y)),
    "Return the angle of a point.", rule=rules.binary("Atan2", FLOATS, ("y", "x")))
mod = floormod
# fmt: on


def atan2(y: Any, x: Any, name: str | None = None) -> Tensor:
    """Return the angle of the point (x, y), in (-pi, pi]. TF1: ``tf.atan2``."""
    return _atan2(y, x, name)


def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x / y`` for floats, ``x // y`` for integers, as Python 2 did. TF1: ``tf.div``."""
    x, y = convert_pair(x, y, name or "div")
    op_type = "RealDiv" if x.dtype.is_floating or x.dtype.is_complex else "FloorDiv"
    return create_op(op_type, (x, y), None, name or "div")


# --- add_n ----------------------------------------------------------------------------------------
def _add_n(*inputs: Array) -> Any:
    if len(inputs) == 1:
        return inputs[0]
    total = np.add(inputs[0], inputs[1])
    for value in inputs[2:]:
        total = np.add(total, value, out=total if isinstance(total, np.ndarray) else None)
    return total


def _add_n_rule(*inputs: Spec) -> Spec:
    rules.check_dtype(inputs[0].dtype, NUMBERS, "inputs")
    check_one_dtype("AddN", inputs, "inputs")
    return rules.like_first(*inputs)


register(OpDef("AddN", _add_n, _add_n_rule, lambda op, g: [g] * len(op.inputs), aliases=True))


def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """Return the sum of tensors of one shape and dtype. TF1: ``tf.add_n``.

    Raises:
        ValueError: ``inputs`` is not a list of at least one tensor, or shapes differ.
    """
    if not isinstance(inputs, list | tuple) or not inputs:
        raise ValueError(
            "inputs must be an iterable of at least one Tensor/IndexedSlices with the same "
            "dtype and shape"
        )
    return create_op("AddN", [convert_to_tensor(value) for value in inputs], {}, name)
