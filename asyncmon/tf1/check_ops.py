"""Assertions about tensors. TF1: ``tf.assert_equal`` and its kin.

An assertion that is false for static values, ranks or dtypes fails when the graph is built, with
InvalidArgumentError, ValueError or TypeError. Otherwise the returned operation checks it in the run and
raises InvalidArgumentError: make that operation a control dependency.

Common arguments:

* ``data``: the tensors that the error prints, by default the arguments.
* ``summarize``: the number of elements to print of each, 3 by default.
* ``message``: a prefix of the error's text.
* ``name``: the name of the ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncmon import errors
from asyncmon import graph as g
from asyncmon.graph import Operation, Tensor
from asyncmon.graph.core.build import convert_pair
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.graph.core.op import constant_of
from asyncmon.tf1.signatures import REQUIRED as _REQUIRED
from asyncmon.tf1.signatures import function_of

__all__ = [
    "add_check_numerics_ops", "assert_equal", "assert_greater", "assert_greater_equal",
    "assert_integer", "assert_less", "assert_less_equal", "assert_near", "assert_negative",
    "assert_non_negative", "assert_non_positive", "assert_none_equal", "assert_positive",
    "assert_rank", "assert_rank_at_least", "assert_rank_in", "assert_type", "ensure_shape",
    "verify_tensor_all_finite",
]  # fmt: skip

_COMMON = {"data": None, "summarize": None, "message": None, "name": None}


# --- values ---------------------------------------------------------------------------------------
def _checked(condition: Any, static: Any, data: list[Any], message: Any, summarize: Any) -> Operation:
    """Assert a condition, immediately if its static value is known."""
    data = data if message is None else [message, *data]
    if static is not None and not np.all(static):
        parts = [part if isinstance(part, str) else _known(part) for part in data]
        raise errors.InvalidArgumentError("\n".join(str(part) for part in parts))
    return g.Assert(condition, data, summarize, "Assert")


def _known(part: Any) -> Any:
    if not g.is_tensor_like(part):
        return part
    tensor = g.convert_to_tensor(part)
    value = constant_of(tensor.spec)
    return tensor.name if value is None else value


def _compares(
    own: str, sign: str, test: Callable[..., Tensor], reference: np.ufunc, zero: bool = False
) -> Callable[..., Operation]:
    """Return the assertion ``x sign y``, or ``x sign 0``."""

    def check(x: Any, data: Any, summarize: Any, message: Any, name: Any, y: Any = None) -> Operation:
        with g.name_scope(name, own):
            x = g.convert_to_tensor(x) if zero else x
            a, b = convert_pair(x, g.constant(0, x.dtype) if zero else y, name or own)
            if data is None:
                text = f"Condition x {sign} {'0' if zero else 'y'} did not hold element-wise:"
                data = [text, f"x ({a.name}) = ", a]
                data += [] if zero else [f"y ({b.name}) = ", b]
            values = [constant_of(tensor.spec) for tensor in (a, b)]
            static = None if any(value is None for value in values) else reference(*values)
            return _checked(g.reduce_all(test(a, b)), static, data, message, summarize)

    doc = (
        f"Assert ``x {sign} {'0' if zero else 'y'}`` for all elements, which broadcast. TF1: same name."
    )
    arguments = {"x": _REQUIRED, **({} if zero else {"y": _REQUIRED}), **_COMMON}
    return function_of(own, doc, arguments, check)


assert_equal = _compares("assert_equal", "==", g.equal, np.equal)
assert_none_equal = _compares("assert_none_equal", "!=", g.not_equal, np.not_equal)
assert_less = _compares("assert_less", "<", g.less, np.less)
assert_less_equal = _compares("assert_less_equal", "<=", g.less_equal, np.less_equal)
assert_greater = _compares("assert_greater", ">", g.greater, np.greater)
assert_greater_equal = _compares("assert_greater_equal", ">=", g.greater_equal, np.greater_equal)
assert_positive = _compares("assert_positive", ">", g.greater, np.greater, zero=True)
assert_negative = _compares("assert_negative", "<", g.less, np.less, zero=True)
assert_non_negative = _compares(
    "assert_non_negative", ">=", g.greater_equal, np.greater_equal, zero=True
)
assert_non_positive = _compares("assert_non_positive", "<=", g.less_equal, np.less_equal, zero=True)


def assert_near(
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Assert ``|x - y| <= atol + rtol * |y|`` for all elements. TF1: same name.

    Both tolerances are by default 10 times the epsilon of the dtype, a float or complex one.
    """
    with g.name_scope(name, "assert_near", [x, y, rtol, atol]):
        a, b = convert_pair(x, y, "assert_near")
        real = a.dtype.real_dtype
        least = 10 * np.finfo(real.numpy).eps
        bounds = [g.convert_to_tensor(least if t is None else t, real) for t in (rtol, atol)]
        if data is None:
            text = "x and y not equal to tolerance rtol = , atol = "
            data = [text, *bounds, f"x ({a.name}) = ", a, f"y ({b.name}) = ", b]
        absolute = g.abs(a - b)
        close = g.reduce_all(absolute <= bounds[1] + bounds[0] * g.abs(b))
        return _checked(close, None, data, message, summarize)


