"""Graphs and traced steps for TensorBoard's graph page: ``GraphDef``, its text, ``RunMetadata``.

Any object can be a graph that has ``get_operations()`` and whose operations have a ``name`` and a
``type``; what else an operation has is used: ``inputs`` and ``control_inputs`` (objects with a
``name``, or names), ``outputs`` (with ``dtype`` and ``shape``), ``device``, ``attrs``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from asyncmon.files import FileCalls
from asyncmon.protobuf import boolean, delimited, floating, integer, string
from asyncmon.tf_types import DTYPES, enum_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from asyncmon.run_options import NodeStats


@runtime_checkable
class GraphLike(Protocol):
    """What can be shown as a graph."""

    def get_operations(self) -> Sequence[Any]:
        """Return the nodes."""


_LARGEST = 1024  # bytes of an attribute; TensorBoard does not show larger ones
_PRODUCER = 27  # the GraphDef version in which all that is used here exists


def encode_graph(operations: Iterable[Any]) -> bytes:
    """Return a serialized ``GraphDef`` of these nodes."""
    nodes = [delimited(1, _node(operation)) for operation in operations]
    return b"".join(nodes) + delimited(4, integer(1, _PRODUCER))


def encode_meta_graph(graph_def: bytes) -> bytes:
    """Return a serialized ``MetaGraphDef`` that holds a ``GraphDef``."""
    return delimited(2, graph_def)


def _node(operation: Any) -> bytes:
    parts = [string(1, operation.name), string(2, operation.type)]
    parts += [string(3, name) for name in _inputs(operation)]
    device = getattr(operation, "device", "")
    if device:
        parts.append(string(4, str(device)))
    for key, value in sorted(_attributes(operation).items()):
        parts.append(delimited(5, string(1, key) + delimited(2, value)))
    return b"".join(parts)


def _name(item: Any) -> str:
    return item if isinstance(item, str) else str(item.name)


def _inputs(operation: Any) -> Iterator[str]:
    for tensor in getattr(operation, "inputs", ()):
        yield _name(tensor).removesuffix(":0")
    for control in getattr(operation, "control_inputs", ()):
        yield "^" + _name(control)


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
    sizes = _sizes(shape)
    if sizes is None:
        return boolean(3, True)
    return b"".join([delimited(2, integer(1, size)) for size in sizes])


def _sizes(shape: Any) -> list[int] | None:
    """Return the dimensions, -1 for an unknown one; None for an unknown rank."""
    if shape is None or getattr(shape, "ndims", 0) is None:
        return None
    values = [getattr(size, "value", size) for size in shape]
    return [-1 if size is None else int(size) for size in values]


# --- graph.pbtxt ----------------------------------------------------------------------------------


def write_graph_text(directory: str, operations: Iterable[Any]) -> None:
    """Write ``graph.pbtxt`` into a directory, which is made if missing. Blocking."""
    calls, path = FileCalls(), Path(directory)
    calls.make_dirs(path)
    calls.put_files(path, {"graph.pbtxt": graph_text(operations).encode()})


def graph_text(operations: Iterable[Any]) -> str:
    """Return a ``GraphDef`` in protobuf's text format: nodes, inputs, devices, dtypes and shapes."""
    lines = [line for operation in operations for line in _text_of_node(operation)]
    return "\n".join([*lines, "versions {", f"  producer: {_PRODUCER}", "}", ""])


def _text_of_node(operation: Any) -> Iterator[str]:
    yield "node {"
    yield f"  name: {json.dumps(operation.name)}"
    yield f"  op: {json.dumps(operation.type)}"
    yield from (f"  input: {json.dumps(name)}" for name in _inputs(operation))
    if operation.device:
        yield f"  device: {json.dumps(str(operation.device))}"
    if operation.outputs:
        dtype = enum_name(operation.outputs[0].dtype.name)
        if dtype is not None:
            yield f'  attr {{ key: "T" value {{ type: {dtype} }} }}'
        shapes = " ".join(f"shape {{ {_text_of_shape(output.shape)} }}" for output in operation.outputs)
        yield f'  attr {{ key: "_output_shapes" value {{ list {{ {shapes} }} }} }}'
    yield "}"


def _text_of_shape(shape: Any) -> str:
    sizes = _sizes(shape)
    if sizes is None:
        return "unknown_rank: true"
    return " ".join(f"dim {{ size: {size} }}" for size in sizes)


# --- step statistics ------------------------------------------------------------------------------


_DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def encode_run_metadata(times: Iterable[NodeStats]) -> bytes:
    """Return a serialized ``RunMetadata`` with the ``StepStats`` of these nodes."""
    threads: dict[str, int] = {}
    nodes = []
    for node in times:
        thread = threads.setdefault(node.thread, len(threads))
        nodes.append(delimited(2, _node_stats(node, thread)))
    device = string(1, _DEVICE) + b"".join(nodes)
    names = [delimited(3, integer(1, n) + string(2, name)) for name, n in threads.items()]
    return delimited(1, delimited(1, device + b"".join(names)))


def _node_stats(node: NodeStats, thread: int) -> bytes:
    took = max(1, round(node.duration * 1e6))  # TensorBoard takes 0 for unknown
    memory = string(1, "cpu") + integer(2, node.nbytes) + integer(3, node.nbytes)
    return b"".join(
        (
            string(1, node.name),
            integer(2, round(node.start * 1e6)),
            integer(4, took),  # op_end_rel_micros; what starts at once has no op_start_rel_micros
            integer(5, took),
            delimited(6, memory),
            string(8, f"{node.name} = {node.op}"),
            integer(10, thread),
        )
    )
