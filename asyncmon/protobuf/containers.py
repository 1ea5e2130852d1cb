"""Values of repeated fields and maps of messages, which check their elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

from asyncmon.protobuf.field import Field, checked, key_of

T = TypeVar("T")


class Repeated(list[T]):
    """The values of a repeated field. Messages are copied; for them there is protobuf's ``add``."""

    def __init__(self, values: Iterable[T], field: Field, owner: Any = None) -> None:
        self._field = field
        self._owner = owner  # the message to set in its parent at the first element
        super().__init__([checked(field, value) for value in values])

    def add(self, **fields: Any) -> T:
        """Add a message with these fields, and return it."""
        if self._field.message is None:
            raise AttributeError("add() is for lists of messages; this has append().")
        super().append(self._field.message(**fields))
        _set_owner(self)
        return self[-1]

    def append(self, value: T) -> None:
        super().append(_copy(self._field, value))
        _set_owner(self)

    def extend(self, values: Iterable[T]) -> None:
        super().extend([_copy(self._field, value) for value in values])
        _set_owner(self)

    MergeFrom = extend

    def insert(self, key: Any, value: T) -> None:
        super().insert(key, _copy(self._field, value))
        _set_owner(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, slice):
            super().__setitem__(key, [_copy(self._field, one) for one in value])
        else:
            super().__setitem__(key, _copy(self._field, value))
        _set_owner(self)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        _set_owner(self)

    def __iadd__(self, values: Iterable[T]) -> Self:  # type: ignore[misc,override]  # takes any iterable
        self.extend(values)
        return self

    def __eq__(self, other: object) -> bool:
        return super().__eq__(list(other) if isinstance(other, tuple) else other)

    __hash__ = None

    def _clone(self) -> Self:
        twin = type(self)((), self._field)
        ours: list[Any] = self
        list.extend(twin, ours if self._field.message is None else [one._clone() for one in ours])
        return twin

    def __reduce__(self) -> Any:
        return list, (list(self),)


class Map(dict[Any, T]):
    """A map field. Reading a missing key of a map to messages creates it, as in protobuf."""

    def __init__(self, values: Any, field: Field, owner: Any = None) -> None:
        self._field, self._owner = field, owner
        super().__init__({self._key(key): checked(field, one) for key, one in dict(values).items()})

    def __missing__(self, key: Any) -> T:
        if self._field.message is None:
            raise KeyError(key)
        value: T = self._field.message()
        self._put(key, value)
        return value

    def get_or_create(self, key: Any) -> T:
        """Return the message of a key, which is created if it is missing."""
        return self[key]

    def __setitem__(self, key: Any, value: T) -> None:
        if self._field.message is not None:
            raise ValueError(f"Messages of a map cannot be assigned; use [{key!r}].CopyFrom(...).")
        self._put(key, checked(self._field, value))

    def MergeFrom(self, other: Mapping[Any, T]) -> None:
        """Add the entries of another map; messages are copied."""
        for key, value in other.items():
            self._put(key, _copy(self._field, value))

    update = MergeFrom  # type: ignore[assignment]  # a map's takes messages

    def _put(self, key: Any, value: T) -> None:
        super().__setitem__(self._key(key), value)
        _set_owner(self)

    def _key(self, key: Any) -> Any:
        return checked(key_of(self._field), key)

    def _clone(self) -> Self:
        twin, nested = type(self)((), self._field), self._field.message
        ours: dict[Any, Any] = self
        dict.update(twin, {key: one._clone() if nested else one for key, one in ours.items()})
        return twin

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _set_owner(values: Any) -> None:
    """Set the message of a list or map in its parent, as it is no longer empty."""
    owner, values._owner = values._owner, None
    if owner is not None:
        owner.SetInParent()


def _copy(field: Field, value: Any) -> Any:
    value = checked(field, value)
    return value if field.message is None else value._clone()
