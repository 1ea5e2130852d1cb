"""Fields of messages: encoding, decoding and checks of their values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from operator import index
from typing import Any, NamedTuple

from asyncmon.protobuf import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    WireError,
    delimited,
    fields,
    float32,
    read_varint,
    signed,
    varint,
)

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def _is(*types: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, types):
            raise TypeError(f"expected {types[0].__name__}, {type(value).__name__} found")
        return value

    return check


def _integer(value: Any) -> int:
    number = index(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"Value out of range: {number}")
    return number


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError(f"must be real number, not {type(value).__name__}")
    return float(value)


class Kind(Enum):
    """The type of a field: its default, wire type, encoding, decoding, and check of list elements."""

    INT = 0, VARINT, lambda value: varint(int(value)), signed, _integer
    BOOL = False, VARINT, lambda value: varint(bool(value)), bool, bool
    FLOAT = (0.0, FIXED32, float32, lambda raw: _FLOAT.unpack(raw)[0],
        lambda value: float(_FLOAT.unpack(float32(_number(value)))[0]))  # fmt: skip
    DOUBLE = 0.0, FIXED64, _DOUBLE.pack, lambda raw: _DOUBLE.unpack(raw)[0], _number
    TEXT = (
        "",
        DELIMITED,
        lambda value: value if isinstance(value, bytes) else value.encode(),
        lambda raw: str(raw, "utf-8"),
        _is(str, bytes),
    )
    BYTES = b"", DELIMITED, bytes, bytes, _is(bytes)
    MESSAGE = None, DELIMITED, lambda message: message.SerializeToString(), None, None

    def __init__(
        self,
        default: Any,
        wire_type: int,
        encode: Callable[[Any], bytes],
        decode: Callable[[Any], Any],
        check: Callable[[Any], Any],
    ) -> None:
        self.default = default
        self.wire_type = wire_type
        self.encode = encode
        self.decode = decode
        self.check = check


class Field(NamedTuple):
    """A field of a message class."""

    name: str
    number: int
    kind: Kind
    repeated: bool
    message: Any  # the class of a nested one, or None
    oneof: str | None
    key: Kind | None  # of a map
    enum: Mapping[int, str] | None
    tag: bytes  # before each value on the wire
    delimited: bool


def make_field(name: str, number: int, kind: Kind, *rest: Any) -> Field:
    """Return a field from its name, number, kind and the options of :func:`proto`."""
    tag = varint(number << 3 | kind.wire_type)
    return Field._make((name, number, kind, *rest, tag, kind.wire_type == DELIMITED))


def _of_map(name: str, number: int, kind: Kind, message: Any = None) -> Field:
    return make_field(name, number, kind, False, message, None, None, None)


_KEYS = {kind: _of_map("key", 1, kind) for kind in Kind}


def key_of(field: Field) -> Field:
    """Return the field of the keys of a map."""
    assert field.key is not None, "it is a map"
    return _KEYS[field.key]


def encode_all(field: Field, value: Any) -> list[bytes]:
    """Return the encoded value of a field, in pieces."""
    if field.key is not None:
        key, entry = key_of(field), _of_map("value", 2, field.kind, field.message)
        return [
            delimited(field.number, _encode(key, one) + _encode(entry, element))
            for one, element in sorted(value.items())
        ]
    if not field.repeated:
        return [_encode(field, value)]
    if field.delimited:
        return [_encode(field, element) for element in value]
    return [delimited(field.number, b"".join([_data(field, element) for element in value]))]


def _data(field: Field, value: Any) -> bytes:
    try:
        return field.kind.encode(value)
    except (AttributeError, TypeError, struct.error) as error:
        raise _refused(field, value, error) from None


def checked(field: Field, value: Any) -> Any:
    """Convert a nested message (also given as a dict of its fields) or an element of a list.

    TypeError if the value is of another type. ValueError if the number is out of range.
    """
    if field.message is None:
        try:
            return field.kind.check(value)
        except TypeError as error:
            raise _refused(field, value, error) from None
    if type(value) is field.message:
        return value
    if isinstance(value, Mapping):
        return field.message(**value)
    raise _refused(field, value, f"expected {field.message.__name__} or a dict")


def _refused(field: Field, value: Any, why: object) -> TypeError:
    kind = field.kind.name.lower()
    return TypeError(f"Field {field.name!r} takes a {kind}, got {value!r}: {why}.")


def _encode(field: Field, value: Any) -> bytes:
    data = _data(field, value)
    if field.delimited:
        return field.tag + varint(len(data)) + data
    return field.tag + data


def decode(field: Field, wire_type: int, raw: Any) -> Any:
    """Decode the value of a field. WireError for invalid bytes."""
    kind = field.kind
    if wire_type != kind.wire_type:
        raise WireError(f"Field {field.name!r} has wire type {wire_type}; it is a {kind.name.lower()}.")
    if field.message is not None:
        return field.message.FromString(raw)
    try:
        return kind.decode(raw)
    except UnicodeDecodeError as error:
        raise WireError(f"Field {field.name!r} is text and holds no UTF-8: {error}.") from None


def decode_entry(field: Field, wire_type: int, raw: Any) -> tuple[Any, Any]:
    """Decode an entry of a map, a key and a value."""
    assert field.key is not None, "it is a map"
    if wire_type != DELIMITED:
        raise WireError(f"Field {field.name!r} has wire type {wire_type}; it is a map.")
    key = field.key.default
    value = field.message() if field.message is not None else field.kind.default
    for number, inner_type, inner in fields(raw):
        if number == 1:
            key = decode(key_of(field), inner_type, inner)
        elif number == 2:
            value = decode(field, inner_type, inner)
    return key, value


def decode_all(field: Field, wire_type: int, raw: Any) -> Iterable[Any]:
    """Decode one value of a repeated field, or several packed values."""
    kind = field.kind
    if wire_type != DELIMITED or kind.wire_type == DELIMITED:
        return [decode(field, wire_type, raw)]
    if kind.wire_type == VARINT:
        return _decode_varints(field, raw)
    try:
        return [number for (number,) in (_DOUBLE if kind is Kind.DOUBLE else _FLOAT).iter_unpack(raw)]
    except struct.error:
        raise WireError(
            f"The packed field {field.name!r} has {len(raw)} bytes: no whole number of elements."
        ) from None


def _decode_varints(field: Field, raw: memoryview) -> list[Any]:
    numbers, position = [], 0
    while position < len(raw):
        number, position = read_varint(raw, position)
        numbers.append(field.kind.decode(number))
    return numbers
