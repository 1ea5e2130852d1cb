"""Protobuf messages as dataclasses: declare the fields, get both directions."""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from asyncmon.protobuf import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    WireError,
    boolean,
    delimited,
    double,
    fields,
    float32,
    floating,
    integer,
    packed_doubles,
    read_varint,
    signed,
    string,
    to_doubles,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class Kind(Enum):
    """How a field's value looks on the wire."""

    INT = "int"
    BOOL = "bool"
    FLOAT = "float"
    DOUBLE = "double"
    TEXT = "text"
    BYTES = "bytes"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    number: int
    kind: Kind
    default: Any
    repeated: bool
    message: type[Message] | None
    oneof: str | None
    fallback: bool  # of its oneof: it is the one when no other is set


def proto(
    number: int,
    kind: Kind | type[Message],
    *,
    repeated: bool = False,
    oneof: str | None = None,
    fallback: bool = False,
) -> Any:
    """Declare a field of a :class:`Message`; its default is protobuf's for the kind.

    Args:
        number: the field number.
        kind: how it is written, or the class of a nested message.
        repeated: a tuple of such values.
        oneof: the group of which one field is set.
        fallback: the field of its group that counts as set when no other one is; so it is written even
            when it is zero.
    """
    message = None if isinstance(kind, Kind) else kind
    default: Any = () if repeated else message() if message else _DEFAULTS[Kind(kind)]
    spec = (number, Kind.MESSAGE if message else kind, default, repeated, message, oneof, fallback)
    if message and not repeated and getattr(message, "__hash__", None) is None:  # it can change
        return dataclasses.field(default_factory=message, metadata={"proto": spec})
    return dataclasses.field(default=default, metadata={"proto": spec})


_DEFAULTS: dict[Kind, Any] = {
    Kind.INT: 0,
    Kind.BOOL: False,
    Kind.FLOAT: 0.0,
    Kind.DOUBLE: 0.0,
    Kind.TEXT: "",
    Kind.BYTES: b"",
}


class Message:
    """Base of dataclasses that are protobuf messages. Method names are protobuf's.

    A field that differs from its default is set. Lists given for repeated fields become tuples.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for field in _layout(type(self)).repeated:
            value = getattr(self, field.name)
            if type(value) is not tuple:
                object.__setattr__(self, field.name, tuple(value))

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in _layout(type(self)).fields
            if self.HasField(field.name)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def SerializeToString(self) -> bytes:
        """Return the message's bytes."""
        out: list[bytes] = []
        for field in _layout(type(self)).fields:
            value = getattr(self, field.name)
            if field.fallback:
                if self.WhichOneof(str(field.oneof)) != field.name:
                    continue
            elif value is field.default or value == field.default:
                continue
            if not field.repeated:
                out.append(_encode(field, value))
            elif field.kind is Kind.DOUBLE:
                out.append(packed_doubles(field.number, value))
            elif field.kind in _PACKED:
                packed = b"".join([_PACKED[field.kind](element) for element in value])
                out.append(delimited(field.number, packed))
            else:
                out.extend([_encode(field, element) for element in value])
        return b"".join(out)

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
            if field.repeated:
                values.setdefault(field.name, []).extend(_decode_all(field, wire_type, raw))
            else:
                values[field.name] = _decode(field, wire_type, raw)
        return cls(**values)

    def WhichOneof(self, oneof_group: str) -> str | None:
        """Return the name of the field of a group that is set, or None."""
        fallback = None
        for field in _layout(type(self)).oneofs[oneof_group]:
            if field.fallback:
                fallback = field.name
            elif getattr(self, field.name) != field.default:
                return field.name
        return fallback

    def HasField(self, field_name: str) -> bool:
        """Return true when a field is set: it is the one of its group, or differs from its default."""
        field = _layout(type(self)).by_name.get(field_name)
        if field is None:
            raise ValueError(f"{type(self).__name__} has no field {field_name!r}.")
        if field.oneof:
            return self.WhichOneof(field.oneof) == field_name
        if field.repeated:
            return bool(getattr(self, field_name))
        return bool(getattr(self, field_name) != field.default)


class _Layout:
    def __init__(self, cls: type[Any]) -> None:
        self.fields = [
            _Field(field.name, *field.metadata["proto"]) for field in dataclasses.fields(cls)
        ]
        self.repeated = [field for field in self.fields if field.repeated]
        self.by_number = {field.number: field for field in self.fields}
        self.by_name = {field.name: field for field in self.fields}
        self.oneofs: dict[str, list[_Field]] = {}
        for field in self.fields:
            if field.oneof:
                self.oneofs.setdefault(field.oneof, []).append(field)


_layouts: dict[type[Message], _Layout] = {}


def _layout(cls: type[Message]) -> _Layout:
    layout = _layouts.get(cls)
    if layout is None:  # only now are the dataclass's fields known
        layout = _layouts[cls] = _Layout(cls)
    return layout


_ENCODERS: dict[Kind, Any] = {
    Kind.INT: integer,
    Kind.BOOL: boolean,
    Kind.FLOAT: floating,
    Kind.DOUBLE: double,
    Kind.TEXT: string,
    Kind.BYTES: delimited,
}
_PACKED: dict[Kind, Any] = {Kind.INT: varint, Kind.BOOL: varint, Kind.FLOAT: float32}
_WIRE_TYPES = {
    Kind.INT: VARINT,
    Kind.BOOL: VARINT,
    Kind.FLOAT: FIXED32,
    Kind.DOUBLE: FIXED64,
}


def _encode(field: _Field, value: Any) -> bytes:
    if field.message is not None:
        return delimited(field.number, value.SerializeToString())
    return bytes(_ENCODERS[field.kind](field.number, value))


def _decode(field: _Field, wire_type: int, raw: Any) -> Any:
    if wire_type != _WIRE_TYPES.get(field.kind, DELIMITED):
        raise WireError(f"Field {field.name!r} has wire type {wire_type}; it is a {field.kind.value}.")
    if field.message is not None:
        return field.message.FromString(raw)
    match field.kind:
        case Kind.INT:
            return signed(raw)
        case Kind.BOOL:
            return bool(raw)
        case Kind.FLOAT:
            return struct.unpack("<f", raw)[0]
        case Kind.DOUBLE:
            return struct.unpack("<d", raw)[0]
        case Kind.TEXT:
            try:
                return str(raw, "utf-8")
            except UnicodeDecodeError as error:
                raise WireError(f"Field {field.name!r} is text and holds no UTF-8: {error}.") from None
        case _:
            return bytes(raw)


def _decode_all(field: _Field, wire_type: int, raw: Any) -> Iterable[Any]:
    if wire_type != DELIMITED or field.kind not in _WIRE_TYPES:
        return [_decode(field, wire_type, raw)]
    if field.kind is Kind.DOUBLE and len(raw) % 8 == 0:
        return to_doubles(bytes(raw))
    if field.kind is Kind.FLOAT and len(raw) % 4 == 0:
        return [number for (number,) in struct.iter_unpack("<f", raw)]
    if field.kind in (Kind.INT, Kind.BOOL):
        return _decode_varints(field, raw)
    raise WireError(
        f"The packed field {field.name!r} has {len(raw)} bytes, which is no whole number of elements."
    )


def _decode_varints(field: _Field, raw: memoryview) -> list[Any]:
    numbers, position = [], 0
    while position < len(raw):
        number, position = read_varint(raw, position)
        numbers.append(_decode(field, VARINT, number))
    return numbers
