"""Records are TFRecord's; damage is reported at the record, and earlier records count."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.summary.writer.record_writer import RecordWriter

from asyncmon.errors import DataLossError
from asyncmon.protobuf.tfrecord import RecordParser, frame

payloads = st.lists(st.binary(max_size=40), max_size=6)


@given(payloads)
def test_the_framing_is_tensorboards(records: list[bytes]) -> None:
    class Unclosed(io.BytesIO):
        def close(self) -> None:
            pass

    file = Unclosed()
    writer = RecordWriter(file)
    for record in records:
        writer.write(record)
    assert b"".join(map(frame, records)) == file.getvalue()


@given(payloads, st.integers(1, 50))
def test_records_are_found_however_the_bytes_come(records: list[bytes], piece: int) -> None:
    data = b"".join(map(frame, records))
    parser = RecordParser("x")
    found = [
        record
        for start in range(0, len(data), piece)
        for record in parser.feed(data[start : start + piece])
    ]
    assert found == records
    assert (parser.index, parser.offset) == (len(records), len(data))


@given(payloads.filter(any), st.data())
def test_a_cut_file_gives_what_is_whole_and_waits_for_the_rest(
    records: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(map(frame, records))
    cut = data.draw(st.integers(0, len(whole) - 1))
    parser = RecordParser("events.x")
    found = list(parser.feed(whole[:cut]))
    assert found == records[: len(found)]
    assert parser.offset == len(b"".join(map(frame, found))) <= cut
    assert [*found, *parser.feed(whole[cut:])] == records


@given(payloads.filter(any), st.data())
def test_a_flipped_bit_is_reported_at_its_record(records: list[bytes], data: st.DataObject) -> None:
    framed = [frame(record) for record in records]
    whole = b"".join(framed)
    position = data.draw(st.integers(0, len(whole) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(whole)
    damaged[position] ^= 1 << bit
    struck = next(i for i in range(len(framed)) if position < len(b"".join(framed[: i + 1])))
    parser = RecordParser("events.x")
    found = []
    with pytest.raises(DataLossError, match=f"Record {struck} of 'events.x', at byte .*checksum"):
        found.extend(parser.feed(bytes(damaged)))
    assert parser.index == struck
    assert parser.offset == len(b"".join(framed[:struck]))


def test_length_above_the_largest_is_refused_before_it_is_read() -> None:
    parser = RecordParser("x", most=3)
    records = parser.feed(frame(b"one") + frame(b"four")[:12])
    assert next(records) == b"one"
    with pytest.raises(DataLossError, match="Record 1 of 'x', at byte 19, claims 4 bytes, more than 3"):
        next(records)


def test_what_is_before_the_damage_is_yielded_first() -> None:
    parser = RecordParser("x")
    records = parser.feed(frame(b"one") + frame(b"two")[:-1] + b"!")
    assert next(records) == b"one"
    with pytest.raises(DataLossError, match="The 1 records before it are whole"):
        next(records)
