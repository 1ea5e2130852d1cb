"""Print and check values of a run: ``Print``, ``Assert``, ``check_numerics``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core.build import convert_to_tensor, create_op, create_operation
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.rules import FLOATS, unary


def Print(
    input_: Any,
    data: Sequence[Any],
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return ``input_``, and write ``data`` to stderr each time it is computed. TF1: ``tf.Print``.

    Args:
        input_: the tensor to return.
        data: tensors to write.
        message: a prefix of the line.
        first_n: the number of times to write; negative for no limit.
        summarize: the number of elements of each tensor, 3 by default; negative for all.
    """
    attrs = {
        "message": message or "",
        "times": None if first_n is None or first_n < 0 else iter(range(first_n)),
        "summarize": 3 if summarize is None else summarize,
    }
    return create_op("Print", (input_, *map(convert_to_tensor, data)), attrs, name)


def Assert(
    condition: Any, data: Sequence[Any], summarize: int | None = None, name: str | None = None
) -> Operation:
    """Return an operation that fails unless ``condition`` is true. TF1: ``tf.Assert``.

    The run raises InvalidArgumentError, "assertion failed", with the first ``summarize`` elements (3 by
    default) of each tensor of ``data``.
    """
    if not isinstance(data, list | tuple):
        raise TypeError(f"Expected list for 'data' argument to 'Assert' Op, not {data!r}.")
    attrs = {"summarize": 3 if summarize is None else summarize}
    return create_operation("Assert", (condition, *map(convert_to_tensor, data)), attrs, name)


def check_numerics(tensor: Any, message: str, name: str | None = None) -> Tensor:
    """Return ``tensor``, and fail if it has a NaN or an infinity. TF1: ``tf.check_numerics``.

    The run raises InvalidArgumentError with the prefix ``message``.
    """
    if not isinstance(message, str):
        raise TypeError(f"message must be a string, got {message!r}.")
    return create_op("CheckNumerics", (tensor,), {"message": message}, name)


def _print(x: Any, *data: Any, message: str, times: Iterator[int] | None, summarize: int) -> Any:
    if times is None or next(times, None) is not None:
        sys.stderr.write(message + "".join(_shown(value, summarize) for value in data) + "\n")
    return x


def _assert(condition: Any, *data: Any, summarize: int) -> tuple[()]:
    if not condition:
        found = " ".join(_shown(value, summarize) for value in data)
        raise InvalidArgumentError(f"assertion failed: {found}")
    return ()


def _assert_spec(condition: Spec, *data: Spec, summarize: int) -> tuple[()]:
    if condition.dtype.name != "bool" or condition.shape not in ((), None):
        raise TypeError(f"The condition of Assert must be a bool scalar, got {condition!r}")
    return ()


def _check(x: Any, *, message: str) -> Any:
    # one pass for valid values: a finite sum of squares has finite terms
    flat = np.ravel(x)
    if flat.size and not np.isfinite(np.dot(flat, flat)) and not np.isfinite(flat).all():
        found = [name for name, test in (("Inf", np.isinf), ("NaN", np.isnan)) if test(flat).any()]
        raise InvalidArgumentError(f"{message} : Tensor had {' and '.join(found)} values")
    return x


def _check_gradient(op: Operation, grad: Tensor) -> list[Tensor]:
    message = op.attrs["message"]
    text = f"Not a number (NaN) or infinity (Inf) values detected in gradient. {message}"
    return [check_numerics(grad, text)]


# fmt: off
register(OpDef("Print", _print, lambda x, *data, **attrs: Spec(x.dtype, x.shape),
    lambda op, grad: [grad, *[None] * (len(op.inputs) - 1)], aliases=True, stateful=True, foreign=True))
register(OpDef("Assert", _assert, _assert_spec, stateful=True))
register(OpDef("CheckNumerics", _check, unary(FLOATS, "tensor"), _check_gradient, aliases=True,
    stateful=True))
# fmt: on


# --- values as text -------------------------------------------------------------------------------
def _shown(value: Any, summarize: int) -> str:
    """Format the first elements of a value, all if ``summarize`` < 0: ``[[1 2][3...]...]``."""
    array = np.asarray(value)
    limit = array.size if summarize < 0 else summarize
    elements = map(_element, islice(array.flat, limit))
    more = "..." if array.size > limit else ""
    return f"[{''.join(_rows(array.shape, elements, limit, 0))}{more}]"


def _rows(shape: tuple[int, ...], elements: Iterator[str], limit: int, start: int) -> Iterator[str]:
    """Yield the text of an array of this shape, whose first element is the ``start``-th of all."""
    if len(shape) < 2:
        yield " ".join(islice(elements, prod(shape)))
        return
    inner = prod(shape[1:])
    for i in range(start, start + shape[0] * inner, inner or 1):
        if i >= limit:
            return
        yield "["
        yield from _rows(shape[1:], elements, limit, i)
        if len(shape) == 2 and i + inner > limit:
            yield "..."
        yield "]"


def _element(x: Any) -> str:
    if isinstance(x, bytes):
        return x.decode(errors="backslashreplace")
    if isinstance(x, bool | np.bool_):
        return str(int(x))
    if isinstance(x, np.floating):
        wide = x.dtype.itemsize == 8
        number = np.float64(x) if wide else np.float32(x)
        text = f"{number:.{15 if wide else 6}g}"
        return text if type(number)(text) == x or np.isnan(x) else f"{number:.{17 if wide else 9}g}"
    return str(x)
