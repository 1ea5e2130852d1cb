"""The lists that are fields of ``tf.train.Example`` and kin."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from operator import index
from typing import Any, ClassVar, Self

from asyncmon.protobuf import DELIMITED, WireError, delimited, float32, read_varint, signed, varint
from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.text_format import scalar_text


class Part:
    """What lies in a message: a change of it makes it set there, and drops the others of its group."""

    _in: tuple[Any, str] | None = None

    def _changed(self) -> None:
        if self._in is not None:
            self._in[0]._set(self._in[1], self)


class Repeated(Part, list[Any]):
    """A list that checks its elements."""

    __hash__ = None
    _wire: ClassVar[Kind]

    def _checked(self, value: Any) -> Any:
        return value

    def append(self, value: Any) -> None:
        super().append(self._checked(value))
        self._changed()

    def extend(self, values: Iterable[Any]) -> None:
        super().extend([self._checked(value) for value in values])
        self._changed()

    def insert(self, key: Any, value: Any) -> None:
        super().insert(key, self._checked(value))
        self._changed()

    def __setitem__(self, key: Any, value: Any) -> None:
        several = isinstance(key, slice)
        super().__setitem__(key, list(map(self._checked, value)) if several else self._checked(value))
        self._changed()

    def __iadd__(self, values: Iterable[Any]) -> Self:  # type: ignore[misc]
        self.extend(values)
        return self

    def MergeFrom(self, other: Iterable[Any]) -> None:
        """Append what another one has."""
        self.extend(other)

    def _fill(self, values: Any) -> None:
        if not isinstance(values, Iterable):
            raise TypeError(f"Value must be iterable, got {values!r}.")
        self.extend(values)

    def _lines(self, name: str) -> Iterator[str]:
        for value in self:
            yield f"{name}: {scalar_text(self._wire, value)}"


class Bytes(Repeated):
    _wire = Kind.BYTES

    def _checked(self, value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"expected bytes, {type(value).__name__} found; encode text first")
        return value

    def _encode(self, number: int, _sorted: bool) -> bytes:
        return b"".join([delimited(number, value) for value in self])

    def _decode(self, wire_type: int, raw: Any) -> None:
        if wire_type != DELIMITED:
            raise WireError(f"A list of bytes cannot have wire type {wire_type}.")
        list.append(self, bytes(raw))


class Ints(Repeated):
    _wire = Kind.INT

    def _checked(self, value: Any) -> int:
        number = index(value)
        if not -(1 << 63) <= number < 1 << 63:
            raise ValueError(f"Value out of range: {number}")
        return number

    def _encode(self, number: int, _sorted: bool) -> bytes:
        return delimited(number, b"".join(map(varint, self)))

    def _decode(self, wire_type: int, raw: Any) -> None:
        if isinstance(raw, int):
            list.append(self, signed(raw))
            return
        position = 0
        while position < len(raw):
            number, position = read_varint(raw, position)
            list.append(self, signed(number))


class Floats(Repeated):
    _wire = Kind.FLOAT

    def _checked(self, value: Any) -> float:
        if isinstance(value, str | bytes):
            raise TypeError(f"must be real number, not {type(value).__name__}")
        (rounded,) = struct.unpack("<f", float32(float(value)))
        return float(rounded)

    def _encode(self, number: int, _sorted: bool) -> bytes:
        return delimited(number, struct.pack(f"<{len(self)}f", *self))

    def _decode(self, wire_type: int, raw: Any) -> None:
        if isinstance(raw, int) or len(raw) % 4:
            raise WireError("A list of floats has no whole number of them.")
        list.extend(self, struct.unpack(f"<{len(raw) // 4}f", raw))
