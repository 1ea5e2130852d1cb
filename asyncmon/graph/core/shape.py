"""Static shapes: their algebra, the rules that ops share, and their public form, ``tf.TensorShape``.

A :data:`~asyncmon.graph.core.spec.Shape` is None where the rank is unknown, or a tuple with None for
each dimension that is unknown. A rule is a function from the specs of an op's inputs to those of its
outputs. It refuses inputs that do not fit with a sentence. Rules are made per op (``binary("AddV2")``)
where the op's name belongs into the text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncmon.graph.core.spec import Shape


def as_shape(value: Any) -> Shape:
    """Return a shape given as a sequence, an int, a :class:`TensorShape` or None, as a plain tuple.

    Raises:
        TypeError: it is none of these.
        ValueError: a dimension is negative (-1 stands for None).
    """
    if value is None:
        return None
    if isinstance(value, TensorShape):
        return value.dims
    if hasattr(value, "__index__"):
        value = (value,)
    try:
        dims = tuple(None if d is None or d == -1 else int(d.__index__()) for d in value)
    except (TypeError, AttributeError):
        raise TypeError(
            f"Cannot use {value!r} as a shape; expected None or a sequence of ints and None."
        ) from None
    if any(d is not None and d < 0 for d in dims):
        raise ValueError(f"Shape {dims} has a negative dimension.")
    return dims


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


# --- the public form ------------------------------------------------------------------------------


class Dimension(int):
    """A known dimension: an int that also has the original's ``.value``. TF1: ``tf.Dimension``."""

    __slots__ = ()

    @property
    def value(self) -> int:
        """The dimension as a plain int."""
        return int(self)


def dimension_value(dimension: int | None) -> int | None:
    """Return a dimension of a shape as a plain int, or None. TF1: ``tf.dimension_value``."""
    return None if dimension is None else int(dimension)


class TensorShape(tuple[int | None, ...]):
    """A tuple of dimensions, None where one is unknown; the rank itself may be unknown.

    Example:
        >>> shape = TensorShape([None, 10])
        >>> shape == (None, 10), shape.as_list(), shape.ndims
        (True, [None, 10], 2)
    """

    _known: bool

    def __new__(cls, dims: Iterable[int | None] | int | None = None) -> Self:
        if type(dims) is not tuple:
            dims = as_shape(dims)
        self = super().__new__(cls, () if dims is None else dims)
        self._known = dims is not None
        return self

    @property
    def ndims(self) -> int | None:
        """The number of dimensions, or None."""
        return tuple.__len__(self) if self._known else None

    rank = ndims

    @property
    def dims(self) -> tuple[int | None, ...] | None:
        """The dimensions as a plain tuple, or None for an unknown rank."""
        return tuple(tuple.__iter__(self)) if self._known else None

    def as_list(self) -> list[int | None]:
        """Return the dimensions. ValueError for an unknown rank."""
        self._need_rank("as_list() is not defined on an unknown TensorShape.")
        return list(tuple.__iter__(self))

    def is_fully_defined(self) -> bool:
        """Return true when every dimension is known."""
        return is_known(self.dims)

    def num_elements(self) -> int | None:
        """Return the product of the dimensions, or None where one is unknown."""
        return num_elements(self.dims)

    def is_compatible_with(self, other: Any) -> bool:
        """Return true when one array could have both shapes."""
        return is_compatible(self.dims, as_shape(other))

    def merge_with(self, other: Any) -> TensorShape:
        """Return what two shapes say together. ValueError where they contradict. TF1: same name."""
        self.assert_is_compatible_with(other)
        return TensorShape(merge(self.dims, as_shape(other)))

    def concatenate(self, other: Any) -> TensorShape:
        """Return the dimensions of this shape, then those of another one. TF1: same name."""
        mine, yours = self.dims, as_shape(other)
        return TensorShape(None if mine is None or yours is None else (*mine, *yours))

    def with_rank(self, rank: int) -> TensorShape:
        """Return the shape as one of this rank. ValueError where it has another. TF1: same name."""
        return self.merge_with((None,) * rank)

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """Return the shape. ValueError where its rank is lower. TF1: same name."""
        if self._known and tuple.__len__(self) < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """Return the shape. ValueError where its rank is higher. TF1: same name."""
        if self._known and tuple.__len__(self) > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raise ValueError where the rank is another one. TF1: same name."""
        if self.ndims not in (None, rank):
            raise ValueError(f"Shape {self} must have rank {rank}")

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise ValueError where no array could have both shapes. TF1: same name."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {TensorShape(as_shape(other))} are incompatible")

    def assert_is_fully_defined(self) -> None:
        """Raise ValueError where a dimension is not known. TF1: same name."""
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def __iter__(self) -> Iterator[int | None]:
        self._need_rank("Cannot iterate over a shape with unknown rank.")
        return (None if d is None else Dimension(d) for d in tuple.__iter__(self))

    @overload
    def __getitem__(self, key: SupportsIndex) -> Dimension | None: ...
    @overload
    def __getitem__(self, key: slice) -> TensorShape: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Dimension | TensorShape | None:
        if isinstance(key, slice):
            return TensorShape(tuple.__getitem__(self, key) if self._known else None)
        if not self._known:
            return None
        found = tuple.__getitem__(self, key)
        return None if found is None else Dimension(found)

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return TensorShape(as_shape(other)).concatenate(self)

    def __len__(self) -> int:
        self._need_rank("Cannot take the length of shape with unknown rank.")
        return tuple.__len__(self)

    def __bool__(self) -> bool:
        return self._known

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TensorShape):
            return self._known == other._known and tuple.__eq__(self, other)
        if isinstance(other, list):
            other = tuple(other)
        return self._known and tuple.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __str__(self) -> str:
        if not self._known:
            return "<unknown>"
        dims = ["?" if d is None else str(d) for d in tuple.__iter__(self)]
        return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"

    def __repr__(self) -> str:
        return f"TensorShape({None if self.dims is None else self.as_list()})"

    def _need_rank(self, message: str) -> None:
        if not self._known:
            raise ValueError(message)
