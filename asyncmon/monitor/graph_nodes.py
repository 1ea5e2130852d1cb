"""A graph as the page needs it: each node with its kind, its inputs and a title."""

from __future__ import annotations

import ast
from typing import Any

from asyncmon.protobuf.graph_def import GraphDef, NodeDef

_KINDS = {
    "variable": ("Variable", "VarHandle"),
    "placeholder": ("Placeholder",),
    "queue": ("Queue", "Reader"),
    "const": ("Const",),
    "summary": ("Summary",),
    "update": ("Assign", "Apply", "Scatter"),
}
"""Classes of nodes, each with words in the types of its ops."""


def graph_nodes(graph: GraphDef) -> list[dict[str, Any]]:
    """Return the nodes in the order of the graph; control inputs begin with ``^``."""
    return [
        {
            "name": node.name,
            "op": node.op,
            "kind": _kind(node.op),
            "title": _title(node),
            "inputs": [given.partition(":")[0] for given in node.input],
        }
        for node in graph.node
    ]


def graph_from_text(text: str) -> GraphDef:
    """Return the nodes of a ``graph.pbtxt``, without their attributes."""
    graph, node, depth = GraphDef(), NodeDef(), 0
    for line in map(str.strip, text.splitlines()):
        field, _, quoted = line.partition(": ")
        if line.endswith("{"):
            depth += 1
            if depth == 1:
                node = NodeDef()
        elif line == "}":
            depth -= 1
            if depth == 0 and node.name:
                graph.node.append(node)
        elif depth == 1 and field in ("name", "op", "input", "device") and quoted[:1] == '"':
            value = ast.literal_eval(f"b{quoted}").decode()
            if field == "input":
                node.input.append(value)
            else:
                setattr(node, field, value)
    return graph


def _kind(op: str) -> str:
    kinds = (kind for kind, words in _KINDS.items() if any(word in op for word in words))
    return next(kinds, "")


def _title(node: NodeDef) -> str:
    shapes = _shapes(node)
    title = f"{node.name}\n{node.op}" + (f" {', '.join(shapes)}" if shapes else "")
    return f"{title}\n{node.device}" if node.device else title


def _shapes(node: NodeDef) -> list[str]:
    found: Any = node.attr.get("_output_shapes")
    if found is None:
        return []
    shapes = []
    for shape in list(found.list.shape)[:8]:
        sizes = ["?" if dim.size < 0 else str(dim.size) for dim in shape.dim]
        shapes.append("?" if shape.unknown_rank else f"[{', '.join(sizes)}]")
    return shapes
