"""Strings, which are bytes: numbers as text and back, joining, cutting, CSV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.ops import strings
from asyncmon.tf1 import more_ops as more

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
def test_numbers_become_text_and_numbers_again(ops: Any, numbers: list[int]) -> None:
    x = np.array(numbers, np.int32)
    again = ops.compute(lambda v: more.string_to_number(more.as_string(v), tf.int32), x)
    assert again.tolist() == numbers


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        ([1.5, -2.25], {}, [b"1.500000", b"-2.250000"]),
        ([1.5, -2.25], {"precision": 1}, [b"1.5", b"-2.2"]),
        ([1.5, 1e10], {"shortest": True}, [b"1.5", b"1e+10"]),
        ([1.5], {"scientific": True, "precision": 2}, [b"1.50e+00"]),
        ([1.5], {"width": 10, "fill": "0"}, [b"001.500000"]),
        ([3, -20], {"width": 5, "fill": "-"}, [b"3    ", b"-20  "]),
        ([True, False], {}, [b"true", b"false"]),
        (["text"], {}, [b"text"]),
    ],
)
def test_numbers_as_text(ops: Any, values: Any, options: Any, expected: Any) -> None:
    assert listed(ops, more.as_string(values, **options)) == expected


def test_options_that_text_of_numbers_has_not() -> None:
    for options, text in (
        ({"scientific": True, "shortest": True}, "both scientific and shortest"),
        ({"fill": "ab"}, "fill must be"),
    ):
        with pytest.raises(ValueError, match=text):
            more.as_string([1.5], **options)
    with pytest.raises(ValueError, match="are for floats, got int32"):
        more.as_string([1], precision=2)


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


def test_joining_and_cutting(ops: Any) -> None:
    assert listed(ops, more.string_join([["a", "b"], "x"], "-")) == [b"a-x", b"b-x"]
    matrix = [["a", "b"], ["c", "d"]]
    assert listed(ops, more.reduce_join(matrix)) == b"abcd"
    assert listed(ops, more.reduce_join(matrix, 0, separator="+")) == [b"a+c", b"b+d"]
    assert listed(ops, more.reduce_join(matrix, [0, 1], True)) == [[b"acbd"]]
    assert listed(ops, more.substr(["hello", "world"], [1, -2], [3, 9])) == [b"ell", b"ld"]
    with pytest.raises(BAD, match="pos 9 out of range"):
        ops.evaluate(more.substr("hello", 9, 1))
    with pytest.raises(ValueError, match="must be equal"):
        more.string_join([["a", "b"], ["c"]])
    with pytest.raises(ValueError, match="at least one tensor"):
        more.string_join([])
    assert listed(ops, more.string_strip(" a\n")) == b"a"
    assert listed(ops, strings.string_upper(["ab", "ä"])) == [b"AB", "Ä".encode()]
    assert listed(ops, strings.string_lower("AB")) == b"ab"
    assert listed(ops, strings.string_length(["abc", "ä"])) == [3, 2]
    assert listed(ops, more.regex_replace("ab12", "([a-z]+)([0-9]+)", r"\2-\1")) == b"12-ab"
    assert listed(ops, more.regex_replace("aa", "a", r"<\0>", replace_global=False)) == b"<a>a"
    for function in (lambda: more.substr("a", 0, 1, unit="UTF8_CHAR"),
                     lambda: strings.string_length("a", unit="UTF8_CHAR")):  # fmt: skip
        with pytest.raises(ValueError, match="unit must be 'BYTE'"):
            function()


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
