"""The wire functions agree with protobuf, and say where bytes are no message."""

from __future__ import annotations

import contextlib
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event

from asyncmon import protobuf as wire

int64 = st.integers(-(2**63), 2**63 - 1)


@given(int64)
def test_an_integer_field_is_protobufs(number: int) -> None:
    data = wire.integer(2, number)
    assert Event.FromString(data).step == number
    assert data == Event(step=number).SerializeToString() or number == 0


@given(int64)
def test_a_varint_is_read_back(number: int) -> None:
    data = wire.varint(number)
    assert wire.read_varint(memoryview(data), 0) == (number % 2**64, len(data))


@given(int64)
def test_a_negative_number_comes_back_signed(number: int) -> None:
    assert wire.signed(wire.read_varint(wire.varint(number), 0)[0]) == number


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_a_number_of_more_than_64_bits_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        wire.varint(number)


@pytest.mark.parametrize(
    ("value", "stored"), [(1e39, math.inf), (-1e300, -math.inf), (0.1, 0.10000000149011612)]
)
def test_a_float32_that_is_too_great_is_infinite(value: float, stored: float) -> None:
    assert struct.unpack("<f", wire.float32(value)) == (stored,)


def test_fields_are_yielded_as_they_are() -> None:
    data = wire.integer(1, 300) + wire.string(2, "é") + wire.double(3, 0.5)
    data += wire.varint(4 << 3 | wire.FIXED32) + wire.float32(2.0)
    found = [
        (number, kind, value if isinstance(value, int) else bytes(value))
        for number, kind, value in wire.fields(data)
    ]
    assert found == [
        (1, wire.VARINT, 300),
        (2, wire.DELIMITED, "é".encode()),
        (3, wire.FIXED64, struct.pack("<d", 0.5)),
        (4, wire.FIXED32, struct.pack("<f", 2.0)),
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80", "end within a varint"),
        (b"\x0a\x05ab", "needs 5 bytes"),
        (b"\x09\x00", "needs 8 bytes"),
        (b"\x0b", "unknown wire type 3"),
        (b"\x00\x00", "Field number 0"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "longer than ten bytes"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(wire.WireError, match=message):
        list(wire.fields(data))


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(wire.WireError):
        list(wire.fields(data))
