"""Entries become the bytes of events."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon.summary import Event, Summary
from asyncmon.summary.entries import as_is, encode_entry, scalar_fields, summary_tags
from asyncmon.summary.events import Image


@given(
    time=st.floats(0, 2**40),
    step=st.integers(-(2**63), 2**63 - 1),
    tag=st.text(min_size=1),
    value=st.floats(width=32, allow_nan=False),
)
def test_a_scalar_is_encoded_as_the_message_is(time: float, step: int, tag: str, value: float) -> None:
    event = Event(time, step, summary=Summary([Summary.Value(tag, value)]))
    data = encode_entry((time, step, tag, value, scalar_fields))
    assert data is not None
    assert Event.FromString(data) == event


def test_nan_and_what_is_too_great_for_a_float32_are_written() -> None:
    for value, stored in ((math.nan, math.nan), (1e300, math.inf), (-math.inf, -math.inf)):
        data = encode_entry((0.0, 1, "x", value, scalar_fields))
        assert data is not None
        (read,) = Event.FromString(data).summary.value
        assert str(read.simple_value) == str(stored)


def test_an_entry_that_has_nothing_to_write_is_none() -> None:
    def nothing(tags: Any, payload: Any) -> None:
        return None

    assert encode_entry((0.0, 1, "x", 0, nothing)) is None
    assert encode_entry((0.0, 1, None, b"", as_is)) is not None


def test_the_tags_of_a_summary_are_found() -> None:
    summary = Summary([Summary.Value("a", 1.0), Summary.Value("é", 2.0)])
    assert summary_tags(summary.SerializeToString()) == ("a", "é")
    long = Summary.Value("long" * 50, 1.0)
    summary = Summary([*summary.value, Summary.Value(), long, Summary.Value(image=Image(1, 2, 3))])
    assert summary_tags(summary.SerializeToString()) == ("a", "é", "", "long" * 50, "")
    assert summary_tags(b"") == ()


@given(st.lists(st.text(), max_size=5))
def test_any_tags_are_found(tags: list[str]) -> None:
    summary = Summary([Summary.Value(tag, 1.0) for tag in tags])
    assert summary_tags(summary.SerializeToString()) == tuple(tags)


@pytest.mark.parametrize("data", [b"loss", b"\x0a", b"\x08\x01", b"\x0a\x03\x0a\x01\xff"])
def test_bytes_that_are_no_summary_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no serialized Summary.*Pass a Summary, or what running"):
        summary_tags(data)
