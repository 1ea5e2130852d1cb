"""Graphs become GraphDefs that protobuf reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.meta_graph_pb2 import MetaGraphDef

from asyncmon.graph.construction.build import control_dependencies, device, name_scope
from asyncmon.graph.construction.graph import Graph
from asyncmon.graph.core import dtypes
from asyncmon.graph.ops.arithmetic import multiply
from asyncmon.graph.ops.basic import placeholder
from asyncmon.summary.graph_def import GraphLike, encode_graph, encode_meta_graph


def test_the_nodes_of_a_graph_are_all_there() -> None:
    with Graph().as_default() as graph:
        x = placeholder(dtypes.float32, [None, 3], name="x")
        with name_scope("layer"), device("/cpu:0"), control_dependencies([x]):
            y = multiply(x, 2.0)
    assert isinstance(graph, GraphLike)
    nodes = {node.name: node for node in GraphDef.FromString(encode_graph(graph.get_operations())).node}
    assert list(nodes) == [op.name for op in graph.get_operations()]
    product = nodes[y.op.name]
    assert product.op == "Mul"
    assert list(product.input) == [tensor.op.name for tensor in y.op.inputs] + ["^x"]
    assert product.device == "/cpu:0"
    (shape,) = product.attr["_output_shapes"].list.shape
    assert [dim.size for dim in shape.dim] == [-1, 3]
    assert product.attr["T"].type == 1
    assert nodes["x"].attr["dtype"].type == 1


@dataclass
class Node:
    """The least that can be shown, and what else may be there."""

    name: str
    type: str = "Step"
    inputs: list[Any] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)


def test_inputs_may_be_names() -> None:
    nodes = GraphDef.FromString(encode_graph([Node("a"), Node("b", inputs=["a:0", "a:1"])])).node
    assert list(nodes[1].input) == ["a", "a:1"]


def test_attributes_of_each_kind_are_shown() -> None:
    attrs = {
        "flag": True,
        "count": 3,
        "rate": np.float32(0.5),
        "mode": "same",
        "raw": b"\xff",
        "shape": (1, 2),
        "dtype": dtypes.int64,
        "value": np.arange(3),
        "large": np.zeros(10_000),
        "other": {"a": 1},
        "long": "x" * 5000,
        "function": len,
    }
    (node,) = GraphDef.FromString(encode_graph([Node("a", attrs=attrs)])).node
    attr = node.attr
    assert attr["flag"].b is True
    assert attr["count"].i == 3
    assert attr["rate"].f == 0.5
    assert (attr["mode"].s, attr["raw"].s) == (b"same", b"\xff")
    assert list(attr["shape"].list.i) == [1, 2]
    assert attr["dtype"].type == 9
    assert np.frombuffer(attr["value"].tensor.tensor_content, np.int64).tolist() == [0, 1, 2]
    assert attr["large"].tensor.tensor_content == b""
    assert attr["large"].tensor.tensor_shape.dim[0].size == 10_000
    assert attr["other"].s == b"{'a': 1}"
    assert len(attr["long"].s) == 1024
    assert attr["function"].s.startswith(b"<built-in function len")


def test_a_meta_graph_holds_the_graph() -> None:
    graph_def = encode_graph([Node("a")])
    meta = MetaGraphDef.FromString(encode_meta_graph(graph_def))
    assert meta.graph_def.node[0].name == "a"
