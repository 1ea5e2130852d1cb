"""The static shape of a tensor. TF1: ``tf.TensorShape``."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Dimension", "TensorShape", "as_shape", "dimension_value"]


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
        return self._known and not tuple.__contains__(self, None)

    def num_elements(self) -> int | None:
        """Return the product of the dimensions, or None where one is unknown."""
        if not self.is_fully_defined():
            return None
        return prod(d for d in tuple.__iter__(self) if d is not None)

    def is_compatible_with(self, other: Any) -> bool:
        """Return true when one array could have both shapes."""
        mine, yours = self.dims, TensorShape(as_shape(other)).dims
        if mine is None or yours is None:
            return True
        return len(mine) == len(yours) and all(
            a is None or b is None or a == b for a, b in zip(mine, yours, strict=True)
        )

    def merge_with(self, other: Any) -> TensorShape:
        """Return what two shapes say together. ValueError where they contradict. TF1: same name."""
        self.assert_is_compatible_with(other)
        mine, yours = self.dims, as_shape(other)
        if mine is None or yours is None:
            return TensorShape(yours if mine is None else mine)
        return TensorShape(b if a is None else a for a, b in zip(mine, yours, strict=True))

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


def as_shape(value: Any) -> tuple[int | None, ...] | None:
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
