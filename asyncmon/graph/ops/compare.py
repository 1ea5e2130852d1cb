"""Comparison, logic and choice: what gives bool, and ``where``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.ops.broadcast import unbroadcast

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array


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


def _choose(condition: Array, x: Array, y: Array, out: Array | None = None) -> Any:
    if not condition.shape == np.shape(x) == np.shape(y):
        condition = _fitting(condition, np.shape(x), np.shape(y))
    return _select(condition, x, y, out)


def _fitting(condition: Array, x: tuple[int, ...], y: tuple[int, ...]) -> Array:
    """Return the condition in a shape that broadcasts as it is meant to: what else does is refused."""
    if x != y:
        raise InvalidArgumentError(
            f"'then' and 'else' must have the same size, but received: {list(x)} vs. {list(y)}"
        )
    shape = condition.shape
    if shape in ((), x):
        return condition
    if len(shape) == 1 and shape == x[:1]:
        return condition.reshape(shape + (1,) * (len(x) - 1))
    raise InvalidArgumentError(
        f"The condition must be a scalar, a vector of the first dimension of 'then', or of its shape "
        f"{list(x)}, but it has shape {list(shape)}"
    )


def _choose_spec(condition: Spec, x: Spec, y: Spec) -> Spec:
    rules.check_dtype(condition.dtype, _BOOL, "condition")
    rules.check_same_dtype("Select", x, y, ("t", "e"))
    shape, test = rules.merge(x.shape, y.shape), condition.shape
    if shape is None or not test:
        return Spec(x.dtype, shape)
    if len(test) == 1 and shape:
        rules.merge_dim(test[0], shape[0])
        return Spec(x.dtype, shape)
    return Spec(x.dtype, rules.merge(shape, test))


def _choose_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    condition, x, _ = op.inputs
    zero = create_op("ZerosLike", (x,))
    return [
        None,
        create_op("Select", (condition, grad, zero)),
        create_op("Select", (condition, zero, grad)),
    ]


def _bound_choose(op: Operation) -> Callable[..., Any] | None:
    """Return what looks at no shape, where they are known and equal."""
    shapes = {tensor.spec.shape for tensor in op.inputs}
    return _select if len(shapes) == 1 and rules.num_elements(*shapes) is not None else None


register(OpDef("Select", _choose, _choose_spec, _choose_gradient, out=True, bind=_bound_choose))


def _true_positions_spec(condition: Spec) -> Spec:
    return Spec(dtypes.int64, (None, None if condition.shape is None else len(condition.shape)))


register(
    OpDef("Where", lambda c: np.argwhere(c).astype(np.int64), _true_positions_spec, rules.no_gradient)
)


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """Return ``x`` where the condition holds and ``y`` elsewhere. TF1: ``tf.where``.

    Without ``x`` and ``y``: the positions of the true elements, as an int64 matrix of a row each.

    Args:
        condition: bool tensor of the shape of ``x``, or a vector that picks whole rows, or a scalar.
        x: where it is true.
        y: where it is false; of the dtype and the shape of ``x``.
        name: the node's name.

    Raises:
        ValueError: exactly one of ``x`` and ``y`` is given, or shapes do not fit: nothing broadcasts
            (InvalidArgumentError in the run, where they are not known before).
    """
    test = convert_to_tensor(condition)
    if x is None and y is None:
        return create_op("Where", (test,), None, name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return create_op("Select", (test, *convert_pair(x, y, name or "Select")), None, name)
