"""The static shape of a tensor. TF1: ``tf.TensorShape``."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["TensorShape", "as_shape"]


class TensorShape(tuple[int | None, ...]):
    """A tuple of dimensions, None where one is unknown; the rank itself may be unknown.

    Example:
        >>> shape = TensorShape([None, 10])
        >>> shape == (None, 10), shape.as_list(), shape.ndims
        (True, [None, 10], 2)
    """

    _known: bool

    def __new__(cls, dims: Iterable[int | None] | None = None) -> Self:
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
        return tuple(self) if self._known else None

    def as_list(self) -> list[int | None]:
        """Return the dimensions. ValueError for an unknown rank."""
        self._need_rank("as_list() is not defined on an unknown TensorShape.")
        return list(self)

    def is_fully_defined(self) -> bool:
        """Return true when every dimension is known."""
        return self._known and None not in tuple(self)

    def num_elements(self) -> int | None:
        """Return the product of the dimensions, or None where one is unknown."""
        return prod(d for d in self if d is not None) if self.is_fully_defined() else None

    def is_compatible_with(self, other: Any) -> bool:
        """Return true when one array could have both shapes."""
        mine, yours = self.dims, TensorShape(as_shape(other)).dims
        if mine is None or yours is None:
            return True
        return len(mine) == len(yours) and all(
            a is None or b is None or a == b for a, b in zip(mine, yours, strict=True)
        )

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
        dims = ["?" if d is None else str(d) for d in self]
        return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"

    def __repr__(self) -> str:
        return f"TensorShape({self.dims})"

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
