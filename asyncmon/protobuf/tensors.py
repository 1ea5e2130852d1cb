"""Tensors and their shapes as messages; names are those of TF1."""

from __future__ import annotations

from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.message import Message, Repeated, proto
from asyncmon.protobuf.tf_types import DTYPES, enum_name

DATA_TYPES = {number: str(enum_name(name)) for name, number in DTYPES.items()}
"""The names of ``tf.DataType`` by number, for the text format."""


class TensorShapeDim(Message):
    """One dimension. ``tf.TensorShapeProto.Dim``."""

    size: int = proto(1, Kind.INT)
    name: str = proto(2, Kind.TEXT)


class TensorShapeProto(Message):
    """The shape of a tensor. ``tf.TensorShapeProto``."""

    dim: Repeated[TensorShapeDim] = proto(2, TensorShapeDim, repeated=True)
    unknown_rank: bool = proto(3, Kind.BOOL)


class TensorProto(Message):
    """A tensor: raw bytes in ``tensor_content``, or one list of its type. ``tf.TensorProto``."""

    dtype: int = proto(1, Kind.INT, enum=DATA_TYPES)
    tensor_shape: TensorShapeProto = proto(2, TensorShapeProto)
    version_number: int = proto(3, Kind.INT)
    tensor_content: bytes = proto(4, Kind.BYTES)
    float_val: Repeated[float] = proto(5, Kind.FLOAT, repeated=True)
    double_val: Repeated[float] = proto(6, Kind.DOUBLE, repeated=True)
    int_val: Repeated[int] = proto(7, Kind.INT, repeated=True)
    string_val: Repeated[bytes] = proto(8, Kind.BYTES, repeated=True)
    int64_val: Repeated[int] = proto(10, Kind.INT, repeated=True)
    bool_val: Repeated[bool] = proto(11, Kind.BOOL, repeated=True)
