"""Static shapes: their algebra, and the rules that ops share.

A :data:`~asyncmon.graph.core.spec.Shape` is None where the rank is unknown, or a tuple with None for
each dimension that is unknown. A rule is a function from the specs of an op's inputs to those of its
outputs. It refuses inputs that do not fit with a sentence. Rules are made per op (``binary("AddV2")``)
where the op's name belongs into the text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from math import prod
from operator import index
from typing import Any

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.spec import Shape, Spec


def as_shape(value: Any) -> Shape:
    """Return a shape given as a sequence, an int, a TensorShape or None, as a plain tuple.

    Raises:
        TypeError: it is none of these.
        ValueError: a dimension is negative.
    """
    if value is None:
        return None
    if hasattr(value, "_as_shape"):
        own: Shape = value._as_shape()
        return own
    with suppress(TypeError):  # an array of several sizes has __index__, too
        value = (index(value),)
    try:
        dims = tuple([_dimension(d) for d in value])
    except TypeError:
        raise TypeError(
            f"Cannot use {value!r} as a shape; expected None or a sequence of ints and None."
        ) from None
    for d in dims:
        if d is not None and d < 0:
            raise ValueError(f"Dimension {d} must be >= 0, or None where it is unknown, got {value!r}.")
    return dims


def _dimension(value: Any) -> int | None:
    if type(value) is int or value is None:
        return value
    value = getattr(value, "value", value)  # of a Dimension
    return None if value is None else index(value)


def is_known(shape: Shape) -> bool:
    """Return true when every dimension is known."""
    return shape is not None and None not in shape


def num_elements(shape: Shape) -> int | None:
    """Return the number of elements, or None where a dimension is not known."""
    return None if shape is None or None in shape else prod(shape)  # type: ignore[arg-type]  # no None left


def is_compatible(x: Shape, y: Shape) -> bool:
    """Return true when one array could have both shapes."""
    if x is None or y is None or x == y:
        return True
    return len(x) == len(y) and all(a is None or b is None or a == b for a, b in zip(x, y, strict=True))


def merge(x: Shape, y: Shape) -> Shape:
    """Return what is known by two descriptions of one shape. ValueError where they contradict."""
    if x is None:
        return y
    if y is None or x == y:
        return x
    if len(x) != len(y):
        raise ValueError(f"Shapes must be equal rank, but are {len(x)} and {len(y)}")
    return tuple(merge_dim(a, b) for a, b in zip(x, y, strict=True))


def merge_dim(a: int | None, b: int | None) -> int | None:
    """Return what is known by two descriptions of one dimension."""
    if a is None:
        return b
    if b is None or a == b:
        return a
    raise ValueError(f"Dimensions must be equal, but are {a} and {b}")


def common(x: Shape, y: Shape) -> Shape:
    """Return what is true of two shapes: the dimensions in which they are known to be equal."""
    if x is None or y is None or len(x) != len(y):
        return None
    return tuple(a if a == b else None for a, b in zip(x, y, strict=True))


def broadcast(x: Shape, y: Shape) -> Shape:
    """Return the shape two shapes broadcast to."""
    if x == y and is_known(x):
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


_OUTSIDE = "Invalid {what} {axis}: expected a value in {range}"


def normalize_axis(axis: int, rank: int, what: str = "axis", error: str = _OUTSIDE) -> int:
    """Return an axis counted from the front.

    Args:
        axis: counted from the end where it is negative.
        rank: how many axes there are.
        what: the argument's name, for the error.
        error: the error's text, with ``{what}``, ``{axis}``, ``{rank}``, ``{range}`` to be filled in.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(error.format(what=what, axis=axis, rank=rank, range=f"[{-rank}, {rank})"))
    return axis % rank


def error_at(error: Exception, name: str, type: str, specs: Iterable[Spec]) -> Exception:
    """Return the error of a rule with the op and its input shapes, as the original writes it."""
    shapes = ", ".join(text(s.shape) for s in specs)
    found = f"{error} for {name.rstrip('/')!r} (op: {type!r}) with input shapes: {shapes}."
    return TypeError(found) if isinstance(error, TypeError) else ValueError(found)


def text(shape: Shape) -> str:
    """Write a shape as the original's error texts do: ``[2,?,3]``."""
    if shape is None:
        return "<unknown>"
    return "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


# --- rules that ops share ---------------------------------------------------------------------------

Rule = Callable[..., Any]

FLOATS = (dtypes.float16, dtypes.float32, dtypes.float64)
INTS = tuple([dtypes.as_dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)])
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
    """Return the rule of ops with one input, like which the output is, or of the dtype ``output``."""
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
    """Return the rule of ops that broadcast two inputs of one dtype, which the output has too.

    Args:
        op: the op type, for the error.
        allowed: the dtypes of the inputs.
        parameters: the names of the inputs, for the error.
        output: the dtype of the output, where it is another one.
    """
    names = frozenset([dtype.name for dtype in allowed])

    def rule(x: Spec, y: Spec, **_attrs: object) -> Spec:
        if x.dtype is not y.dtype:
            check_same_dtype(op, x, y, parameters)
        if x.dtype.name not in names:
            check_dtype(x.dtype, allowed, parameters[0])
        return Spec(output or x.dtype, broadcast(x.shape, y.shape))

    return rule


def like_first(*specs: Spec, **_attrs: object) -> Spec:
    """Return the spec of an output like the first input, which the others must fit."""
    shape = specs[0].shape
    for other in specs[1:]:
        shape = merge(shape, other.shape)
    return Spec(specs[0].dtype, shape)
