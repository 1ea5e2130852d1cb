"""Examples become tensors, with TF1's shapes, defaults and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncmon.tf1 as tf
from asyncmon.errors import InvalidArgumentError
from asyncmon.protobuf import FIXED32, delimited, float32, integer, varint

pytestmark = pytest.mark.asyncio
Fixed, Rows = tf.FixedLenFeature, tf.FixedLenSequenceFeature


def example(**values: Any) -> bytes:
    made = tf.train.Example()
    for name, items in values.items():
        kind = {int: "int64_list", float: "float_list", bytes: "bytes_list"}[type(items[0])]
        getattr(made.features.feature[name], kind).value.extend(items)
    return made.SerializeToString()


async def parse(serialized: Any, features: dict[str, Any], *, batch: bool = False) -> Any:
    with tf.Graph().as_default():
        build = tf.parse_example if batch else tf.parse_single_example
        parsed = build(serialized, features)
        async with tf.Session() as sess:
            values = await sess.run(parsed)
        for name, tensor in parsed.items():
            assert tensor.shape.is_compatible_with(np.shape(values[name]))
            assert np.asarray(values[name]).dtype == tensor.dtype.as_numpy_dtype or (
                tensor.dtype is tf.string
            )
        return values


async def test_a_single_example() -> None:
    data = example(x=[1, -2], f=[0.5, 1.5, 2.5, 3.5], s=[b"a\xff"], n=[300])
    found = await parse(
        data,
        {
            "x": Fixed([2], tf.int64),
            "f": Fixed([2, 2], tf.float32),
            "s": Fixed([], tf.string),
            "n": Fixed([], tf.int64),
        },
    )
    assert found["x"].tolist() == [1, -2]
    assert found["f"].tolist() == [[0.5, 1.5], [2.5, 3.5]]
    assert (found["s"], found["n"]) == (b"a\xff", 300)


async def test_defaults_and_rows() -> None:
    data = example(x=[1, 2, 3, 4])
    found = await parse(
        data,
        {
            "x": Rows([2], tf.int64, allow_missing=True),
            "none": Rows([], tf.float32, allow_missing=True),
            "i": Fixed([2], tf.int64, [7, 8]),
            "s": Fixed([], tf.string, "d"),
            "f": Fixed([], tf.float32, default_value=0.5),
        },
    )
    assert found["x"].tolist() == [[1, 2], [3, 4]]
    assert found["none"].shape == (0,)
    assert (found["i"].tolist(), found["s"], found["f"]) == ([7, 8], b"d", 0.5)
    found["i"][0] = 0  # the caller's own
    assert (await parse(data, {"i": Fixed([2], tf.int64, [7, 8])}))["i"].tolist() == [7, 8]


async def test_a_batch_of_examples() -> None:
    batch = [example(x=[1], s=[b"a"]), example(x=[2, 3], s=[b"b"]), example(s=[b"c"])]
    found = await parse(
        batch,
        {"s": Fixed([1], tf.string), "x": Rows([], tf.int64, allow_missing=True, default_value=-1)},
        batch=True,
    )
    assert found["s"].tolist() == [[b"a"], [b"b"], [b"c"]]
    assert found["x"].tolist() == [[1, -1], [2, 3], [-1, -1]]


@pytest.mark.parametrize(
    ("features", "match"),
    [
        ({"nope": Fixed([], tf.int64)}, r"Feature: nope \(data type: int64\) is required but"),
        ({"x": Fixed([2], tf.float32)}, "Key: x.  Data types don't match. Data type: int64 but exp"),
        ({"x": Fixed([], tf.int64)}, r"Key: x.  Number of int64 values != expected.  values size: 2"),
        ({"x": Rows([3], tf.int64, allow_missing=True)}, "a whole number of rows"),
    ],
)
async def test_what_an_example_has_not_is_an_error_in_the_run(features: Any, match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        await parse(example(x=[1, 2]), features)


async def test_what_is_no_example_is_an_error_in_the_run() -> None:
    with pytest.raises(InvalidArgumentError, match="Could not parse example input, value: \"b'abc'\""):
        await parse(b"abc", {"x": Fixed([], tf.int64)})
    names = tf.constant(["first", "second"])
    parsed = tf.parse_example([example(x=[1]), b""], {"x": Fixed([], tf.int64)}, example_names=names)
    async with tf.Session() as sess:
        with pytest.raises(InvalidArgumentError, match="Name: second, Feature: x"):
            await sess.run(parsed)


@pytest.mark.parametrize(
    ("features", "error", "match"),
    [
        ({}, ValueError, "features was empty"),
        ({"x": 5}, ValueError, "Unsupported int 5 for key 'x'"),
        ({"x": Fixed([None], tf.int64)}, ValueError, "Consider using FixedLenSequenceFeature"),
        ({"x": Fixed(None, tf.int64)}, ValueError, "Missing shape for feature x"),
        ({"x": Fixed([], None)}, ValueError, "Missing dtype for feature x"),
        ({"x": Rows([], tf.int64)}, ValueError, "requires allow_missing to be True"),
        ({"x": Fixed([], tf.int32)}, TypeError, "hold float32, int64 and string"),
        ({"x": Fixed([2], tf.int64, 4)}, ValueError, "default_value of 'x' has 1 elements"),
    ],
)
async def test_features_that_cannot_be_parsed_are_refused(
    features: Any, error: Any, match: str
) -> None:
    with pytest.raises(error, match=match):
        tf.parse_single_example(tf.placeholder(tf.string, []), features)


async def test_a_batch_is_no_single_example() -> None:
    with pytest.raises(ValueError, match="must be a scalar"):
        tf.parse_single_example([b"a", b"b"], {"x": Fixed([], tf.int64)})


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.integers(0, 5))
async def test_lists_are_found_packed_or_not(values: list[int], split: int) -> None:
    unpacked = b"".join(integer(1, v) for v in values[:split])
    rest = delimited(1, b"".join(integer(1, v)[1:] for v in values[split:]))
    data = delimited(3, unpacked + rest)
    whole = delimited(1, delimited(1, delimited(1, b"x") + delimited(2, data)))
    found = await parse(whole, {"x": Rows([], tf.int64, allow_missing=True)})
    assert found["x"].tolist() == values
    if len(values) == 1:
        assert (await parse(whole, {"x": Fixed([], tf.int64)}))["x"] == values[0]


async def test_floats_are_found_in_several_parts() -> None:
    parts = [delimited(2, varint(1 << 3 | FIXED32) + float32(x)) for x in (0.5, 1.5)]
    data = integer(9, 1) + b"".join(parts)
    whole = delimited(1, delimited(1, delimited(1, b"x") + delimited(2, data)))
    found = await parse(whole, {"x": Rows([], tf.float32, allow_missing=True)})
    assert found["x"].tolist() == [0.5, 1.5]


async def test_values_of_any_number_are_sparse() -> None:
    features = {"s": tf.VarLenFeature(tf.string), "x": tf.io.VarLenFeature(tf.float32)}
    data = [example(s=[b"a", b"b"], x=[1.5]), example(x=[2.5, 3.5, 4.5]), b""]
    with tf.Graph().as_default():
        batch = tf.parse_example(tf.constant(data), features)
        none = tf.parse_example(tf.placeholder_with_default(np.array([], object), [None]), features)
        assert batch["s"].shape.ndims == 2
        dense = tf.sparse_tensor_to_dense(batch["x"]), tf.sparse_tensor_to_dense(batch["s"])
        async with tf.Session() as sess:
            found, x, s, empty = await sess.run([batch["s"], *dense, none["x"]])
    assert found.indices.tolist() == [[0, 0], [0, 1]]
    assert found.dense_shape.tolist() == [3, 2]
    assert x.tolist() == [[1.5, 0, 0], [2.5, 3.5, 4.5], [0, 0, 0]]
    assert s.tolist() == [[b"a", b"b"], [b"", b""], [b"", b""]]
    assert [part.tolist() for part in empty] == [[], [], [0, 0]]
    with pytest.raises(TypeError, match="examples hold float32, int64 and string"):
        tf.parse_example([b""], {"x": tf.VarLenFeature(tf.float64)})
    with pytest.raises(InvalidArgumentError, match="Data types don't match"):
        await parse(example(x=[1]), {"x": tf.VarLenFeature(tf.float32)}, batch=False)
