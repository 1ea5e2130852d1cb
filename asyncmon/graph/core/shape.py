"""Static shapes: their algebra, and their public form. TF1: ``tf.TensorShape``, ``tf.Dimension``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import prod
from operator import index
from typing import Any, Final, Self, SupportsIndex, TypeGuard, overload

Shape = tuple[int | None, ...] | None
"""``None``: rank unknown. A ``None`` inside: that dimension is unknown."""


def as_shape(value: Any) -> Shape:
    """Convert a sequence, an int, a TensorShape or None to a plain tuple or None.

    TypeError if it is none of these. ValueError if a dimension is negative.
    """
    if value is None:
        return None
    if hasattr(value, "_as_shape"):
        own: Shape = value._as_shape()
        return own
    with suppress(TypeError):  # an array of several sizes has __index__, too
        value = (index(value),)
    try:
        dims = tuple([_plain_dimension(d) for d in value])
    except TypeError:
        raise TypeError(
            f"Cannot use {value!r} as a shape; expected None or a sequence of ints and None."
        ) from None
    for d in dims:
        if d is not None and d < 0:
            raise ValueError(f"Dimension {d} must be >= 0, or None where it is unknown, got {value!r}.")
    return dims


def _plain_dimension(value: Any) -> int | None:
    if type(value) is int or value is None:
        return value
    value = getattr(value, "value", value)  # of a Dimension
    return None if value is None else index(value)


def is_known(shape: Shape) -> TypeGuard[tuple[int, ...]]:
    """Return true when every dimension is known."""
    return shape is not None and None not in shape


def num_elements(shape: Shape) -> int | None:
    """Return the number of elements, or None if a dimension is unknown."""
    return prod(shape) if is_known(shape) else None


def is_compatible(x: Shape, y: Shape) -> bool:
    """Return true when an array can have both shapes."""
    if x is None or y is None or x == y:
        return True
    return len(x) == len(y) and all(a is None or b is None or a == b for a, b in zip(x, y, strict=True))


def merge(x: Shape, y: Shape) -> Shape:
    """Combine two static shapes of one array. ValueError if they are not compatible."""
    if x is None:
        return y
    if y is None or x == y:
        return x
    if len(x) != len(y):
        raise ValueError(f"Shapes must be equal rank, but are {len(x)} and {len(y)}")
    return tuple(merge_dim(a, b) for a, b in zip(x, y, strict=True))


def merge_dim(a: int | None, b: int | None) -> int | None:
    """Combine two static sizes of one dimension. ValueError if they differ."""
    if a is None:
        return b
    if b is None or a == b:
        return a
    raise ValueError(f"Dimensions must be equal, but are {a} and {b}")


class _Dimensions(type):
    """The metaclass of :class:`Dimension`, of which an unknown dimension counts as an instance."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, UnknownDimension) or super().__instancecheck__(instance)

    def __call__(cls, value: Any) -> Any:
        value = getattr(value, "value", value)
        if value is None:
            return UNKNOWN
        if value < 0:
            raise ValueError(f"Dimension {value} must be >= 0")
        return super().__call__(value)


def _arithmetic(name: str) -> Callable[[Any, Any], Any]:
    operator = getattr(int, name)

    def apply(self: Any, other: Any) -> Any:
        other = getattr(other, "value", other)
        if other is None:
            return UNKNOWN
        result = operator(int(self), other)
        return result if result is NotImplemented else Dimension(result)

    return apply


class Dimension(int, metaclass=_Dimensions):
    """A dimension of a shape: an int with TF1's ``.value``. TF1: ``tf.Dimension``.

    ``Dimension(None)`` is unknown: it is not an int, its ``value`` is None, and arithmetic with it
    gives an unknown dimension.
    """

    __slots__ = ()

    @property
    def value(self) -> int:
        """The dimension as a plain int."""
        return int(self)

    def is_compatible_with(self, other: Any) -> bool:
        """Return true when both can be equal. TF1: same name."""
        other = getattr(other, "value", other)
        return other is None or int(self) == other

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise ValueError unless both can be equal. TF1: same name."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Dimensions {self} and {other} are not compatible")

    def merge_with(self, other: Any) -> Dimension:
        """Return the known one of two compatible dimensions, else raise ValueError. TF1: same name."""
        self.assert_is_compatible_with(other)
        return self

    __add__ = __radd__ = _arithmetic("__add__")
    __sub__, __rsub__ = _arithmetic("__sub__"), _arithmetic("__rsub__")
    __mul__ = __rmul__ = _arithmetic("__mul__")
    __floordiv__, __rfloordiv__ = _arithmetic("__floordiv__"), _arithmetic("__rfloordiv__")
    __mod__, __rmod__ = _arithmetic("__mod__"), _arithmetic("__rmod__")

    def __str__(self) -> str:
        return int.__repr__(self)

    def __repr__(self) -> str:
        return f"Dimension({int(self)})"


def _unknown(_self: Any, _other: Any) -> Any:
    return UNKNOWN


