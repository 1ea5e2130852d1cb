"""Protobuf messages as dataclasses: declare the fields, get both directions and the text format."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self, TypeVar

from asyncmon.protobuf import fields
from asyncmon.protobuf.field import (
    Field,
    Kind,
    decode,
    decode_all,
    decode_entry,
    encode_all,
    make_field,
)
from asyncmon.protobuf.text_format import message_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")


def proto(
    number: int,
    kind: Kind | type[Message],
    *,
    repeated: bool = False,
    oneof: str | None = None,
    fallback: bool = False,
    key: Kind | None = None,
    enum: Mapping[int, str] | None = None,
) -> Any:
    """Declare a field of a :class:`Message`; its default is protobuf's for the kind.

    Args:
        number: the field number.
        kind: how it is written, or the class of a nested message.
        repeated: a list of such values, a :class:`Repeated`.
        oneof: the group of which one field is set.
        fallback: the field of its group that counts as set when no other one is; so it is written even
            when it is zero.
        key: the kind of the keys, of a map to such values, a :class:`Map`.
        enum: names of the numbers, for the text format.
    """
    message, kind = (None, kind) if isinstance(kind, Kind) else (kind, Kind.MESSAGE)
    spec = (number, kind, repeated, message, oneof, fallback, key, enum)
    if message or repeated or key:
        return dataclasses.field(default_factory=lambda: None, metadata={"proto": spec})
    return dataclasses.field(default=kind.default, metadata={"proto": spec})


class Repeated(list[T]):
    """The values of a repeated field. Those of messages have protobuf's ``add``."""

    def __init__(self, values: Iterable[T] = (), message: Callable[..., T] | None = None) -> None:
        super().__init__(values)
        self._message = message

    def add(self, **fields: Any) -> T:
        """Add a message with these fields, and return it."""
        if self._message is None:
            raise AttributeError("add() is for lists of messages; this has append().")
        value = self._message(**fields)
        self.append(value)
        return value

    def __eq__(self, other: object) -> bool:
        return super().__eq__(list(other) if isinstance(other, tuple) else other)

    __hash__ = None


class Map(dict[Any, T]):
    """A map field. Of messages, a key that is missing is made when it is read, as protobuf does."""

    def __init__(self, values: Mapping[Any, T] = {}, message: Callable[..., T] | None = None) -> None:
        super().__init__(values)
        self._message = message

    def __missing__(self, key: Any) -> T:
        if self._message is None:
            raise KeyError(key)
        value = self[key] = self._message()
        return value


