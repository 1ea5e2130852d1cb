"""Examples are protobuf's messages: built, changed in place, compared, written and read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncmon.tf1 as tf
from asyncmon.protobuf import WireError

Feature = tf.train.Feature


def ints(*values: int) -> Any:
    return Feature(int64_list=tf.train.Int64List(value=values))


features = st.dictionaries(
    st.text(max_size=5),
    st.one_of(
        st.builds(
            lambda v: Feature(bytes_list=tf.train.BytesList(value=v)), st.lists(st.binary(max_size=6))
        ),
        st.builds(
            lambda v: Feature(float_list=tf.train.FloatList(value=v)), st.lists(st.floats(width=32))
        ),
        st.builds(lambda v: ints(*v), st.lists(st.integers(-(1 << 63), (1 << 63) - 1))),
        st.builds(Feature),
    ),
    max_size=4,
)


@given(features)
def test_an_example_survives_its_bytes(values: dict[str, Any]) -> None:
    example = tf.train.Example(features=tf.train.Features(feature=values))
    again = tf.train.Example.FromString(example.SerializeToString())
    assert str(again) == str(example)  # NaN is not equal to itself
    assert again.SerializeToString(deterministic=True) == example.SerializeToString(deterministic=True)


def test_lists_and_maps_change_in_place() -> None:
    example = tf.train.Example()
    assert not example.HasField("features")
    feature = example.features.feature
    feature["x"].int64_list.value.extend([1, 2])
    feature["x"].int64_list.value.append(np.int64(3))
    feature["s"].bytes_list.value[:] = [b"a"]
    assert example.HasField("features")
    assert sorted(feature) == ["s", "x"]
    assert "y" not in feature
    assert list(example.features.feature["x"].int64_list.value) == [1, 2, 3]
    assert feature["x"].WhichOneof("kind") == "int64_list"
    del feature["s"]
    assert example == tf.train.Example(features={"feature": {"x": ints(1, 2, 3)}})
    example.Clear()
    assert example == tf.train.Example()


def test_one_list_of_a_feature_drops_the_other() -> None:
    feature = ints(1)
    feature.float_list.value.append(0.5)
    assert feature.WhichOneof("kind") == "float_list"
    assert not feature.HasField("int64_list")
    feature.ClearField("kind")
    assert feature.WhichOneof("kind") is None
    assert Feature(int64_list=tf.train.Int64List()).WhichOneof("kind") == "int64_list"


def test_a_part_that_is_switched_to_and_back_starts_again() -> None:
    feature = Feature()
    feature.int64_list.value.append(1)
    feature.float_list.value.append(0.5)
    feature.int64_list.value.append(2)
    assert feature == ints(2)
    feature.bytes_list.SetInParent()
    assert feature == Feature(bytes_list=tf.train.BytesList())


def test_what_is_emptied_is_set() -> None:
    feature = ints(1)
    del feature.float_list.value[:]
    assert feature.WhichOneof("kind") == "float_list"
    feature.bytes_list.Clear()
    assert feature == Feature(bytes_list=tf.train.BytesList())


def test_a_part_that_was_read_is_merged_into() -> None:
    example = tf.train.Example()
    features = example.features.feature
    example.MergeFrom(tf.train.Example(features={"feature": {"x": ints(1)}}))
    assert features == {"x": ints(1)}


def test_what_is_given_is_copied() -> None:
    values = ints(1)
    features = tf.train.Features(feature={"x": values})
    values.int64_list.value.append(2)
    assert features.feature["x"] == ints(1)


def test_copies_and_merges() -> None:
    one, two = ints(1), ints(2)
    one.MergeFrom(two)
    assert list(one.int64_list.value) == [1, 2]
    one.CopyFrom(two)
    two.int64_list.value.append(3)
    assert list(one.int64_list.value) == [2]
    assert one.ByteSize() == len(one.SerializeToString())
    with pytest.raises(TypeError, match="Expected Feature"):
        one.MergeFrom(tf.train.Example())


def test_a_sequence_example_has_lists_of_features() -> None:
    example = tf.train.SequenceExample(context=tf.train.Features(feature={"length": ints(2)}))
    steps = example.feature_lists.feature_list["x"]
    steps.feature.add().int64_list.value.append(1)
    steps.feature.extend([ints(2)])
    again = tf.train.SequenceExample()
    assert again.ParseFromString(example.SerializeToString()) == example.ByteSize()
    assert again == example
    assert [list(f.int64_list.value) for f in again.feature_lists.feature_list["x"].feature] == [
        [1],
        [2],
    ]


def test_the_text_is_protobufs() -> None:
    example = tf.train.Example()
    example.features.feature["s"].bytes_list.value.append(b'a\x00"\n\xff')
    example.features.feature["f"].float_list.value.extend([0.1, 3, 1e20, 123456789, math.inf])
    assert str(example) == (
        'features {\n  feature {\n    key: "f"\n    value {\n      float_list {\n        value: 0.1\n'
        "        value: 3\n        value: 1e+20\n        value: 123456792\n        value: inf\n"
        "      }\n    }\n  }\n"
        '  feature {\n    key: "s"\n    value {\n      bytes_list {\n'
        '        value: "a\\000\\"\\n\\377"\n      }\n    }\n  }\n}\n'
    )


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: tf.train.Int64List(value=[1.5]), TypeError, "float"),
        (lambda: tf.train.Int64List(value=[1 << 63]), ValueError, "out of range: 9223372036854775808"),
        (lambda: tf.train.Int64List(value=5), TypeError, "'int' object is not iterable"),
        (lambda: tf.train.BytesList(value=["text"]), TypeError, "expected bytes, str found"),
        (lambda: tf.train.FloatList(value=["1"]), TypeError, "real number, not str"),
        (lambda: Feature(list=[1]), TypeError, "Feature takes each of bytes_list, .*list"),
        (lambda: Feature(int64_list=[1]), TypeError, r"got \[1\]: expected Int64List or a dict"),
        (lambda: tf.train.Example.FromString(b"abc"), WireError, "Field 12"),
        (lambda: setattr(ints(1).int64_list, "value", [2]), AttributeError, "Use extend"),
        (lambda: setattr(ints(1), "other", 2), AttributeError, "has no field 'other'"),
        (lambda: ints(1).other, AttributeError, "other"),
        (lambda: tf.train.Features().feature.__setitem__("x", ints(1)), ValueError, "CopyFrom"),
        (lambda: tf.train.Features().feature[1], TypeError, "got 1: expected str, int found"),
        (lambda: hash(ints(1)), TypeError, "unhashable"),
        (lambda: ints(1).HasField("other"), ValueError, "other"),
    ],
)
def test_what_protobuf_refuses_is_refused(make: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        make()
