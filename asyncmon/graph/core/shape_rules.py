"""Shape and dtype rules that several ops share: specs in, spec out, a sentence where they do not fit.

A rule never sees values. ``None`` for a shape means "rank not known", ``None`` in a shape "dimension
not known". Rules are made per op (``binary("AddV2")``) where the op's name belongs into the error text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import Any

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.op import ZERO, Shape, Spec

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


def broadcast(x: Shape, y: Shape) -> Shape:
    """Return the shape two shapes broadcast to."""
    if x == y and (x is None or None not in x):
        return x
    if x is None or y is None:
        return None
    if len(x) < len(y):
        x = (1,) * (len(y) - len(x)) + x
    elif len(y) < len(x):
        y = (1,) * (len(x) - len(y)) + y
    return tuple(_broadcast_dim(a, b) for a, b in zip(x, y, strict=True))


def _broadcast_dim(a: int | None, b: int | None) -> int | None:
    if a == 1 or a == b:
        return b
    if b == 1 or b is None:
        return a
    if a is None:
        return b
    raise ValueError(f"Dimensions must be equal, but are {a} and {b}")


def merge(x: Shape, y: Shape) -> Shape:
    """Return what two descriptions of the same shape say together."""
    if x is None:
        return y
    if y is None or x == y:
        return x
    if len(x) != len(y):
        raise ValueError(f"Shapes must be equal rank, but are {len(x)} and {len(y)}")
    return tuple(merge_dim(a, b) for a, b in zip(x, y, strict=True))


def merge_dim(a: int | None, b: int | None) -> int | None:
    """Return what two descriptions of one dimension say together."""
    if a is None:
        return b
    if b is None or a == b:
        return a
    raise ValueError(f"Dimensions must be equal, but are {a} and {b}")


def with_rank(shape: Shape, rank: int) -> tuple[int | None, ...]:
    """Return the shape as one of exactly this rank."""
    if shape is None:
        return (None,) * rank
    if len(shape) != rank:
        raise ValueError(f"Shape must be rank {rank} but is rank {len(shape)}")
    return shape


def with_rank_at_least(shape: Shape, rank: int) -> Shape:
    """Return the shape, which must have this rank or a higher one."""
    if shape is not None and len(shape) < rank:
        raise ValueError(f"Shape must be at least rank {rank} but is rank {len(shape)}")
    return shape


def normalize_axis(axis: int, rank: int, what: str = "axis") -> int:
    """Count a negative axis from the end."""
    if not -rank <= axis < rank:
        raise ValueError(f"Invalid {what} {axis}: expected a value in [{-rank}, {rank})")
    return axis + rank if axis < 0 else axis


def num_elements(shape: Shape) -> int | None:
    """Return the number of elements, or None where a dimension is not known."""
    if shape is None or None in shape:
        return None
    return prod(d for d in shape if d is not None)


def text(shape: Shape) -> str:
    """Write a shape as the original's error texts do: ``[2,?,3]``."""
    if shape is None:
        return "<unknown>"
    return "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


def unary(allowed: Sequence[dtypes.DType] = NUMBERS, parameter: str = "x") -> Rule:
    """One input; the output is like it."""
    members = frozenset(allowed)

    def rule(x: Spec, **_attrs: object) -> Spec:
        if x.dtype not in members:
            check_dtype(x.dtype, allowed, parameter)
        return Spec(x.dtype, x.shape)

    return rule


def predicate(allowed: Sequence[dtypes.DType] = NUMBERS) -> Rule:
    """One input; the output is bool and has its shape."""

    def rule(x: Spec, **_attrs: object) -> Spec:
        check_dtype(x.dtype, allowed)
        return Spec(dtypes.bool, x.shape)

    return rule


def binary(
    op: str, allowed: Sequence[dtypes.DType] = NUMBERS, names: tuple[str, str] = ("x", "y")
) -> Rule:
    """Two inputs of one dtype that broadcast; the output has that dtype."""
    members = frozenset(allowed)

    def rule(x: Spec, y: Spec, **_attrs: object) -> Spec:
        if x.dtype is not y.dtype:
            check_same_dtype(op, x, y, names)
        if x.dtype not in members:
            check_dtype(x.dtype, allowed, names[0])
        return Spec(x.dtype, broadcast(x.shape, y.shape))

    return rule


def comparison(op: str, allowed: Sequence[dtypes.DType] = NUMBERS) -> Rule:
    """Two inputs of one dtype that broadcast; the output is bool."""

    def rule(x: Spec, y: Spec, **_attrs: object) -> Spec:
        check_same_dtype(op, x, y)
        check_dtype(x.dtype, allowed)
        return Spec(dtypes.bool, broadcast(x.shape, y.shape))

    return rule


def like_first(*specs: Spec, **_attrs: object) -> Spec:
    """The output is like the first input; every input has the same dtype and shape."""
    shape = specs[0].shape
    for other in specs[1:]:
        shape = merge(shape, other.shape)
    return Spec(specs[0].dtype, shape)


no_gradient = ZERO
