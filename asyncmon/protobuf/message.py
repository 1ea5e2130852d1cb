"""Protobuf messages as dataclasses, with encoding, decoding and the text format."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from asyncmon.protobuf import fields
from asyncmon.protobuf.containers import Map as Map
from asyncmon.protobuf.containers import Repeated as Repeated
from asyncmon.protobuf.field import (
    Field,
    Kind,
    checked,
    decode,
    decode_all,
    decode_entry,
    encode_all,
    make_field,
)


def proto(
    number: int,
    kind: Kind | type[Message],
    *,
    repeated: bool = False,
    oneof: str | None = None,
    key: Kind | None = None,
    enum: Mapping[int, str] | None = None,
) -> Any:
    """Declare a field of a :class:`Message`; its default is protobuf's for the kind.

    Args:
        number: the field number.
        kind: the kind of the value, or the class of a nested message.
        repeated: the field is a list of values, a :class:`Repeated`.
        oneof: the group of fields of which one is set.
        key: the kind of the keys, for a map to such values, a :class:`Map`.
        enum: the names of the numbers, for the text format.
    """
    message, kind = (None, kind) if isinstance(kind, Kind) else (kind, Kind.MESSAGE)
    spec = (number, kind, repeated, message, oneof, key, enum)
    if message or repeated or key:
        return dataclasses.field(default_factory=lambda: None, metadata={"proto": spec})
    return dataclasses.field(default=kind.default, metadata={"proto": spec})


class Message:
    """Base class of protobuf messages; subclasses become dataclasses. Method names are protobuf's.

    A number or text is set if it differs from its default. A nested message, or a field of a group, is
    set if it was passed or assigned, or if one of its fields was set. Reading a field sets nothing.
    Messages that are passed or assigned are not copied.
    """

    def __init_subclass__(cls) -> None:
        # common methods: those of a dataclass take 0.3 ms for each class
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *args: Any, **values: Any) -> None:
        layout = _layout(type(self))
        if args or not layout.by_name.keys() >= values.keys():
            values = layout.named(type(self).__name__, args, values)
        composite = layout.composite
        for name, value in values.items():
            if name not in composite:
                self.__dict__[name] = value
            elif value is not None:
                self.__dict__[name] = _kept(composite[name], value)

    def __getattr__(self, name: str) -> Any:
        """Create an unset nested message, list or map at its first access."""
        field = self._field(name, AttributeError)
        if field.repeated or field.key:
            return self._container(field, self)
        assert field.message is not None, "others have a default"
        value = self.__dict__[name] = field.message()
        value.__dict__[_UNSET_IN] = (self, field)
        return value

    def _container(self, field: Field, owner: Message | None = None) -> Any:
        found = self.__dict__.get(field.name)
        if found is None:
            found = self.__dict__[field.name] = (Map if field.key else Repeated)((), field, owner)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        field = self._field(name, AttributeError)
        self._set(field, _kept(field, value) if name in _layout(type(self)).composite else value)

    def _set(self, field: Field, value: Any) -> None:
        if field.oneof:
            self.ClearField(field.oneof)
        self.__dict__[field.name] = value
        self.SetInParent()

    @classmethod
    def _field(cls, name: str, error: type[Exception] = ValueError) -> Field:
        field = _layout(cls).by_name.get(name)
        if field is None:
            raise error(f"{cls.__name__} has no field {name!r}.")
        return field

    def SetInParent(self) -> None:
        """Set this in its parent message, even if it is empty."""
        parent = self.__dict__.pop(_UNSET_IN, None)
        if parent is not None:
            parent[0]._set(parent[1], self)

    def __reduce__(self) -> Any:
        return type(self).FromString, (self.SerializeToString(),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message) or type(self) is not type(other):
            return False
        return self.ListFields() == other.ListFields()

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        shown = [f"{field.name}={value!r}" for field, value in self.ListFields()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __str__(self) -> str:
        """Return protobuf's text format."""
        return _message_text(self)

    def ListFields(self) -> list[tuple[Any, Any]]:
        """Return the fields that are set, which have ``name`` and ``number``, with their values."""
        values, layout = self.__dict__, _layout(type(self))
        present = sorted([layout.order[name] for name in values if name in layout.order])
        named = [layout.fields[i] for i in present]
        return [(field, values[field.name]) for field in named if self._has(field)]

    def _has(self, field: Field) -> bool:
        values = self.__dict__
        if field.name not in values:
            return False
        value = values[field.name]
        if field.repeated or field.key:
            return bool(value)
        if field.message is not None:
            return _UNSET_IN not in value.__dict__
        return field.oneof is not None or bool(value != field.kind.default)

    def SerializeToString(self, deterministic: bool = True) -> bytes:
        """Encode the message, with the entries of maps in sorted order."""
        return b"".join(
            [piece for field, value in self.ListFields() for piece in encode_all(field, value)]
        )

    @classmethod
    def FromString(cls, data: bytes | memoryview) -> Self:
        """Decode a message. Unknown fields are skipped.

        WireError if the bytes are not such a message.
        """
        message = object.__new__(cls)
        message.MergeFromString(data)
        return message

    def ParseFromString(self, serialized: bytes | memoryview) -> int:
        """Replace this by a decoded message, as :meth:`FromString`, and return the number of bytes."""
        self.Clear()
        return self.MergeFromString(serialized)

    def MergeFromString(self, serialized: bytes | memoryview) -> int:
        """Merge a decoded message, as of :meth:`FromString`, and return the number of bytes."""
        layout, values = _layout(type(self)), self.__dict__
        for number, wire_type, raw in fields(serialized):
            field = layout.by_number.get(number)
            if field is None:
                continue
            if field.key is not None:
                dict.update(self._container(field), [decode_entry(field, wire_type, raw)])
            elif field.repeated:
                list.extend(self._container(field), decode_all(field, wire_type, raw))
            elif field.message is not None and field.name in values:
                values[field.name].MergeFrom(decode(field, wire_type, raw))
            else:
                if field.oneof:  # the last one on the wire wins
                    for other in layout.oneofs[field.oneof]:
                        values.pop(other.name, None)
                values[field.name] = decode(field, wire_type, raw)
        self.SetInParent()
        return len(serialized)

    def CopyFrom(self, other_msg: Self) -> None:
        """Replace this by a copy of another message."""
        self._check_type(other_msg)
        copied = other_msg._clone()  # also where it is this one
        self.Clear()
        self.__dict__.update(copied.__dict__)
        self.SetInParent()

    def MergeFrom(self, other_msg: Self) -> None:
        """Merge the set fields of another message: append lists, merge nested messages."""
        self._check_type(other_msg)
        self.MergeFromString(other_msg.SerializeToString())

    def _clone(self) -> Self:
        twin = object.__new__(type(self))
        for name, value in self.__dict__.items():
            if isinstance(value, Repeated | Map) or (
                isinstance(value, Message) and _UNSET_IN not in value.__dict__
            ):
                twin.__dict__[name] = value._clone()
            elif not isinstance(value, Message) and name != _UNSET_IN:
                twin.__dict__[name] = value
        return twin

    def _check_type(self, other: Any) -> None:
        if type(other) is not type(self):
            raise TypeError(f"Expected {type(self).__name__}, got {type(other).__name__}.")

    def Clear(self) -> None:
        """Unset all fields. The message itself becomes set in its parent."""
        self.SetInParent()
        self.__dict__.clear()

    def ClearField(self, field_name: str) -> None:
        """Unset a field, or the set field of a group. ValueError for an unknown field."""
        for field in _layout(type(self)).oneofs.get(field_name) or [self._field(field_name)]:
            self.__dict__.pop(field.name, None)

    def ByteSize(self) -> int:
        """Return the size of the encoded message in bytes."""
        return len(self.SerializeToString())

    def WhichOneof(self, oneof_group: str) -> str | None:
        """Return the name of the set field of a group, or None."""
        group = _layout(type(self)).oneofs.get(oneof_group)
        if group is None:
            raise ValueError(f"{type(self).__name__} has no oneof {oneof_group!r}.")
        return next((field.name for field in group if self._has(field)), None)

    def HasField(self, field_name: str) -> bool:
        """Return whether a field, or a field of a group, is set."""
        if field_name in _layout(type(self)).oneofs:
            return self.WhichOneof(field_name) is not None
        return self._has(self._field(field_name))


