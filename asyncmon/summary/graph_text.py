"""A graph as text: the ``graph.pbtxt`` beside the checkpoints, which TensorFlow's tools read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["graph_text"]

_DTYPES = {
    "float16": "DT_HALF",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "bfloat16": "DT_BFLOAT16",
    **{
        f"{kind}{bits}": f"DT_{kind.upper()}{bits}"
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    "complex64": "DT_COMPLEX64",
    "complex128": "DT_COMPLEX128",
    "bool": "DT_BOOL",
    "string": "DT_STRING",
}
_PRODUCER = 27  # the GraphDef version in which all that is used here exists


def graph_text(operations: Iterable[Any]) -> str:
    """Return a ``GraphDef`` in protobuf's text format: nodes, inputs, devices, dtypes and shapes."""
    lines = [line for operation in operations for line in _node(operation)]
    return "\n".join([*lines, "versions {", f"  producer: {_PRODUCER}", "}", ""])


def _node(operation: Any) -> Iterator[str]:
    yield "node {"
    yield f"  name: {_quoted(operation.name)}"
    yield f"  op: {_quoted(operation.type)}"
    for tensor in operation.inputs:
        yield f"  input: {_quoted(tensor.name.removesuffix(':0'))}"
    for control in operation.control_inputs:
        yield f"  input: {_quoted('^' + control.name)}"
    if operation.device:
        yield f"  device: {_quoted(str(operation.device))}"
    if operation.outputs:
        dtype = _DTYPES.get(operation.outputs[0].dtype.name)
        if dtype is not None:
            yield f'  attr {{ key: "T" value {{ type: {dtype} }} }}'
        shapes = " ".join(f"shape {{ {_shape(output.shape)} }}" for output in operation.outputs)
        yield f'  attr {{ key: "_output_shapes" value {{ list {{ {shapes} }} }} }}'
    yield "}"


def _shape(shape: Any) -> str:
    if shape is None or getattr(shape, "ndims", 0) is None:
        return "unknown_rank: true"
    return " ".join(f"dim {{ size: {-1 if size is None else int(size)} }}" for size in shape)


def _quoted(text: str) -> str:
    return json.dumps(text)
