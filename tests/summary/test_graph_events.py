"""Graphs become GraphDefs that protobuf reads."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.graph_pb2 import GraphDef

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import control_dependencies, device, name_scope
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.basic import placeholder
from asyncmon.graph.ops.elementwise import multiply
from asyncmon.protobuf import graph_def as ours
from asyncmon.summary import FileWriter, summary_iterator
from asyncmon.summary.graph_events import GraphLike, encode_graph


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
    assert product.device == "/device:CPU:0"
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
        "strides": (1, 2),
        "shape": (None, 2),
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
    assert list(attr["strides"].list.i) == [1, 2]
    assert [dim.size for dim in attr["shape"].shape.dim] == [-1, 2]
    assert attr["dtype"].type == 9
    assert np.frombuffer(attr["value"].tensor.tensor_content, np.int64).tolist() == [0, 1, 2]
    assert attr["large"].tensor.tensor_content == b""
    assert attr["large"].tensor.tensor_shape.dim[0].size == 10_000
    assert attr["other"].s == b"{'a': 1}"
    assert len(attr["long"].s) == 1024
    assert attr["function"].s.startswith(b"<built-in function len")


def test_a_graph_gives_itself_as_data() -> None:
    with Graph().as_default() as graph:
        x = placeholder(dtypes.float32, [None, 3], name="x")
        before = graph.version
        y = multiply(x, 2.0, name="y")
    graph_def = graph.as_graph_def()
    assert [node.name for node in graph_def.node] == ["x", "y/y", "y"]
    (product,) = [node for node in graph_def.node if node.op == "Mul"]
    assert (product.name, list(product.input), product.device) == ("y", ["x", "y/y"], "")
    assert product == y.op.node_def
    assert product.attr["T"].type == 1
    assert "_output_shapes" not in product.attr
    assert [node.name for node in graph.as_graph_def(before).node] == ["y/y", "y"]
    with_shapes = graph.as_graph_def(add_shapes=True)
    assert with_shapes.SerializeToString() == encode_graph(graph.get_operations())
    assert with_shapes.node[0].attr["_output_shapes"].list.shape[0].dim[1].size == 3
    assert with_shapes.versions.producer == 27


def test_graph_data_goes_to_bytes_and_back_and_can_be_made_by_hand() -> None:
    with Graph().as_default() as graph:
        multiply(placeholder(dtypes.float32, [], name="x"), 2.0, name="y")
    again = ours.GraphDef()
    again.ParseFromString(graph.as_graph_def().SerializeToString())
    assert again == graph.as_graph_def()
    node = again.node.add(name="z", op="NoOp", input=["^y"])
    node.attr["flag"].b = False
    node.attr["kind"].CopyFrom(ours.AttrValue(s=b"k"))
    theirs = GraphDef.FromString(again.SerializeToString()).node[-1]
    assert theirs.attr["flag"].WhichOneof("value") == "b"
    assert theirs.attr["kind"].s == b"k"
    assert sorted(theirs.attr) == sorted(node.attr) == ["flag", "kind"]


async def _record(**given: Any) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        async with FileWriter(directory, **given) as writer:
            await writer.flush()
            (event,) = [e for e in summary_iterator(str(writer.path)) if e.graph_def]
    return event.graph_def


@pytest.mark.asyncio
async def test_a_writer_takes_graph_data_too() -> None:
    with Graph().as_default() as graph:
        placeholder(dtypes.float32, [], name="x")
    data = graph.as_graph_def()
    for given in (data, data.SerializeToString()):
        assert await _record(graph_def=given) == data.SerializeToString()
        assert await _record(graph=given) == data.SerializeToString()
    with pytest.raises(ValueError, match="session=1 was passed"):
        FileWriter("logs", session=1)
    with pytest.raises(ValueError, match="not both"):
        FileWriter("logs").add_graph(graph, 0, data)
