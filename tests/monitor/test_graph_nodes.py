"""A graph as the page gets it: every node, its kind, its inputs."""

from __future__ import annotations

import asyncmon as am
from asyncmon.monitor.graph_nodes import graph_from_text, graph_nodes
from asyncmon.protobuf.graph_def import GraphDef, NodeDef, graph_def_of


def model() -> GraphDef:
    graph = am.graph.Graph()
    with graph.as_default():
        images = am.graph.placeholder("float32", [None, 8], name="images")
        am.graph.layers.dense(images, 5, activation=am.graph.nn.relu, name="hidden")
    return graph_def_of(graph.get_operations())


def test_nodes_have_kinds_and_titles() -> None:
    nodes = {node["name"]: node for node in graph_nodes(model())}
    assert nodes["images"]["kind"] == "placeholder"
    assert nodes["images"]["title"] == "images\nPlaceholder [?, 8]"
    assert nodes["hidden/kernel"]["kind"] == "variable"
    assert nodes["hidden/kernel/Assign"]["kind"] == "update"
    assert nodes["hidden/MatMul"]["kind"] == ""
    assert nodes["hidden/MatMul"]["inputs"][0] == "images"


def test_inputs_name_nodes_and_keep_the_mark_of_control() -> None:
    node = NodeDef(name="b", op="Add", input=["a:1", "^c"], device="/cpu:0")
    (found,) = graph_nodes(GraphDef(node=[node]))
    assert found["inputs"] == ["a", "^c"]
    assert found["title"] == "b\nAdd\n/cpu:0"


def test_the_text_of_a_graph_gives_the_same_nodes() -> None:
    graph = model()
    read = graph_from_text(str(graph))
    assert [(one.name, one.op, list(one.input)) for one in read.node] == [
        (one.name, one.op, list(one.input)) for one in graph.node
    ]