class UnknownDimension:
    """``Dimension(None)``. It equals None; any other comparison gives None, as in TF1."""

    __slots__ = ()
    value: Final = None

    def is_compatible_with(self, _other: Any) -> bool:
        """Return true. TF1: same name."""
        return True

    def assert_is_compatible_with(self, _other: Any) -> None:
        """Do nothing. TF1: same name."""

    def merge_with(self, other: Any) -> Any:
        """Return ``other`` as a dimension. TF1: same name."""
        return Dimension(other)

    def __eq__(self, other: object) -> Any:
        return True if other is None else None

    def __ne__(self, other: object) -> Any:
        return False if other is None else None

    def __hash__(self) -> int:
        return hash(None)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unknown
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _unknown
    __lt__ = __le__ = __gt__ = __ge__ = lambda _self, _other: None

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return "?"

    def __repr__(self) -> str:
        return "Dimension(None)"


UNKNOWN: Final[Any] = UnknownDimension()


def _dimension(size: int | None) -> Dimension:
    found: Dimension = UNKNOWN if size is None else Dimension(size)
    return found


class TensorShape(tuple[int | None, ...]):
    """A tuple of dimensions, None for an unknown one; the rank may be unknown, too. TF1: same name.

    Example:
        >>> shape = TensorShape([None, 10])
        >>> shape == (None, 10), shape.as_list(), shape.ndims, shape[0].value
        (True, [None, 10], 2, None)
    """

    _known: bool

    def __new__(cls, dims: Iterable[int | None] | int | None = None) -> Self:
        if (
            type(dims) is not tuple
            or not _PLAIN.issuperset(map(type, dims))
            or any(d is not None and d < 0 for d in dims)
        ):
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
    def dims(self) -> list[Dimension] | None:
        """The dimensions as a list, or None if the rank is unknown."""
        return [*self] if self._known else None

    def as_list(self) -> list[int | None]:
        """Return the dimensions as ints or None. ValueError if the rank is unknown."""
        self._need_rank("as_list() is not defined on an unknown TensorShape.")
        return list(tuple.__iter__(self))

    def is_fully_defined(self) -> bool:
        """Return true when every dimension is known."""
        return is_known(self._as_shape())

    def num_elements(self) -> int | None:
        """Return the product of the dimensions, or None if one is unknown."""
        return num_elements(self._as_shape())

    def is_compatible_with(self, other: Any) -> bool:
        """Return true when an array can have both shapes."""
        return is_compatible(self._as_shape(), as_shape(other))

    def merge_with(self, other: Any) -> TensorShape:
        """Combine two static shapes. ValueError if they are not compatible. TF1: same name."""
        self.assert_is_compatible_with(other)
        return TensorShape(merge(self._as_shape(), as_shape(other)))

    def concatenate(self, other: Any) -> TensorShape:
        """Return this shape followed by the dimensions of another one. TF1: same name."""
        mine, yours = self._as_shape(), as_shape(other)
        return TensorShape(None if mine is None or yours is None else (*mine, *yours))

    def with_rank(self, rank: int) -> TensorShape:
        """Return the shape with this rank. ValueError if it has another rank. TF1: same name."""
        return self.merge_with((None,) * rank)

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """Return the shape. ValueError if its rank is lower. TF1: same name."""
        if self._known and tuple.__len__(self) < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """Return the shape. ValueError if its rank is higher. TF1: same name."""
        if self._known and tuple.__len__(self) > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raise ValueError if the rank is known and differs. TF1: same name."""
        if self.ndims not in (None, rank):
            raise ValueError(f"Shape {self} must have rank {rank}")

    def assert_same_rank(self, other: Any) -> None:
        """Raise ValueError if both ranks are known and differ. TF1: same name."""
        mine, yours = self.ndims, TensorShape(other).ndims
        if mine is not None and yours is not None and mine != yours:
            raise ValueError(f"Shapes {self} and {TensorShape(other)} must have the same rank")

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise ValueError unless an array can have both shapes. TF1: same name."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {TensorShape(as_shape(other))} are incompatible")

    def assert_is_fully_defined(self) -> None:
        """Raise ValueError if a dimension is unknown. TF1: same name."""
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def __iter__(self) -> Iterator[Dimension]:
        self._need_rank("Cannot iterate over a shape with unknown rank.")
        return map(_dimension, tuple.__iter__(self))

    @overload
    def __getitem__(self, key: SupportsIndex) -> Dimension: ...
    @overload
    def __getitem__(self, key: slice) -> TensorShape: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Dimension | TensorShape:
        if isinstance(key, slice):
            return TensorShape(tuple.__getitem__(self, key) if self._known else None)
        return _dimension(tuple.__getitem__(self, key) if self._known else None)

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
        if other is None:
            return not self._known
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
        return f"TensorShape({self.as_list() if self._known else None})"

    def _as_shape(self) -> Shape:
        return tuple(tuple.__iter__(self)) if self._known else None

    def _need_rank(self, message: str) -> None:
        if not self._known:
            raise ValueError(message)


_PLAIN = frozenset([int, type(None)])
