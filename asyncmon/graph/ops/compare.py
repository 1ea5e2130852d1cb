"""Comparison, logic and ``where``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, register
from asyncmon.graph.core.rules import rank_of
from asyncmon.graph.core.shape import merge
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.families import comparison, unary
from asyncmon.graph.ops.shape_ops import unbroadcast

_ANY = (*rules.NUMBERS, dtypes.bool, dtypes.string)
_BOOL = (dtypes.bool,)


def _objects_too(ufunc: np.ufunc) -> Callable[..., Any]:
    """Return a comparison with a bool result for strings, too, for which numpy returns objects."""

    def kernel(x: Array, y: Array, out: Array | None = None) -> Any:
        if out is None and x.dtype == object:
            return ufunc(x, y, dtype=np.bool_)
        return ufunc(x, y, out=out)

    return kernel


# fmt: off
less = comparison("less", "Less", np.less, rules.REALS, "Return ``x < y``.")
less_equal = comparison("less_equal", "LessEqual", np.less_equal, rules.REALS, "Return ``x <= y``.")
greater = comparison("greater", "Greater", np.greater, rules.REALS, "Return ``x > y``.")
greater_equal = comparison("greater_equal", "GreaterEqual", np.greater_equal, rules.REALS,
    "Return ``x >= y``.")
equal = comparison("equal", "Equal", _objects_too(np.equal), _ANY,
    "Return ``x == y``, element by element.")
not_equal = comparison("not_equal", "NotEqual", _objects_too(np.not_equal), _ANY,
    "Return ``x != y``, element by element.")

logical_and = comparison("logical_and", "LogicalAnd", np.logical_and, _BOOL, "Return ``x and y``.")
logical_or = comparison("logical_or", "LogicalOr", np.logical_or, _BOOL, "Return ``x or y``.")
logical_xor = comparison("logical_xor", "LogicalXor", np.logical_xor, _BOOL,
    "Return whether exactly one of ``x`` and ``y`` is true.", default="LogicalXor")
logical_not = unary("logical_not", "LogicalNot", np.logical_not, _BOOL, None, "Return ``not x``.")

is_nan = unary("is_nan", "IsNan", np.isnan, rules.FLOATS, None,
    "Return whether each element is not a number.", output=dtypes.bool)
is_inf = unary("is_inf", "IsInf", np.isinf, rules.FLOATS, None,
    "Return whether each element is an infinity.", output=dtypes.bool)
is_finite = unary("is_finite", "IsFinite", np.isfinite, rules.FLOATS, None,
    "Return whether each element is a finite number.", output=dtypes.bool)
# fmt: on


# --- choice ---------------------------------------------------------------------------------------
def _select(condition: Array, x: Array, y: Array, out: Array | None = None) -> Any:
    if out is None:
        return np.where(condition, x, y)
    np.copyto(out, y)
    np.copyto(out, x, where=condition)
    return out


def _select_spec(condition: Spec, x: Spec, y: Spec) -> Spec:
    rules.check_dtype(condition.dtype, _BOOL, "condition")
    rules.check_same_dtype("SelectV2", x, y, ("t", "e"))
    return Spec(x.dtype, rules.broadcast(condition.shape, rules.broadcast(x.shape, y.shape)))


def _choose(condition: Array, x: Array, y: Array, out: Array | None = None) -> Any:
    if condition.ndim == 1 < np.ndim(x):  # it selects rows
        condition = condition.reshape(-1, *[1] * (np.ndim(x) - 1))
    return _select(condition, x, y, out)


def _choose_spec(condition: Spec, x: Spec, y: Spec) -> Spec:
    rules.check_dtype(condition.dtype, _BOOL, "condition")
    rules.check_same_dtype("Select", x, y, ("t", "e"))
    shape, test = merge(x.shape, y.shape), condition.shape
    if shape is not None and test:
        shape = merge(shape, test if len(test) > 1 else (*test, *shape[1:]))
    return Spec(x.dtype, shape)


def _select_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    condition, x, y = op.inputs
    zero, z = create_op("ZerosLike", (grad,)), op.outputs[0]
    of_x, of_y = (create_op(op.type, (condition, *pair)) for pair in ((grad, zero), (zero, grad)))
    if op.type == "Select":  # nothing was broadcast
        return [None, of_x, of_y]
    return [None, unbroadcast(of_x, x, z), unbroadcast(of_y, y, z)]


register(OpDef("SelectV2", _select, _select_spec, _select_gradient, out=True))
register(OpDef("Select", _choose, _choose_spec, _select_gradient, out=True))
register(OpDef("Where", lambda condition: np.argwhere(condition).astype(np.int64),
    lambda condition: Spec(dtypes.int64, (None, rank_of(condition.shape))), ZERO))  # fmt: skip


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """Return ``x`` where the condition holds and ``y`` elsewhere. TF1: ``tf.where``.

    Without ``x`` and ``y``: the positions of the true elements, an int64 matrix with a row for each.

    Args:
        condition: a bool tensor of the shape of ``x``, a vector that selects whole rows, or a scalar.
        x: a tensor of the dtype and shape of ``y``, without broadcasting.
        y: the values where the condition is false.
    """
    test = convert_to_tensor(condition)
    if x is None and y is None:
        return create_op("Where", (test,), None, name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return create_op("Select", (test, *convert_pair(x, y, name or "Select")), None, name)
