"""The picture of a graph: whole, bounded, well-formed, and the same way round as the data flows."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

import asyncmon as am
from asyncmon.monitor.graph_boxes import MOST_BOXES, Box, boxes_of, graph_from_text
from asyncmon.monitor.graph_picture import graph_svg
from asyncmon.protobuf.graph_def import GraphDef, NodeDef, graph_def_of

NAMES = st.lists(st.sampled_from(["a", "b", "c", "<d>&", "e\n\x00"]), min_size=1, max_size=4).map(
    "/".join
)


def node(name: str, *inputs: str, op: str = "Add") -> NodeDef:
    return NodeDef(name=name, op=op, input=list(inputs))


def all_boxes(box: Box) -> list[Box]:
    return [box, *(one for inner in box.inner for one in all_boxes(inner))]


def model() -> GraphDef:
    graph = am.graph.Graph()
    with graph.as_default():
        images = am.graph.placeholder("float32", [None, 8], name="images")
        labels = am.graph.placeholder("int64", [None], name="labels")
        with am.graph.name_scope("tower"):
            hidden = am.graph.layers.dense(images, 5, activation=am.graph.nn.relu, name="hidden")
        logits = am.graph.layers.dense(hidden, 3, name="logits")
        losses = am.graph.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = am.graph.reduce_mean(losses, name="loss")
        am.graph.train.AdamOptimizer().minimize(loss, am.get_or_create_global_step())
    return graph_def_of(graph.get_operations())


def test_a_model_is_drawn_by_its_scopes_from_the_top_down() -> None:
    whole = boxes_of(model())
    graph_svg(model())
    boxes = {box.name: box for box in all_boxes(whole)}
    assert boxes["hidden/kernel"].kind == "op variable"
    assert "operations belong to it" in boxes["hidden/kernel"].title  # its initializer and slots
    assert boxes["images"].kind == "op placeholder"
    assert boxes["images"].title == "images\nPlaceholder [?, 8]"
    assert not any(name.startswith("hidden/kernel/") for name in boxes)
    edges = {(begin.name, end.name) for begin, end, _ in whole.edges}
    assert {("images", "tower"), ("tower", "logits"), ("logits", "gradients")} <= edges


def test_boxes_lie_below_those_they_take_from_and_apart() -> None:
    svg = graph_svg(model())
    tree = ElementTree.fromstring(svg)
    rectangles = []
    for group in tree.iter("{http://www.w3.org/2000/svg}g"):
        rect = group.find("{http://www.w3.org/2000/svg}rect")
        assert rect is not None
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        rectangles.append((x, y, x + width, y + height))
    view = [float(number) for number in tree.attrib["viewBox"].split()]
    assert all(x >= 0 and y >= 0 and x2 <= view[2] and y2 <= view[3] for x, y, x2, y2 in rectangles)
    for i, (x, y, x2, y2) in enumerate(rectangles):
        for u, v, u2, v2 in rectangles[:i]:
            apart = x2 <= u or u2 <= x or y2 <= v or v2 <= y
            inside = (u <= x and v <= y and x2 <= u2 and y2 <= v2) or (
                x <= u and y <= v and u2 <= x2 and v2 <= y2
            )
            assert apart or inside
    assert "style" not in svg
    assert re.search(r'class="edge( control)?( back)?"', svg)


@given(st.lists(st.tuples(NAMES, st.lists(st.tuples(NAMES, st.booleans()), max_size=3)), max_size=40))
def test_any_graph_becomes_a_picture(nodes: list[tuple[str, list[tuple[str, bool]]]]) -> None:
    graph = GraphDef()
    for name, inputs in nodes:
        graph.node.append(node(name, *(f"^{one}" if control else one for one, control in inputs)))
    ElementTree.fromstring(graph_svg(graph))
    assert len(all_boxes(boxes_of(graph))) <= MOST_BOXES + 1


def test_a_flat_graph_of_thousands_is_bounded() -> None:
    nodes = [node("op0")] + [node(f"op{i}", f"op{i - 1}") for i in range(1, 5_000)]
    whole = boxes_of(GraphDef(node=nodes))
    assert len(whole.inner) <= 40
    assert "operations: " in whole.inner[-1].title
    assert len(graph_svg(GraphDef(node=nodes))) < 50_000


def test_a_deep_graph_of_thousands_is_bounded() -> None:
    nodes = [node(f"s{i % 7}/t{i % 31}/u{i % 11}/op{i}", f"s{(i - 1) % 7}/x") for i in range(5_000)]
    assert len(all_boxes(boxes_of(GraphDef(node=nodes)))) <= MOST_BOXES + 1


def test_the_text_of_a_graph_gives_the_same_nodes() -> None:
    graph = model()
    read = graph_from_text(str(graph))
    assert [(one.name, one.op, list(one.input)) for one in read.node] == [
        (one.name, one.op, list(one.input)) for one in graph.node
    ]
