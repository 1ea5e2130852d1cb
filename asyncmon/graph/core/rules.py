"""Shape rules that ops share.

A rule maps the specs of an op's inputs to those of its outputs, and raises a full sentence for inputs
that do not fit. A rule whose error text contains the op's name is made per op: ``binary("AddV2")``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.op import Spec
from asyncmon.graph.core.shape import Shape, is_known, merge


def common(x: Shape, y: Shape) -> Shape:
    """Return a shape that both are compatible with: the dimensions that are known and equal."""
    if x is None or y is None or len(x) != len(y):
        return None
    return tuple(a if a == b else None for a, b in zip(x, y, strict=True))


def broadcast(x: Shape, y: Shape) -> Shape:
    """Return the shape that two shapes broadcast to."""
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
    """Return the shape with exactly this rank, or raise ValueError."""
    if shape is None:
        return (None,) * rank
    if len(shape) != rank:
        raise ValueError(f"Shape must be rank {rank} but is rank {len(shape)}")
    return shape


def with_rank_at_least(shape: Shape, rank: int) -> Shape:
    """Return the shape; ValueError if its rank is lower."""
    if shape is not None and len(shape) < rank:
        raise ValueError(f"Shape must be at least rank {rank} but is rank {len(shape)}")
    return shape


def shape_from(sizes: Spec) -> Shape:
    """Return the static shape described by a vector of sizes."""
    (rank,) = with_rank(sizes.shape, 1)
    known = sizes.known_dims()
    return (None,) * rank if known is None and rank is not None else known


def rank_of(shape: Shape) -> int | None:
    """Return the number of dimensions, or None if it is unknown."""
    return None if shape is None else len(shape)


_OUTSIDE = "Invalid {what} {axis}: expected a value in {range}"


def normalize_axis(axis: int, rank: int, what: str = "axis", error: str = _OUTSIDE) -> int:
    """Return an axis as a non-negative int.

    Args:
        axis: a negative one counts from the end.
        rank: the number of axes.
        what: the name of the argument, for the error.
        error: the error's text with the fields ``{what}``, ``{axis}``, ``{rank}``, ``{range}``.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(error.format(what=what, axis=axis, rank=rank, range=f"[{-rank}, {rank})"))
    return axis % rank


def error_at(error: Exception, name: str, type: str, specs: Iterable[Spec]) -> Exception:
    """Return the error of a rule with TF1's addition: the op and its input shapes."""
    shapes = ", ".join(text(s.shape) for s in specs)
    found = f"{error} for {name.rstrip('/')!r} (op: {type!r}) with input shapes: {shapes}."
    return TypeError(found) if isinstance(error, TypeError) else ValueError(found)


def text(shape: Shape) -> str:
    """Format a shape as in TF1's errors: ``[2,?,3]``."""
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
    """Raise TF1's TypeError for a dtype that an op is not defined for."""
    if dtype not in allowed:
        names = ", ".join(d.name for d in allowed)
        raise TypeError(
            f"Value passed to parameter {parameter!r} has DataType {dtype.name} "
            f"not in list of allowed values: {names}"
        )


def check_same_dtype(op: str, x: Spec, y: Spec, names: tuple[str, str] = ("x", "y")) -> None:
    """Raise TypeError for tensors of different dtypes: there is no type promotion between tensors."""
    if x.dtype is not y.dtype:
        raise TypeError(
            f"Input {names[1]!r} of {op!r} Op has type {y.dtype.name} that does not match "
            f"type {x.dtype.name} of argument {names[0]!r}."
        )


def unary(
    allowed: Sequence[dtypes.DType] = NUMBERS, parameter: str = "x", output: dtypes.DType | None = None
) -> Rule:
    """Return the rule of ops whose output has the shape and dtype (or ``output``) of the one input."""
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
    """Return the rule of ops that broadcast two inputs of one dtype.

    Args:
        op: the op type, for the error.
        allowed: the dtypes of the inputs.
        parameters: the names of the inputs, for the error.
        output: the dtype of the output, by default that of the inputs.
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
    """Return the spec of the first input; the shapes of the others must be compatible."""
    shape = specs[0].shape
    for other in specs[1:]:
        shape = merge(shape, other.shape)
    return Spec(specs[0].dtype, shape)
