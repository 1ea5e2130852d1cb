"""Shape and dtype rules that several ops share: specs in, spec out, a sentence where they do not fit.

A rule never sees values. ``None`` for a shape means "rank not known", ``None`` in a shape "dimension
not known". Rules are made per op (``binary("AddV2")``) where the op's name belongs into the error text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.op import ZERO, Spec
from asyncmon.graph.core.shape import broadcast as broadcast
from asyncmon.graph.core.shape import merge as merge
from asyncmon.graph.core.shape import merge_dim as merge_dim
from asyncmon.graph.core.shape import normalize_axis as normalize_axis
from asyncmon.graph.core.shape import num_elements as num_elements
from asyncmon.graph.core.shape import text as text
from asyncmon.graph.core.shape import with_rank as with_rank
from asyncmon.graph.core.shape import with_rank_at_least as with_rank_at_least

Rule = Callable[..., Any]

FLOATS = (dtypes.float16, dtypes.float32, dtypes.float64)
INTS = (
    dtypes.int8,
    dtypes.int16,
    dtypes.int32,
    dtypes.int64,
    dtypes.uint8,
    dtypes.uint16,
    dtypes.uint32,
    dtypes.uint64,
)
COMPLEX = (dtypes.complex64, dtypes.complex128)
REALS = FLOATS + INTS
NUMBERS = REALS + COMPLEX
SMOOTH = FLOATS + COMPLEX


def check_dtype(dtype: dtypes.DType, allowed: Collection[dtypes.DType], parameter: str = "x") -> None:
    """Refuse a dtype that an op is not defined for, with the original's text."""
    if dtype not in allowed:
        names = ", ".join(d.name for d in allowed)
        raise TypeError(
            f"Value passed to parameter {parameter!r} has DataType {dtype.name} "
            f"not in list of allowed values: {names}"
        )


def check_same_dtype(op: str, x: Spec, y: Spec, names: tuple[str, str] = ("x", "y")) -> None:
    """Refuse two tensors of different dtypes: nothing is promoted between tensors."""
    if x.dtype is not y.dtype:
        raise TypeError(
            f"Input {names[1]!r} of {op!r} Op has type {y.dtype.name} that does not match "
            f"type {x.dtype.name} of argument {names[0]!r}."
        )


def unary(
    allowed: Sequence[dtypes.DType] = NUMBERS, parameter: str = "x", output: dtypes.DType | None = None
) -> Rule:
    """One input; the output has its shape, and its dtype or ``output``."""
    names = frozenset([dtype.name for dtype in allowed])

    def rule(x: Spec, **_attrs: object) -> Spec:
        if x.dtype.name not in names:
            check_dtype(x.dtype, allowed, parameter)
        return Spec(output or x.dtype, x.shape)

    return rule


def binary(
    op: str,
    allowed: Sequence[dtypes.DType] = NUMBERS,
    parameters: tuple[str, str] = ("x", "y"),
    output: dtypes.DType | None = None,
) -> Rule:
    """Two inputs of one dtype that broadcast; the output has that dtype, or ``output``."""
    names = frozenset([dtype.name for dtype in allowed])

    def rule(x: Spec, y: Spec, **_attrs: object) -> Spec:
        if x.dtype is not y.dtype:
            check_same_dtype(op, x, y, parameters)
        if x.dtype.name not in names:
            check_dtype(x.dtype, allowed, parameters[0])
        return Spec(output or x.dtype, broadcast(x.shape, y.shape))

    return rule


def like_first(*specs: Spec, **_attrs: object) -> Spec:
    """The output is like the first input; every input has the same dtype and shape."""
    shape = specs[0].shape
    for other in specs[1:]:
        shape = merge(shape, other.shape)
    return Spec(specs[0].dtype, shape)


no_gradient = ZERO
