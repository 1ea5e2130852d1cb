"""Comparison, logic and choice: what gives bool, and ``where``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph import dtypes
from asyncmon.graph import shape_rules as rules
from asyncmon.graph.broadcasting import unbroadcast
from asyncmon.graph.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.op_def import OpDef, Spec, register

if TYPE_CHECKING:
    from asyncmon.graph.arrays import Array
    from asyncmon.graph.tensor import Operation, Tensor


__all__ = [
    "equal",
    "greater",
    "greater_equal",
    "is_finite",
    "is_inf",
    "is_nan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "where",
]

_ANY = (*rules.NUMBERS, dtypes.bool, dtypes.string)
_BOOL = (dtypes.bool,)


def _objects_too(ufunc: np.ufunc) -> Any:
    """Let a comparison of strings give bool, not objects."""

    def kernel(x: Array, y: Array, out: Array | None = None) -> Any:
        return (
            ufunc(x, y, out=out, dtype=np.bool_)
            if out is None and np.asarray(x).dtype == object
            else ufunc(x, y, out=out)
        )

    return kernel


_ufunc: np.ufunc
for _type, _ufunc, _allowed in (
    ("Less", np.less, rules.REALS),
    ("LessEqual", np.less_equal, rules.REALS),
    ("Greater", np.greater, rules.REALS),
    ("GreaterEqual", np.greater_equal, rules.REALS),
):
    register(
        OpDef(_type, _ufunc, rules.comparison(_type, _allowed), rules.no_gradient, elementwise=True)
    )
for _type, _ufunc in (("Equal", np.equal), ("NotEqual", np.not_equal)):
    register(
        OpDef(
            _type,
            _objects_too(_ufunc),
            rules.comparison(_type, _ANY),
            rules.no_gradient,
            elementwise=True,
        )
    )
for _type, _ufunc in (
    ("LogicalAnd", np.logical_and),
    ("LogicalOr", np.logical_or),
    ("LogicalXor", np.logical_xor),
):
    register(OpDef(_type, _ufunc, rules.comparison(_type, _BOOL), rules.no_gradient, elementwise=True))
register(
    OpDef("LogicalNot", np.logical_not, rules.predicate(_BOOL), rules.no_gradient, elementwise=True)
)
for _type, _ufunc in (("IsNan", np.isnan), ("IsInf", np.isinf), ("IsFinite", np.isfinite)):
    register(OpDef(_type, _ufunc, rules.predicate(rules.FLOATS), rules.no_gradient, elementwise=True))


def _compare(op_type: str, x: Any, y: Any, name: str | None) -> Tensor:
    return create_op(op_type, convert_pair(x, y, name or op_type), None, name)


def less(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x < y``. TF1: ``tf.less``."""
    return _compare("Less", x, y, name)


def less_equal(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x <= y``. TF1: ``tf.less_equal``."""
    return _compare("LessEqual", x, y, name)


def greater(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x > y``. TF1: ``tf.greater``."""
    return _compare("Greater", x, y, name)


def greater_equal(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x >= y``. TF1: ``tf.greater_equal``."""
    return _compare("GreaterEqual", x, y, name)


def equal(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x == y``, element by element; strings too. TF1: ``tf.equal``."""
    return _compare("Equal", x, y, name)


def not_equal(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x != y``, element by element; strings too. TF1: ``tf.not_equal``."""
    return _compare("NotEqual", x, y, name)


def logical_and(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x and y``. TF1: ``tf.logical_and``."""
    return _compare("LogicalAnd", x, y, name)


def logical_or(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return ``x or y``. TF1: ``tf.logical_or``."""
    return _compare("LogicalOr", x, y, name)


def logical_xor(x: Any, y: Any, name: str | None = "LogicalXor") -> Tensor:
    """Return whether exactly one of ``x`` and ``y`` is true. TF1: ``tf.logical_xor``."""
    return _compare("LogicalXor", x, y, name)


def logical_not(x: Any, name: str | None = None) -> Tensor:
    """Return ``not x``. TF1: ``tf.logical_not``."""
    return create_op("LogicalNot", (x,), None, name)


def is_nan(x: Any, name: str | None = None) -> Tensor:
    """Return whether each element is not a number. TF1: ``tf.is_nan``."""
    return create_op("IsNan", (x,), None, name)


def is_inf(x: Any, name: str | None = None) -> Tensor:
    """Return whether each element is an infinity. TF1: ``tf.is_inf``."""
    return create_op("IsInf", (x,), None, name)


def is_finite(x: Any, name: str | None = None) -> Tensor:
    """Return whether each element is a finite number. TF1: ``tf.is_finite``."""
    return create_op("IsFinite", (x,), None, name)


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


def _select_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    condition, x, y = op.inputs
    zero = create_op("ZerosLike", (grad,))
    grad_x = create_op("SelectV2", (condition, grad, zero))
    grad_y = create_op("SelectV2", (condition, zero, grad))
    return [None, unbroadcast(grad_x, x, op.outputs[0]), unbroadcast(grad_y, y, op.outputs[0])]


register(OpDef("SelectV2", _select, _select_spec, _select_gradient, out=True))


def _true_positions_spec(condition: Spec) -> Spec:
    return Spec(dtypes.int64, (None, None if condition.shape is None else len(condition.shape)))


register(
    OpDef("Where", lambda c: np.argwhere(c).astype(np.int64), _true_positions_spec, rules.no_gradient)
)


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """Return ``x`` where the condition holds and ``y`` elsewhere. TF1: ``tf.where``.

    Without ``x`` and ``y``: the positions of the true elements, as an int64 matrix of a row each.

    Args:
        condition: bool tensor. A vector picks whole rows of ``x`` and ``y`` of a higher rank.
        x: where it is true; broadcasts.
        y: where it is false; of the dtype of ``x``.
        name: the node's name.

    Raises:
        ValueError: exactly one of ``x`` and ``y`` is given.
    """
    test = convert_to_tensor(condition)
    if x is None and y is None:
        return create_op("Where", (test,), None, name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    first, second = convert_pair(x, y, name or "Select")
    shape = first.spec.shape
    if (
        test.spec.shape is not None
        and len(test.spec.shape) == 1
        and shape is not None
        and len(shape) > 1
    ):
        rules.merge_dim(test.spec.shape[0], shape[0])
        test = create_op("ExpandDims", (test,), {"axis": tuple(range(1, len(shape)))})
    return create_op("SelectV2", (test, first, second), None, name or "Select")
