"""``graph.pbtxt``: a graph in protobuf's text format."""

from __future__ import annotations

from google.protobuf import text_format
from tensorboard.compat.proto.graph_pb2 import GraphDef

from asyncmon import graph as g
from asyncmon.protobuf.graph_def import graph_def_of
from asyncmon.summary.graph_events import encode_graph


def test_nodes_have_inputs_types_and_shapes() -> None:
    graph = g.Graph()
    with graph.as_default(), g.device("/cpu:0"):
        x = g.placeholder(g.float32, [None, 4], name="x")
        unknown = g.placeholder(g.string, name="unknown")
        with g.control_dependencies([unknown]):
            g.matmul(x, g.zeros([4, 2], name="w"), name="y")
    text = str(graph_def_of(graph.get_operations()))
    assert 'name: "x"' in text
    assert 'op: "Placeholder"' in text
    words = " ".join(text.split())
    assert 'attr { key: "T" value { type: DT_FLOAT } }' in words
    assert "list { shape { dim { size: -1 } dim { size: 2 } } }" in words
    assert "list { shape { unknown_rank: true } }" in words
    assert 'input: "x"' in text
    assert 'input: "^unknown"' in text
    assert text.endswith("versions {\n  producer: 27\n}\n")
    read = text_format.Parse(text, GraphDef())
    assert read == GraphDef.FromString(encode_graph(graph.get_operations()))