# The key, in the dict of a message that is not set yet, of its parent message and field.
_UNSET_IN = "_unset_in"


class _Layout:
    def __init__(self, cls: type[Any]) -> None:
        declared = dataclasses.fields(cls)
        self.fields = [make_field(field.name, *field.metadata["proto"]) for field in declared]
        self.composite = {
            field.name: field for field in self.fields if field.repeated or field.key or field.message
        }
        self.by_number = {field.number: field for field in self.fields}
        self.by_name = {field.name: field for field in self.fields}
        self.order = {field.name: i for i, field in enumerate(self.fields)}
        self.oneofs: dict[str, list[Field]] = {}
        for field in self.fields:
            if field.oneof:
                self.oneofs.setdefault(field.oneof, []).append(field)

    def named(self, message: str, args: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name. TypeError for a repeated or unknown one."""
        given = dict(zip(self.by_name, args, strict=False))
        if len(given) < len(args) or given.keys() & values or not self.by_name.keys() >= values.keys():
            names = ", ".join(self.by_name)
            raise TypeError(f"{message} takes each of {names} once, got {args} and {values}.")
        return given | values


_layouts: dict[type[Message], _Layout] = {}


def _layout(cls: type[Message]) -> _Layout:
    layout = _layouts.get(cls)
    if layout is None:  # the fields of the dataclass are known from here on
        layout = _layouts[cls] = _Layout(cls)
    return layout


def _kept(field: Field, value: Any) -> Any:
    """Return a nested message, list or map in the form in which it is stored."""
    if field.key:
        return Map(value, field)
    if field.repeated:
        return Repeated(value, field)
    value = checked(field, value)
    value.__dict__.pop(_UNSET_IN, None)
    return value


# --- the text format ------------------------------------------------------------------------------
_ESCAPES = {byte: f"\\{byte:03o}" for byte in range(256) if not 32 <= byte < 127}
_ESCAPES |= {ord(char): f"\\{char}" for char in "\\'\""} | {10: r"\n", 13: r"\r", 9: r"\t"}
_SPECIAL = re.compile(r"[^ -~]|[\"'\\]")
_CHARACTERS = [_ESCAPES.get(byte, chr(byte)) for byte in range(256)]


def _message_text(message: Any) -> str:
    """Format a message."""
    lines: list[str] = []
    _add(lines, message, "")
    return "".join(lines)


def _add(lines: list[str], message: Any, indent: str) -> None:
    for field, value in message.ListFields():
        name = indent + field.name
        if field.key is not None:
            for key, element in sorted(value.items()):
                lines.append(f"{name} {{\n{indent}  key: {scalar_text(field.key, key)}\n")
                _add_value(lines, field, element, f"{indent}  value", indent + "  ")
                lines.append(f"{indent}}}\n")
        else:
            for element in value if field.repeated else [value]:
                _add_value(lines, field, element, name, indent)


def _add_value(lines: list[str], field: Field, value: Any, name: str, indent: str) -> None:
    if field.message is not None:
        lines.append(f"{name} {{\n")
        _add(lines, value, indent + "  ")
        lines.append(f"{indent}}}\n")
    else:
        lines.append(f"{name}: {scalar_text(field.kind, value, field.enum)}\n")


def scalar_text(kind: Kind, value: Any, enum: Mapping[int, str] | None = None) -> str:
    """Format a value that is no message."""
    if kind in (Kind.TEXT, Kind.BYTES):
        if isinstance(value, str) and not _SPECIAL.search(value):
            return f'"{value}"'
        data = value.encode() if isinstance(value, str) else value
        return f'"{"".join([_CHARACTERS[byte] for byte in data])}"'
    if kind is Kind.BOOL:
        return "true" if value else "false"
    if kind is Kind.INT:
        return str((enum or {}).get(value, int(value)))
    return _number(value, *((np.float32, 6, 9) if kind is Kind.FLOAT else (float, 15, 17)))


def _number(value: Any, kind: Any, digits: int, more: int) -> str:
    """Format a number with this number of digits if they suffice, else with more, as protobuf does."""
    short = f"{kind(value):.{digits}g}"
    return short if kind(short) == kind(value) or value != value else f"{kind(value):.{more}g}"