# --- ranks and shapes -----------------------------------------------------------------------------
def _has_rank(own: str, what: str, fits: Any, doc: str, several: bool = False) -> Callable[..., Any]:
    """Return the assertion that a rank fits a wanted one, or several."""

    def check(
        x: Any, data: Any, summarize: Any, message: Any, name: Any, rank: Any = None, ranks: Any = None
    ) -> Operation:
        with g.name_scope(name, own, [x]):
            tensor = g.convert_to_tensor(x)
            wanted = [g.convert_to_tensor(one) for one in (ranks if several else [rank])]
            for one in wanted:
                if one.shape.ndims not in (None, 0):
                    raise ValueError("Rank must be a scalar.")
                if not one.dtype.is_integer:
                    raise TypeError(f"Rank must be an integer, got {one!r}.")
            known = [constant_of(one.spec) for one in wanted]
            found = tensor.shape.ndims
            if found is not None and all(value is not None for value in known):
                numbers = [int(value) for value in known if value is not None]
                if not fits(found, numbers):
                    before = f"{message} " if message else ""
                    text = ", ".join(map(str, numbers))
                    raise ValueError(
                        f"{before}Tensor {tensor.name} must have rank {what}{text}. "
                        f"Received rank {found}, shape {tensor.shape}"
                    )
                return g.no_op("static_checks_determined_all_ok")
            if data is None:
                texts = [f"Tensor {tensor.name} must have rank {what}", *wanted]
                data = [*texts, "Received shape: ", g.shape(tensor)]
            return _checked(fits(g.rank(tensor), wanted), None, data, message, summarize)

    arguments = {"x": _REQUIRED, "ranks" if several else "rank": _REQUIRED, **_COMMON}
    return function_of(own, f"Assert that a tensor has {doc}. TF1: same name.", arguments, check)


def _among(found: Any, ranks: Any) -> Any:
    if not g.is_tensor_like(found):
        return found in ranks
    return g.reduce_any(g.stack([g.equal(found, rank) for rank in ranks]))


assert_rank = _has_rank("assert_rank", "", _among, "a rank, a scalar integer")
assert_rank_at_least = _has_rank(
    "assert_rank_at_least", "at least ", lambda found, ranks: found >= ranks[0], "this rank or more"
)
assert_rank_in = _has_rank("assert_rank_in", "in ", _among, "one of several ranks", several=True)


def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Tensor:
    """Return a tensor with a static shape that the run checks. TF1: same name.

    ValueError if the static shapes are incompatible.
    """
    same = g.identity(g.convert_to_tensor(x), name or "EnsureShape")
    same.set_shape(shape)
    return same


# --- dtypes ---------------------------------------------------------------------------------------
def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Operation:
    """Raise TypeError unless a tensor is of integers. TF1: same name."""
    x = g.convert_to_tensor(x)
    text = f"Expected 'x' to be integer type. Found: {x.dtype.name} of {x.name}."
    return _of_dtype(x.dtype.is_integer, text, message, name or "assert_integer")


def assert_type(
    tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None
) -> Operation:
    """Raise TypeError unless a tensor is of a dtype. TF1: same name."""
    x, wanted = g.convert_to_tensor(tensor), g.as_dtype(tf_type)
    text = f"{x.name} must be of type {wanted.name}, got {x.dtype.name}."
    return _of_dtype(x.dtype == wanted, text, message, name or "assert_type")


def _of_dtype(fits: bool, text: str, message: str | None, name: str) -> Operation:
    if not fits:
        raise TypeError(f"{message} {text}" if message else text)
    return g.no_op(name)


# --- NaN and infinity -----------------------------------------------------------------------------
def verify_tensor_all_finite(
    t: Any = None, msg: str | None = None, name: str | None = None, x: Any = None, message: Any = None
) -> Tensor:
    """Return a tensor; the run fails if it has a NaN or an infinity. TF1: same name."""
    value, text = renamed_argument("x", x, "t", t), (msg if message is None else message)
    if value is None or text is None:
        raise ValueError("verify_tensor_all_finite() needs a tensor and a message.")
    return g.check_numerics(value, text, name or "VerifyFinite")


def add_check_numerics_ops() -> Operation:
    """Return an operation that fails if any float tensor of the graph so far is not finite.

    TF1: same name. The error names the tensor. ValueError if the graph has branches or loops.
    """
    operations = [op for op in g.get_default_graph().get_operations() if op.type != "VariableV2"]
    for op in operations:
        if "branches" in op.attrs:
            raise ValueError(
                f"add_check_numerics_ops() does not check inside of control flow: {op.name!r}."
            )
    tensors = [x for op in operations for x in op.outputs if x.dtype.is_floating]
    return g.group(*[g.check_numerics(x, x.name) for x in tensors])
