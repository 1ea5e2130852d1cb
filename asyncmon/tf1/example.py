"""``tf.train.Example`` and kin: messages with protobuf's methods, which change in place.

::

    example = Example(features=Features(feature={"x": Feature(int64_list=Int64List(value=[1, 2]))}))
    example.features.feature["y"].float_list.value.append(0.5)
    Example.FromString(example.SerializeToString()) == example
"""

from __future__ import annotations

from typing import Any

from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.message import Map, Message, Repeated, proto

__all__ = [
    "BytesList", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList",
    "Int64List", "SequenceExample",
]  # fmt: skip


class _Message(Message):
    """A message that copies its arguments and refuses assignment, as protobuf's classes do."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if values:
            self.__dict__.update(self._clone().__dict__)

    def __setattr__(self, name: str, value: Any) -> None:
        self._field(name, AttributeError)
        raise AttributeError(
            f'Assignment not allowed to "{name}" of {type(self).__name__}. Use extend(), append(), '
            "CopyFrom() or get the element and change that."
        )


class BytesList(_Message):
    """TF1: ``tf.train.BytesList(value=[b"..."])``."""

    value: Repeated[bytes] = proto(1, Kind.BYTES, repeated=True)


class FloatList(_Message):
    """TF1: ``tf.train.FloatList(value=[0.5])``; elements are rounded to float32."""

    value: Repeated[float] = proto(1, Kind.FLOAT, repeated=True)


class Int64List(_Message):
    """TF1: ``tf.train.Int64List(value=[1])``."""

    value: Repeated[int] = proto(1, Kind.INT, repeated=True)


class Feature(_Message):
    """One of ``bytes_list``, ``float_list`` and ``int64_list``. TF1: ``tf.train.Feature``."""

    bytes_list: BytesList = proto(1, BytesList, oneof="kind")
    float_list: FloatList = proto(2, FloatList, oneof="kind")
    int64_list: Int64List = proto(3, Int64List, oneof="kind")


class Features(_Message):
    """Features by name. TF1: ``tf.train.Features(feature={"name": Feature(...)})``."""

    feature: Map[Feature] = proto(1, Feature, key=Kind.TEXT)


class FeatureList(_Message):
    """A feature for each step. TF1: ``tf.train.FeatureList(feature=[...])``."""

    feature: Repeated[Feature] = proto(1, Feature, repeated=True)


class FeatureLists(_Message):
    """Lists of features by name. TF1: ``tf.train.FeatureLists(feature_list={...})``."""

    feature_list: Map[FeatureList] = proto(1, FeatureList, key=Kind.TEXT)


class Example(_Message):
    """A record of features. TF1: ``tf.train.Example(features=Features(...))``."""

    features: Features = proto(1, Features)


class SequenceExample(_Message):
    """A record of a sequence. TF1: ``tf.train.SequenceExample(context=..., feature_lists=...)``."""

    context: Features = proto(1, Features)
    feature_lists: FeatureLists = proto(2, FeatureLists)
