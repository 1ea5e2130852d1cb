"""A graph as the bytes of a ``GraphDef``, for TensorBoard's graph page.

Any object can be a graph that has ``get_operations()`` and whose operations have a ``name`` and a
``type``; what else an operation has is used: ``inputs`` and ``control_inputs`` (objects with a
``name``, or names), ``outputs`` (with ``dtype`` and ``shape``), ``device``, ``attrs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from asyncmon.summary.tensors import DTYPES
from asyncmon.summary.wire import boolean, delimited, floating, integer, string

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["GraphLike", "OperationLike", "encode_graph", "encode_meta_graph"]


class OperationLike(Protocol):
    """A node of a graph."""

    @property
    def name(self) -> str:
        """Unique; scopes are separated by ``/``."""

    @property
    def type(self) -> str:
        """What it does, ``"MatMul"``."""


@runtime_checkable
class GraphLike(Protocol):
    """What can be shown as a graph."""

    def get_operations(self) -> Sequence[OperationLike]:
        """Return the nodes."""


_LARGEST = 1024  # bytes of an attribute; TensorBoard does not show larger ones
_PRODUCER = 27  # the GraphDef version in which all that is used here exists


def encode_graph(operations: Iterable[OperationLike]) -> bytes:
    """Return a serialized ``GraphDef`` of these nodes."""
    nodes = [delimited(1, _node(operation)) for operation in operations]
    return b"".join(nodes) + delimited(4, integer(1, _PRODUCER))


def encode_meta_graph(graph_def: bytes) -> bytes:
    """Return a serialized ``MetaGraphDef`` that holds a ``GraphDef``."""
    return delimited(2, graph_def)


def _node(operation: Any) -> bytes:
    parts = [string(1, operation.name), string(2, operation.type)]
    parts += [string(3, _input_name(tensor)) for tensor in getattr(operation, "inputs", ())]
    parts += [string(3, "^" + _name(op)) for op in getattr(operation, "control_inputs", ())]
    device = getattr(operation, "device", "")
    if device:
        parts.append(string(4, str(device)))
    for key, value in sorted(_attributes(operation).items()):
        parts.append(delimited(5, string(1, key) + delimited(2, value)))
    return b"".join(parts)


def _name(item: Any) -> str:
    return item if isinstance(item, str) else str(item.name)


def _input_name(tensor: Any) -> str:
    name = _name(tensor)
    return name.removesuffix(":0")


def _attributes(operation: Any) -> dict[str, bytes]:
    attrs: Mapping[str, Any] = getattr(operation, "attrs", {})
    encoded = {key: _attribute(value) for key, value in attrs.items()}
    outputs = getattr(operation, "outputs", ())
    if outputs:
        number = _dtype(getattr(outputs[0], "dtype", None))
        if number:
            encoded.setdefault("dtype" if "dtype" in attrs else "T", integer(6, number))
        shapes = [delimited(7, _shape(getattr(output, "shape", None))) for output in outputs]
        encoded["_output_shapes"] = delimited(1, b"".join(shapes))
    return encoded


def _attribute(value: Any) -> bytes:
    """Return an ``AttrValue``; what protobuf has no form for becomes its text."""
    match value:
        case bool() | np.bool_():
            return boolean(5, bool(value))
        case int() | np.integer():
            return integer(3, int(value))
        case float() | np.floating():
            return floating(4, float(value))
        case str():
            return _text(value)
        case bytes() if len(value) <= _LARGEST:
            return delimited(2, value)
        case np.ndarray() if value.dtype.name in DTYPES:
            return delimited(8, _tensor(value))
        case list() | tuple() if value and all(type(item) is int for item in value):
            return delimited(1, b"".join([integer(3, item) for item in value]))
    number = _dtype(value)
    return integer(6, number) if number else _text(repr(value))


def _text(text: str) -> bytes:
    data = text.encode()
    return delimited(2, data if len(data) <= _LARGEST else data[: _LARGEST - 3] + b"...")


def _tensor(array: np.ndarray[Any, Any]) -> bytes:
    data = integer(1, DTYPES[array.dtype.name]) + delimited(2, _shape(array.shape))
    return data + delimited(4, array.tobytes()) if array.nbytes <= _LARGEST else data


def _dtype(dtype: Any) -> int:
    name = getattr(dtype, "name", None)
    return DTYPES.get(name, 0) if isinstance(name, str) else 0


def _shape(shape: Any) -> bytes:
    if shape is None or getattr(shape, "ndims", 0) is None:  # of unknown rank
        return boolean(3, True)
    return b"".join([delimited(2, integer(1, -1 if size is None else int(size))) for size in shape])
