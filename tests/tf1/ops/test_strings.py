"""Strings, which are bytes: numbers as text and in memory, CSV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncmon.tf1 as more
from asyncmon import errors
from asyncmon import graph as tf

BAD = errors.InvalidArgumentError


def listed(ops: Any, tensor: Any) -> Any:
    return np.asarray(ops.evaluate(tensor)).tolist()


def test_texts_as_numbers(ops: Any) -> None:
    found = ops.evaluate(more.string_to_number(["1", " 2.5 ", "-1e3", ".5", "inf"]))
    assert found.dtype == np.float32
    assert found.tolist() == [1, 2.5, -1000, 0.5, np.inf]
    assert listed(ops, more.string_to_number("-7", tf.int64)) == -7
    for text, dtype in (("x", tf.float32), ("", tf.int32), ("1.5", tf.int32), ("2147483648", tf.int32),
                        ("1_0", tf.float32)):  # fmt: skip
        with pytest.raises(BAD, match=f"could not correctly convert string: {text}"):
            ops.evaluate(more.string_to_number([text], dtype))
    with pytest.raises(TypeError, match="DataType uint8"):
        more.string_to_number("1", tf.uint8)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4))
def test_any_integer_is_read(ops: Any, numbers: list[int]) -> None:
    texts = np.array([str(n).encode() for n in numbers], object)
    assert listed(ops, more.string_to_number(tf.constant(texts, tf.string), tf.int32)) == numbers


def test_bytes_as_numbers(ops: Any) -> None:
    x = np.array([[1, 2, 3], [4, 5, 600]], np.int16)
    texts = tf.constant([row.tobytes() for row in x])
    assert listed(ops, more.decode_raw(texts, tf.int16)) == x.tolist()
    swapped = tf.constant([row.astype(">i2").tobytes() for row in x])
    assert listed(ops, more.decode_raw(swapped, tf.int16, little_endian=False)) == x.tolist()
    assert more.decode_raw(texts, tf.uint8).shape == (2, None)
    with pytest.raises(BAD, match="all be the same size, got 1 and 2"):
        ops.evaluate(more.decode_raw(["a", "ab"], tf.uint8))
    with pytest.raises(BAD, match="length 3 that is not a multiple of 2"):
        ops.evaluate(more.decode_raw("abc", tf.int16))


# --- CSV ------------------------------------------------------------------------------------------
def test_columns_of_csv(ops: Any) -> None:
    records = tf.constant(['1,2.5,"a,""b"""', "3,,"])
    columns = more.decode_csv(records, [[0], [0.5], ["-"]])
    assert [c.dtype for c in columns] == [tf.int32, tf.float32, tf.string]
    assert [listed(ops, c) for c in columns] == [[1, 3], [2.5, 0.5], [b'a,"b"', b"-"]]
    (only,) = more.decode_csv(records, [[""]], select_cols=[1])
    assert listed(ops, only) == [b"2.5", b""]
    (raw,) = more.decode_csv('a"b', [[""]], use_quote_delim=False)
    assert listed(ops, raw) == b'a"b'
    (missing,) = more.decode_csv("NA", [[7]], na_value="NA")
    assert listed(ops, missing) == 7


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ("1,2", "Expect 3 fields but have 2 in record 0"),
        ("1,2,3,4", "Expect 3 fields but have 4"),
        (",2,3", "Field 0 is required but missing in record 0!"),
        ("a,2,3", "Field 0 in record 0 is not a valid int32: a"),
        ('1,2,a"b', "Unquoted fields cannot have quotes"),
        ('1,2,"a', "has no end"),
        ('1,2,"a"b', "Text after a closing quote"),
    ],
)
def test_records_that_do_not_fit(ops: Any, record: str, text: str) -> None:
    columns = more.decode_csv(record, [tf.constant([], tf.int32), [0.0], [""]])
    with pytest.raises(BAD, match=text):
        ops.evaluate(columns)


def test_arguments_of_csv_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="only 1 char"):
        more.decode_csv("1", [[0]], field_delim="ab")
    with pytest.raises(ValueError, match="do not match"):
        more.decode_csv("1", [[0]], select_cols=[0, 1])
    with pytest.raises(ValueError, match="strictly increasing"):
        more.decode_csv("1", [[0], [0]], select_cols=[1, 0])
    with pytest.raises(TypeError, match="DataType bool"):
        more.decode_csv("1", [[True]])
    with pytest.raises(ValueError, match="must be a scalar or empty"):
        more.decode_csv("1", [[1, 2]])


def test_hexadecimal_integers_become_floats(ops: Any) -> None:
    found = ops.evaluate(more.string_to_number(["0x1A", "-0XfF", "1e2"]))
    assert found.tolist() == [26.0, -255.0, 100.0]