class Message:
    """Base of protobuf messages, whose classes become dataclasses. Method names are protobuf's.

    A number or text that differs from its default is set; a nested message, or one of a group, that was
    given or assigned, or that something was set in. Reading a field sets nothing.
    """

    def __init_subclass__(cls) -> None:
        # one set of methods for all: those of a dataclass take 0.3 ms a class to define
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *args: Any, **values: Any) -> None:
        layout = _layout(type(self))
        if args or not layout.by_name.keys() >= values.keys():
            values = layout.named(type(self).__name__, args, values)
        for field in layout.collections:
            if field.name in values:
                values[field.name] = _collection(field, values[field.name])
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """Make what was not set of a nested message, list or map, to be filled."""
        field = _layout(type(self)).by_name.get(name)
        if field is None:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}.")
        if field.repeated or field.key:
            value: Any = _collection(field, ())
        else:
            assert field.message is not None, "others have a default"
            value = field.message()
            self.__dict__.setdefault(_READ, set()).add(name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        layout = _layout(type(self))
        field = layout.by_name.get(name)
        if field is None:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}.")
        self.ClearField(name)
        if field.oneof:
            for other in layout.oneofs[field.oneof]:
                self.ClearField(other.name)
        self.__dict__[name] = _collection(field, value) if field.repeated or field.key else value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._set_values() == _set_values(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [f"{field.name}={value!r}" for field, value in self.ListFields()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __str__(self) -> str:
        """Return protobuf's text format."""
        return message_text(self)

    def ListFields(self) -> list[tuple[Any, Any]]:
        """Return what is set: the fields, which have ``name`` and ``number``, with their values."""
        values, layout = self.__dict__, _layout(type(self))
        present = sorted([layout.order[name] for name in values if name != _READ])
        found = [
            (field, values[field.name])
            for field in [layout.fields[i] for i in present]
            if self._has(field)
        ]
        fallback = layout.fallback
        if fallback is not None and fallback.name not in values and self._has(fallback):
            found.append((fallback, fallback.kind.default))
        return found

    def _set_values(self) -> dict[str, Any]:
        return {field.name: value for field, value in self.ListFields()}

    def _has(self, field: Field) -> bool:
        values = self.__dict__
        if field.fallback:
            return self.WhichOneof(str(field.oneof)) == field.name
        if field.name not in values:
            return False
        value = values[field.name]
        if field.repeated or field.key:
            return bool(value)
        if field.message is not None:
            return field.name not in values.get(_READ, ()) or bool(value.ListFields())
        return field.oneof is not None or bool(value != field.kind.default)

    def SerializeToString(self) -> bytes:
        """Return the message's bytes."""
        return b"".join(
            [piece for field, value in self.ListFields() for piece in encode_all(field, value)]
        )

    @classmethod
    def FromString(cls, data: bytes | memoryview) -> Self:
        """Return the message that some bytes hold. Unknown fields are skipped.

        Raises:
            WireError: the bytes are not such a message.
        """
        layout = _layout(cls)
        values: dict[str, Any] = {}
        for number, wire_type, raw in fields(data):
            field = layout.by_number.get(number)
            if field is None:
                continue
            if field.oneof:  # the last one on the wire wins
                for other in layout.oneofs[field.oneof]:
                    values.pop(other.name, None)
            if field.key is not None:
                values.setdefault(field.name, {}).update([decode_entry(field, wire_type, raw)])
            elif field.repeated:
                values.setdefault(field.name, []).extend(decode_all(field, wire_type, raw))
            else:
                values[field.name] = decode(field, wire_type, raw)
        return cls(**values)

    def ParseFromString(self, serialized: bytes) -> int:
        """Become the message that some bytes hold, and return how many these are.

        Raises:
            WireError: the bytes are not such a message.
        """
        self.CopyFrom(type(self).FromString(serialized))
        return len(serialized)

    def MergeFromString(self, serialized: bytes) -> int:
        """Merge the message that some bytes hold into this, and return how many these are."""
        self.MergeFrom(type(self).FromString(serialized))
        return len(serialized)

    def CopyFrom(self, other_msg: Self) -> None:
        """Become a copy of another message."""
        copied = type(self).FromString(other_msg.SerializeToString())  # also where it is this one
        self.__dict__.clear()
        self.__dict__.update(copied.__dict__)

    def MergeFrom(self, other_msg: Self) -> None:
        """Take over what is set in another message: lists are appended, nested messages merged."""
        for field, value in type(self).FromString(other_msg.SerializeToString()).ListFields():
            if field.key is not None:
                getattr(self, field.name).update(value)
            elif field.repeated:
                getattr(self, field.name).extend(value)
            elif field.message is not None and self._has(field):
                getattr(self, field.name).MergeFrom(value)
            else:
                setattr(self, field.name, value)

    def Clear(self) -> None:
        """Unset all fields."""
        self.__dict__.clear()

    def ClearField(self, field_name: str) -> None:
        """Unset a field."""
        self.__dict__.pop(field_name, None)
        self.__dict__.get(_READ, set()).discard(field_name)

    def ByteSize(self) -> int:
        """Return how many bytes it takes."""
        return len(self.SerializeToString())

    def WhichOneof(self, oneof_group: str) -> str | None:
        """Return the name of the field of a group that is set, or None."""
        fallback = None
        for field in _layout(type(self)).oneofs[oneof_group]:
            if field.fallback:
                fallback = field.name
            elif self._has(field):
                return field.name
        return fallback

    def HasField(self, field_name: str) -> bool:
        """Return true when a field is set."""
        field = _layout(type(self)).by_name.get(field_name)
        if field is None:
            raise ValueError(f"{type(self).__name__} has no field {field_name!r}.")
        return self._has(field)


_READ = "_read"  # in a message's dict: the names of nested messages that were read before they were set


class _Layout:
    def __init__(self, cls: type[Any]) -> None:
        declared = dataclasses.fields(cls)
        self.fields = [make_field(field.name, *field.metadata["proto"]) for field in declared]
        self.collections = [field for field in self.fields if field.repeated or field.key]
        self.by_number = {field.number: field for field in self.fields}
        self.by_name = {field.name: field for field in self.fields}
        self.order = {field.name: i for i, field in enumerate(self.fields)}
        self.fallback = next((field for field in self.fields if field.fallback), None)
        self.oneofs: dict[str, list[Field]] = {}
        for field in self.fields:
            if field.oneof:
                self.oneofs.setdefault(field.oneof, []).append(field)

    def named(self, message: str, args: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name. TypeError where one is given twice, or not known."""
        given = dict(zip(self.by_name, args, strict=False))
        if len(given) < len(args) or given.keys() & values or not self.by_name.keys() >= values.keys():
            names = ", ".join(self.by_name)
            raise TypeError(f"{message} takes each of {names} once, got {args} and {values}.")
        return given | values


_layouts: dict[type[Message], _Layout] = {}


def _layout(cls: type[Message]) -> _Layout:
    layout = _layouts.get(cls)
    if layout is None:  # only now are the dataclass's fields known
        layout = _layouts[cls] = _Layout(cls)
    return layout


def _collection(field: Field, values: Any) -> Any:
    return Map(values, field.message) if field.key else Repeated(values, field.message)


def _set_values(message: Any) -> dict[str, Any]:
    values: dict[str, Any] = message._set_values()
    return values
