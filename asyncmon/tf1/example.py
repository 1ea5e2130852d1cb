"""``tf.train.Example`` and kin: messages with protobuf's methods, which change in place.

::

    example = Example(features=Features(feature={"x": Feature(int64_list=Int64List(value=[1, 2]))}))
    example.features.feature["y"].float_list.value.append(0.5)
    Example.FromString(example.SerializeToString()) == example
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from asyncmon.protobuf import DELIMITED, WireError, delimited, fields, string
from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.text_format import scalar_text
from asyncmon.tf1.example_fields import Bytes, Floats, Ints, Part, Repeated

if TYPE_CHECKING:
    from collections.abc import Callable


class Message(Part):
    """Base of the messages. Fields are keyword arguments; those of a group exclude each other."""

    _fields: ClassVar[dict[str, tuple[int, Callable[[], Part]]]] = {}
    _group: ClassVar[str | None] = None
    """All fields are of this ``oneof``."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "_values", {})
        for name, value in values.items():
            if name not in self._fields:
                raise ValueError(f'Protocol message {type(self).__name__} has no "{name}" field.')
            if value is not None:
                part = getattr(self, name)
                part._fill(value)
                part._changed()

    def __getattr__(self, name: str) -> Any:
        if name not in self._fields:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)
        part = self._values.get(name)
        if part is None:  # it counts as set once it is changed
            part = self._fields[name][1]()
            object.__setattr__(part, "_in", (self, name))
        return part

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields:
            raise AttributeError(f'Protocol message {type(self).__name__} has no "{name}" field.')
        raise AttributeError(
            f'Assignment not allowed to message, map, or repeated field "{name}" in protocol message '
            "object. Use extend(), append(), CopyFrom() or get the element and change that."
        )

    def _set(self, name: str, part: Part) -> None:
        if self._values.get(name) is not part:
            if self._group is not None:
                self._values.clear()
            self._values[name] = part
        self._changed()

    def _fill(self, value: Any) -> None:
        if isinstance(value, Mapping):
            value = type(self)(**value)
        if type(value) is not type(self):
            raise TypeError(f"Expected {type(self).__name__} or a dict, got {value!r}.")
        self.MergeFrom(value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return dict(self._set_fields()) == dict(other._set_fields())

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    __repr__ = __str__

    def _set_fields(self) -> Iterator[tuple[str, Any]]:
        for name in self._fields:
            part = self._values.get(name)
            if part is not None and (isinstance(part, Message) or len(part)):
                yield name, part

    def _lines(self) -> Iterator[str]:
        for name, part in self._set_fields():
            yield from _block(name, part) if isinstance(part, Message) else part._lines(name)

    # -- protobuf's methods

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:
        """Return the message's bytes; entries of maps sorted where it must be deterministic."""
        out = []
        for name, part in self._set_fields():
            number = self._fields[name][0]
            if isinstance(part, Message):
                out.append(delimited(number, part.SerializeToString(deterministic)))
            else:
                out.append(part._encode(number, bool(deterministic)))
        return b"".join(out)

    @classmethod
    def FromString(cls, data: bytes | memoryview) -> Self:
        """Return the message in some bytes; unknown fields are skipped. WireError: they are none."""
        message = cls()
        message.MergeFromString(data)
        return message

    def ParseFromString(self, serialized: bytes | memoryview) -> int:
        """Become the message in some bytes, and return how many they are."""
        self.Clear()
        return self.MergeFromString(serialized)

    def MergeFromString(self, serialized: bytes | memoryview) -> int:
        """Add the message in some bytes, and return how many they are."""
        numbers = {number: name for name, (number, _make) in self._fields.items()}
        for number, wire_type, raw in fields(serialized):
            name = numbers.get(number)
            if name is not None:
                part = getattr(self, name)
                part._decode(wire_type, raw)
                part._changed()
        return len(serialized)

    def _decode(self, wire_type: int, raw: Any) -> None:
        if wire_type != DELIMITED:
            raise WireError(f"A {type(self).__name__} cannot have wire type {wire_type}.")
        self.MergeFromString(raw)

    def MergeFrom(self, other: Self) -> None:
        """Add what another message of the class has."""
        if type(other) is not type(self):
            raise TypeError(f"Expected {type(self).__name__}, got {type(other).__name__}.")
        for name, theirs in other._set_fields():
            part = getattr(self, name)
            part._fill(theirs)
            part._changed()

    def CopyFrom(self, other: Self) -> None:
        """Become equal to another message of the class."""
        if other is not self:
            copy = type(self)()
            copy.MergeFrom(other)
            self.Clear()
            self.MergeFrom(copy)
            self.SetInParent()

    def Clear(self) -> None:
        """Remove all fields."""
        self._values.clear()

    def ClearField(self, field_name: str) -> None:
        """Remove a field; of a group: its name, or that of the group."""
        if field_name == self._group:
            self._values.clear()
        elif field_name not in self._fields:
            raise ValueError(f'Protocol message {type(self).__name__} has no "{field_name}" field.')
        self._values.pop(field_name, None)

    def SetInParent(self) -> None:
        """Make this set in the message that it is in, even if it is empty."""
        self._changed()

    def HasField(self, field_name: str) -> bool:
        """Return whether a message is set."""
        if field_name == self._group:
            return bool(self._values)
        made = self._fields[field_name][1] if field_name in self._fields else None
        if not (isinstance(made, type) and issubclass(made, Message)):
            raise ValueError(f'{type(self).__name__} has no message "{field_name}".')
        return field_name in self._values

    def WhichOneof(self, oneof_group: str) -> str | None:
        """Return the name of the field of a group that is set, or None."""
        if oneof_group != self._group:
            raise ValueError(f'{type(self).__name__} has no oneof "{oneof_group}".')
        return next(iter(self._values), None)

    def ByteSize(self) -> int:
        """Return the number of bytes of the serialized message."""
        return len(self.SerializeToString())


def _block(name: str, message: Message) -> Iterator[str]:
    yield f"{name} {{"
    for line in message._lines():
        yield f"  {line}"
    yield "}"


class _Messages(Repeated):
    """Messages of one class, a repeated field."""

    _kind: ClassVar[type[Message]]

    def add(self, **values: Any) -> Any:
        """Append a new message, and return it."""
        self.append(self._kind(**values))
        return self[-1]

    def _checked(self, value: Any) -> Any:
        copy = self._kind()
        copy._fill(value)
        return copy

    def _lines(self, name: str) -> Iterator[str]:
        for value in self:
            yield from _block(name, value)

    def _encode(self, number: int, in_order: bool) -> bytes:
        return b"".join([delimited(number, value.SerializeToString(in_order)) for value in self])

    def _decode(self, wire_type: int, raw: Any) -> None:
        message = self._kind()
        message._decode(wire_type, raw)
        list.append(self, message)


class _Map(Part, MutableMapping[str, Any]):
    """Messages of one class by name. A name that is not there is added when it is asked for."""

    _kind: ClassVar[type[Message]]

    def __init__(self) -> None:
        self._items: dict[str, Message] = {}

    def __getitem__(self, key: str) -> Any:
        if not isinstance(key, str):
            raise TypeError(f"Names are str, got {key!r}.")
        if key not in self._items:
            self._items[key] = self._kind()
            self._changed()
        return self._items[key]

    get_or_create = __getitem__

    def get(self, key: str, default: Any = None) -> Any:
        return self._items.get(key, default)

    def __setitem__(self, key: str, value: Any) -> None:
        raise ValueError(f"Message objects may not be assigned; use [{key!r}].CopyFrom(...).")

    def __delitem__(self, key: str) -> None:
        del self._items[key]

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def MergeFrom(self, other: Mapping[str, Any]) -> None:
        """Take over what another map has."""
        self._fill(other)

    def _fill(self, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise TypeError(f"Expected a dict of {self._kind.__name__}, got {values!r}.")
        for key, value in values.items():
            message = self[key]
            message.Clear()
            message._fill(value)

    def _lines(self, name: str) -> Iterator[str]:
        for key, value in self._items.items():
            yield f"{name} {{"
            yield f"  key: {scalar_text(Kind.TEXT, key)}"
            yield from (f"  {line}" for line in _block("value", value))
            yield "}"

    def _encode(self, number: int, in_order: bool) -> bytes:
        items = sorted(self._items.items()) if in_order else self._items.items()
        entries = [string(1, key) + delimited(2, one.SerializeToString(in_order)) for key, one in items]
        return b"".join([delimited(number, entry) for entry in entries])

    def _decode(self, wire_type: int, raw: Any) -> None:
        if wire_type != DELIMITED:
            raise WireError(f"A map cannot have wire type {wire_type}.")
        key, message = "", self._kind()
        for number, kind, value in fields(raw):
            if number == 1 and not isinstance(value, int):
                key = str(value, "utf-8")
            elif number == 2:
                message._decode(kind, value)
        self._items[key] = message


class BytesList(Message):
    """TF1: ``tf.train.BytesList(value=[b"..."])``."""

    _fields: ClassVar = {"value": (1, Bytes)}


class FloatList(Message):
    """TF1: ``tf.train.FloatList(value=[0.5])``; elements are rounded to float32."""

    _fields: ClassVar = {"value": (1, Floats)}


class Int64List(Message):
    """TF1: ``tf.train.Int64List(value=[1])``."""

    _fields: ClassVar = {"value": (1, Ints)}


class Feature(Message):
    """One of ``bytes_list``, ``float_list`` and ``int64_list``. TF1: ``tf.train.Feature``."""

    _group: ClassVar = "kind"
    _fields: ClassVar = {
        "bytes_list": (1, BytesList),
        "float_list": (2, FloatList),
        "int64_list": (3, Int64List),
    }


class _FeatureMap(_Map):
    _kind: ClassVar = Feature


class _FeatureItems(_Messages):
    _kind: ClassVar = Feature


class Features(Message):
    """Features by name. TF1: ``tf.train.Features(feature={"name": Feature(...)})``."""

    _fields: ClassVar = {"feature": (1, _FeatureMap)}


class FeatureList(Message):
    """The features of one name, step by step. TF1: ``tf.train.FeatureList(feature=[...])``."""

    _fields: ClassVar = {"feature": (1, _FeatureItems)}


class _FeatureListMap(_Map):
    _kind: ClassVar = FeatureList


class FeatureLists(Message):
    """Lists of features by name. TF1: ``tf.train.FeatureLists(feature_list={...})``."""

    _fields: ClassVar = {"feature_list": (1, _FeatureListMap)}


class Example(Message):
    """A record of features. TF1: ``tf.train.Example(features=Features(...))``."""

    _fields: ClassVar = {"features": (1, Features)}


class SequenceExample(Message):
    """A record of steps. TF1: ``tf.train.SequenceExample(context=..., feature_lists=...)``."""

    _fields: ClassVar = {"context": (1, Features), "feature_lists": (2, FeatureLists)}
