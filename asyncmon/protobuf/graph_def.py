"""Graphs as messages: ``GraphDef``, and the conversion of objects to it.

A graph is any object with ``get_operations()``, whose operations have a ``name`` and a ``type``.
Optional attributes of an operation are ``inputs`` and ``control_inputs`` (objects with a ``name``, or
names), ``outputs`` (with ``dtype`` and ``shape``), ``device`` and ``attrs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.message import Map, Message, Repeated, proto
from asyncmon.protobuf.tensors import DATA_TYPES, TensorProto, TensorShapeDim, TensorShapeProto
from asyncmon.protobuf.tf_types import DTYPES

_LARGEST = 1024  # the largest attribute in bytes that TensorBoard shows
_PRODUCER = 27  # the GraphDef version that has all fields used here


class AttrListValue(Message):
    """A list in an attribute. ``tf.AttrValue.ListValue``."""

    s: Repeated[bytes] = proto(2, Kind.BYTES, repeated=True)
    i: Repeated[int] = proto(3, Kind.INT, repeated=True)
    f: Repeated[float] = proto(4, Kind.FLOAT, repeated=True)
    b: Repeated[bool] = proto(5, Kind.BOOL, repeated=True)
    type: Repeated[int] = proto(6, Kind.INT, repeated=True, enum=DATA_TYPES)
    shape: Repeated[TensorShapeProto] = proto(7, TensorShapeProto, repeated=True)
    tensor: Repeated[TensorProto] = proto(8, TensorProto, repeated=True)


class AttrValue(Message):
    """An attribute of a node, a union: ``WhichOneof("value")`` names its field. ``tf.AttrValue``."""

    ListValue: ClassVar[type[AttrListValue]] = AttrListValue

    list: AttrListValue = proto(1, AttrListValue, oneof="value")
    s: bytes = proto(2, Kind.BYTES, oneof="value")
    i: int = proto(3, Kind.INT, oneof="value")
    f: float = proto(4, Kind.FLOAT, oneof="value")
    b: bool = proto(5, Kind.BOOL, oneof="value")
    type: int = proto(6, Kind.INT, oneof="value", enum=DATA_TYPES)
    shape: TensorShapeProto = proto(7, TensorShapeProto, oneof="value")
    tensor: TensorProto = proto(8, TensorProto, oneof="value")
    placeholder: str = proto(9, Kind.TEXT, oneof="value")


class NodeDef(Message):
    """A node of a graph. ``tf.NodeDef``."""

    name: str = proto(1, Kind.TEXT)
    op: str = proto(2, Kind.TEXT)
    input: Repeated[str] = proto(3, Kind.TEXT, repeated=True)
    device: str = proto(4, Kind.TEXT)
    attr: Map[AttrValue] = proto(5, AttrValue, key=Kind.TEXT)


class VersionDef(Message):
    """The version that wrote a graph, and the oldest that can read it. ``tf.VersionDef``."""

    producer: int = proto(1, Kind.INT)
    min_consumer: int = proto(2, Kind.INT)
    bad_consumers: Repeated[int] = proto(3, Kind.INT, repeated=True)


class GraphDef(Message):
    """A graph as data. ``tf.GraphDef``.

    Attributes longer than 1,024 bytes are cut: a large constant keeps its dtype and shape.
    """

    node: Repeated[NodeDef] = proto(1, NodeDef, repeated=True)
    version: int = proto(3, Kind.INT)
    versions: VersionDef = proto(4, VersionDef)


def graph_def_of(operations: Iterable[Any], *, add_shapes: bool = True) -> GraphDef:
    """Return the graph of these operations, with the shapes of outputs in ``_output_shapes``."""
    nodes = [node_def_of(operation, add_shapes=add_shapes) for operation in operations]
    return GraphDef(node=nodes, versions=VersionDef(producer=_PRODUCER))


def node_def_of(operation: Any, *, add_shapes: bool = False) -> NodeDef:
    """Convert an operation to a node."""
    return NodeDef(
        name=operation.name,
        op=operation.type,
        input=list(_inputs(operation)),
        device=str(getattr(operation, "device", "") or ""),
        attr=_attributes(operation, add_shapes),
    )


def _name(item: Any) -> str:
    return item if isinstance(item, str) else str(item.name)


def _inputs(operation: Any) -> Iterator[str]:
    for tensor in getattr(operation, "inputs", ()):
        yield _name(tensor).removesuffix(":0")
    for control in getattr(operation, "control_inputs", ()):
        yield "^" + _name(control)


def _attributes(operation: Any, add_shapes: bool) -> dict[str, AttrValue]:
    attrs: Mapping[str, Any] = getattr(operation, "attrs", {})
    encoded = {
        key: AttrValue(shape=_shape(value))
        if key == "shape" and _is_shape(value)
        else _attribute(value)
        for key, value in attrs.items()
    }
    outputs = getattr(operation, "outputs", ())
    if outputs:
        number = _dtype(getattr(outputs[0], "dtype", None))
        if number:
            encoded.setdefault("dtype" if "dtype" in attrs else "T", AttrValue(type=number))
        if add_shapes:
            shapes = [_shape(getattr(output, "shape", None)) for output in outputs]
            encoded["_output_shapes"] = AttrValue(list=AttrListValue(shape=shapes))
    return encoded


def _attribute(value: Any) -> AttrValue:
    """Convert an attribute; a value without a form in protobuf becomes its text."""
    match value:
        case bool() | np.bool_():
            return AttrValue(b=bool(value))
        case int() | np.integer():
            return AttrValue(i=int(value))
        case float() | np.floating():
            return AttrValue(f=float(value))
        case str():
            return _text(value)
        case bytes() if len(value) <= _LARGEST:
            return AttrValue(s=value)
        case np.ndarray() if value.dtype.name in DTYPES:
            return AttrValue(tensor=_tensor(value))
        case list() | tuple() if value and all(type(item) is int for item in value):
            return AttrValue(list=AttrListValue(i=value))
    number = _dtype(value)
    return AttrValue(type=number) if number else _text(repr(value))


def _is_shape(value: Any) -> bool:
    return value is None or (
        isinstance(value, list | tuple) and all(size is None or type(size) is int for size in value)
    )


def _text(text: str) -> AttrValue:
    data = text.encode()
    return AttrValue(s=data if len(data) <= _LARGEST else data[: _LARGEST - 3] + b"...")


def _tensor(array: np.ndarray[Any, Any]) -> TensorProto:
    tensor = TensorProto(dtype=DTYPES[array.dtype.name], tensor_shape=_shape(array.shape))
    if array.nbytes <= _LARGEST:
        tensor.tensor_content = array.tobytes()
    return tensor


def _dtype(dtype: Any) -> int:
    name = getattr(dtype, "name", None)
    return DTYPES.get(name, 0) if isinstance(name, str) else 0


def _shape(shape: Any) -> TensorShapeProto:
    """Convert a shape, with -1 for an unknown dimension."""
    if shape is None or getattr(shape, "ndims", 0) is None:
        return TensorShapeProto(unknown_rank=True)
    values = [getattr(size, "value", size) for size in shape]
    sizes = [-1 if size is None else int(size) for size in values]
    return TensorShapeProto(dim=[TensorShapeDim(size=size) for size in sizes])
