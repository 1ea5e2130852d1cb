"""Arithmetic of two tensors, element by element, with broadcasting.

The operands must have one dtype; a Python or numpy value takes that of the tensor beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import convert_pair, create_op
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.kernels.arrays import Array, own
from asyncmon.graph.ops.broadcast import unbroadcast

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor

    Gradients = list[Tensor | None]


def _binary(op_type: str, x: Any, y: Any, name: str | None) -> Tensor:
    return create_op(op_type, convert_pair(x, y, name or op_type), {}, name)


# --- addition and subtraction ---------------------------------------------------------------------


def _add_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, y = op.inputs
    return [unbroadcast(grad, x, y), unbroadcast(grad, y, x)]


register(
    OpDef(
        "AddV2",
        np.add,
        rules.binary("AddV2", (*rules.NUMBERS, dtypes.string)),
        _add_gradient,
        elementwise=True,
    )
)


def add(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x + y``; strings are joined. TF1: ``tf.add``."""
    return _binary("AddV2", x, y, name or "Add")


def _sub_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, y = op.inputs
    return [unbroadcast(grad, x, y), unbroadcast(-grad, y, x)]


register(OpDef("Sub", np.subtract, rules.binary("Sub"), _sub_gradient, elementwise=True))


def subtract(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x - y``. TF1: ``tf.subtract``."""
    return _binary("Sub", x, y, name)


# --- products -------------------------------------------------------------------------------------


def _mul_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, y = op.inputs
    return [unbroadcast(grad * y, x, y), unbroadcast(grad * x, y, x)]


register(OpDef("Mul", np.multiply, rules.binary("Mul"), _mul_gradient, elementwise=True))


def multiply(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x * y``, element by element. TF1: ``tf.multiply``."""
    return _binary("Mul", x, y, name)


def _pow_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, y = op.inputs
    zero = create_op("ZerosLike", (x,), {})
    positive = create_op("Greater", (x, zero), {})
    one = create_op("OnesLike", (x,), {})
    log_x = create_op("Log", (create_op("SelectV2", (positive, x, one), {}),), {})
    return [
        unbroadcast(grad * y * x ** (y - 1), x, y),
        unbroadcast(grad * op.outputs[0] * log_x, y, x),
    ]


register(OpDef("Pow", np.power, rules.binary("Pow"), _pow_gradient, elementwise=True))


def pow(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x`` to the power ``y``. TF1: ``tf.pow``."""
    return _binary("Pow", x, y, name)


def _squared_difference(x: Array, y: Array, out: Array | None = None) -> Any:
    difference = np.subtract(x, y, out=out)
    return np.multiply(difference, difference, out=out)


def _squared_difference_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, y = op.inputs
    twice = grad * 2 * (x - y)
    return [unbroadcast(twice, x, y), unbroadcast(-twice, y, x)]


register(
    OpDef(
        "SquaredDifference",
        _squared_difference,
        rules.binary("SquaredDifference"),
        _squared_difference_gradient,
        elementwise=True,
    )
)


def squared_difference(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``(x - y) ** 2``. TF1: ``tf.squared_difference``."""
    return _binary("SquaredDifference", x, y, name)


# --- quotients ------------------------------------------------------------------------------------


def _true_divide(x: Array, y: Array, out: Array | None = None) -> Any:
    if out is None and np.result_type(x) in _SMALL_INTS:
        return np.true_divide(x, y, dtype=np.float32)
    return np.true_divide(x, y, out=out)


_SMALL_INTS = frozenset(np.dtype(t) for t in (np.int8, np.uint8, np.int16, np.uint16))
_divide_rule = rules.binary("RealDiv")


def _true_divide_shape(x: Spec, y: Spec) -> Spec:
    spec: Spec = _divide_rule(x, y)
    if spec.dtype.is_integer:
        dtype = dtypes.float32 if spec.dtype.size <= 2 else dtypes.float64
        return Spec(dtype, spec.shape)
    return spec


def _divide_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, y = op.inputs
    return [unbroadcast(grad / y, x, y), unbroadcast(grad * (-op.outputs[0] / y), y, x)]


register(OpDef("RealDiv", _true_divide, _true_divide_shape, _divide_gradient, elementwise=True))


def truediv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x / y``; integers give float64 (float32 up to 16 bits). TF1: ``tf.truediv``."""
    return _binary("RealDiv", x, y, name or "truediv")


def divide(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x / y`` with Python's meaning of it. TF1: ``tf.divide``."""
    return _binary("RealDiv", x, y, name or "truediv")


def realdiv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x / y``. TF1: ``tf.realdiv``."""
    return _binary("RealDiv", x, y, name)


def _nonzero(divisor: Array) -> None:
    if np.result_type(divisor).kind in "iu" and not np.all(divisor):
        raise InvalidArgumentError("Integer division by zero")


def _floor_divide(x: Array, y: Array, out: Array | None = None) -> Any:
    if y.dtype.kind in "iu":
        _nonzero(y)
        return np.floor_divide(x, y, out=out)
    quotient = np.divide(x, y, out=out)  # numpy's own keeps to the remainder: 1.0 // 0.1 is 9 there
    return np.floor(quotient, out=own(quotient) if out is None else out)


def _floor_mod(x: Array, y: Array, out: Array | None = None) -> Any:
    _nonzero(y)
    return np.remainder(x, y, out=out)


def _floor_mod_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, y = op.inputs
    return [unbroadcast(grad, x, y), unbroadcast(grad * -(x // y), y, x)]


register(
    OpDef(
        "FloorDiv",
        _floor_divide,
        rules.binary("FloorDiv", rules.REALS),
        lambda op, grad: [None, None],
        elementwise=True,
    )
)
register(
    OpDef(
        "FloorMod",
        _floor_mod,
        rules.binary("FloorMod", rules.REALS),
        _floor_mod_gradient,
        elementwise=True,
    )
)


def floordiv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x / y`` rounded down. TF1: ``tf.floordiv``.

    Errors at run time: InvalidArgumentError for an integer division by zero.
    """
    return _binary("FloorDiv", x, y, name or "floordiv")


def floormod(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return the remainder of :func:`floordiv`, with the sign of ``y``.

    TF1: ``tf.floormod``, ``tf.mod``.
    """
    return _binary("FloorMod", x, y, name)


mod = floormod


def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x / y`` for floats, ``x // y`` for integers, as Python 2 did. TF1: ``tf.div``."""
    x, y = convert_pair(x, y, name or "div")
    op_type = "RealDiv" if x.dtype.is_floating or x.dtype.is_complex else "FloorDiv"
    return create_op(op_type, (x, y), {}, name or "div")


def _div_no_nan(x: Array, y: Array, out: Array | None = None) -> Any:
    zero = np.equal(y, 0)
    return np.where(zero, np.zeros_like(x), np.divide(x, np.where(zero, np.ones_like(y), y)))


def _div_no_nan_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, y = op.inputs
    safe = div_no_nan(grad, y)
    return [unbroadcast(safe, x, y), unbroadcast(-(safe * op.outputs[0]), y, x)]


register(OpDef("DivNoNan", _div_no_nan, rules.binary("DivNoNan", rules.SMOOTH), _div_no_nan_gradient))


def div_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x / y``, and 0 where ``y`` is 0. TF1: ``tf.div_no_nan``."""
    return _binary("DivNoNan", x, y, name or "div_no_nan")


# --- the greater, the smaller, the angle ----------------------------------------------------------


def _pick_gradient(op: Operation, grad: Tensor, x_wins: Tensor) -> Gradients:
    x, y = op.inputs
    zero = create_op("ZerosLike", (grad,), {})
    return [
        unbroadcast(create_op("SelectV2", (x_wins, grad, zero), {}), x, y),
        unbroadcast(create_op("SelectV2", (x_wins, zero, grad), {}), y, x),
    ]


register(
    OpDef(
        "Maximum",
        np.maximum,
        rules.binary("Maximum", rules.REALS),
        lambda op, grad: _pick_gradient(op, grad, create_op("GreaterEqual", op.inputs, {})),
        elementwise=True,
    )
)
register(
    OpDef(
        "Minimum",
        np.minimum,
        rules.binary("Minimum", rules.REALS),
        lambda op, grad: _pick_gradient(op, grad, create_op("LessEqual", op.inputs, {})),
        elementwise=True,
    )
)


def maximum(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return the greater of ``x`` and ``y``; where they are equal the gradient goes to ``x``.

    TF1: ``tf.maximum``.
    """
    return _binary("Maximum", x, y, name)


def minimum(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return the smaller of ``x`` and ``y``; where they are equal the gradient goes to ``x``.

    TF1: ``tf.minimum``.
    """
    return _binary("Minimum", x, y, name)


def _atan2_gradient(op: Operation, grad: Tensor) -> Gradients:
    y, x = op.inputs
    scaled = grad / (x * x + y * y)
    return [unbroadcast(scaled * x, y, x), unbroadcast(-(scaled * y), x, y)]


register(
    OpDef(
        "Atan2",
        np.arctan2,
        rules.binary("Atan2", rules.FLOATS, ("y", "x")),
        _atan2_gradient,
        elementwise=True,
    )
)


def atan2(y: Any, x: Any, name: str | None = None) -> Tensor:
    """Return the angle of the point (x, y), in (-pi, pi]. TF1: ``tf.atan2``."""
    return _binary("Atan2", y, x, name)
