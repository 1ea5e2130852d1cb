"""Protobuf messages as dataclasses: declare the fields, get both directions."""

from __future__ import annotations

import dataclasses
import struct
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class Kind(Enum):
    """How a field's value looks on the wire: its default, its wire type, to bytes and back."""

    INT = 0, VARINT, lambda value: varint(int(value)), signed
    BOOL = False, VARINT, lambda value: varint(bool(value)), bool
    FLOAT = 0.0, FIXED32, float32, lambda raw: _FLOAT.unpack(raw)[0]
    DOUBLE = 0.0, FIXED64, _DOUBLE.pack, lambda raw: _DOUBLE.unpack(raw)[0]
    TEXT = "", DELIMITED, str.encode, lambda raw: str(raw, "utf-8")
    BYTES = b"", DELIMITED, bytes, bytes
    MESSAGE = None, DELIMITED, lambda message: message.SerializeToString(), None

    def __init__(
        self, default: Any, wire_type: int, encode: Callable[[Any], bytes], decode: Callable[[Any], Any]
    ) -> None:
        self.default = default
        self.wire_type = wire_type
        self.encode = encode
        self.decode = decode


class _Field(NamedTuple):
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
    message, kind = (None, kind) if isinstance(kind, Kind) else (kind, Kind.MESSAGE)
    default: Any = () if repeated else message() if message else kind.default
    spec = (number, kind, default, repeated, message, oneof, fallback)
    if message and not repeated and not message._frozen:
        return dataclasses.field(default_factory=message, metadata={"proto": spec})
    return dataclasses.field(default=default, metadata={"proto": spec})


@dataclass_transform(frozen_default=True)
class Message:
    """Base of protobuf messages, whose classes become dataclasses. Method names are protobuf's.

    A field that differs from its default is set. Lists given for repeated fields become tuples. A
    message cannot change and has a hash, unless its class is declared with ``frozen=False``.
    """

    _frozen: ClassVar[bool]

    def __init_subclass__(cls, *, frozen: bool = True) -> None:
        cls._frozen = frozen
        # one set of methods for all: those of a frozen dataclass take 0.3 ms a class to define
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *args: Any, **values: Any) -> None:
        layout = _layout(type(self))
        if args or not layout.names.issuperset(values):
            values = layout.named(type(self).__name__, args, values)
        for field in layout.repeated:
            if field.name in values:
                values[field.name] = tuple(values[field.name])
        for name, make in layout.made.items():
            if name not in values:
                values[name] = make()
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._frozen:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        if name not in _layout(type(self)).by_name:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}.")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _values(self) == _values(other)

    def __hash__(self) -> int:
        if not self._frozen:
            raise TypeError(f"unhashable type: {type(self).__name__!r}")
        return hash(_values(self))

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
            elif field.kind.wire_type == DELIMITED:
                out.extend([_encode(field, element) for element in value])
            else:
                packed = b"".join([field.kind.encode(element) for element in value])
                out.append(delimited(field.number, packed))
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
            elif (value := getattr(self, field.name)) is not field.default and value != field.default:
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
        declared = dataclasses.fields(cls)
        self.fields = [_Field(field.name, *field.metadata["proto"]) for field in declared]
        self.repeated = [field for field in self.fields if field.repeated]
        self.names = frozenset([field.name for field in self.fields])
        self.made = {one.name: one.default_factory for one in declared if callable(one.default_factory)}
        self.by_number = {field.number: field for field in self.fields}
        self.by_name = {field.name: field for field in self.fields}
        self.oneofs: dict[str, list[_Field]] = {}
        for field in self.fields:
            if field.oneof:
                self.oneofs.setdefault(field.oneof, []).append(field)

    def named(self, message: str, args: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name. TypeError where one is given twice, or not known."""
        given = dict(zip(self.by_name, args, strict=False))
        if len(given) < len(args) or given.keys() & values or not self.names.issuperset(values):
            names = ", ".join(self.by_name)
            raise TypeError(f"{message} takes each of {names} once, got {args} and {values}.")
        return given | values


_layouts: dict[type[Message], _Layout] = {}


def _layout(cls: type[Message]) -> _Layout:
    layout = _layouts.get(cls)
    if layout is None:  # only now are the dataclass's fields known
        layout = _layouts[cls] = _Layout(cls)
    return layout


def _values(message: Any) -> tuple[Any, ...]:
    return tuple([getattr(message, field.name) for field in _layout(type(message)).fields])


def _encode(field: _Field, value: Any) -> bytes:
    kind, data = field.kind, field.kind.encode(value)
    if kind.wire_type == DELIMITED:
        return delimited(field.number, data)
    return varint(field.number << 3 | kind.wire_type) + data


def _decode(field: _Field, wire_type: int, raw: Any) -> Any:
    kind = field.kind
    if wire_type != kind.wire_type:
        raise WireError(f"Field {field.name!r} has wire type {wire_type}; it is a {kind.name.lower()}.")
    if field.message is not None:
        return field.message.FromString(raw)
    try:
        return kind.decode(raw)
    except UnicodeDecodeError as error:
        raise WireError(f"Field {field.name!r} is text and holds no UTF-8: {error}.") from None


def _decode_all(field: _Field, wire_type: int, raw: Any) -> Iterable[Any]:
    kind = field.kind
    if wire_type != DELIMITED or kind.wire_type == DELIMITED:
        return [_decode(field, wire_type, raw)]
    if kind.wire_type == VARINT:
        return _decode_varints(field, raw)
    try:
        return [number for (number,) in (_DOUBLE if kind is Kind.DOUBLE else _FLOAT).iter_unpack(raw)]
    except struct.error:
        raise WireError(
            f"The packed field {field.name!r} has {len(raw)} bytes: no whole number of elements."
        ) from None


def _decode_varints(field: _Field, raw: memoryview) -> list[Any]:
    numbers, position = [], 0
    while position < len(raw):
        number, position = read_varint(raw, position)
        numbers.append(field.kind.decode(number))
    return numbers
