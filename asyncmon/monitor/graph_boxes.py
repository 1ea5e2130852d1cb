"""A graph as nested boxes: operations and name scopes, collapsed where there are too many."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from asyncmon.protobuf.graph_def import GraphDef, NodeDef

MOST_BOXES = 120
_WIDEST = 40  # boxes side by side in one scope; further operations of it become one box


@dataclass(slots=True, eq=False)
class Box:
    """An operation, or a scope: opened, with the boxes in it, or collapsed.

    ``edges`` of an opened scope are between its own boxes: (from, to, whether for control only).
    """

    name: str
    label: str
    kind: str
    title: str
    order: int
    inner: list[Box] = field(default_factory=list)
    edges: list[tuple[Box, Box, bool]] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0


class _Scope:
    """A name scope with the nodes in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scopes: dict[str, _Scope] = {}
        self.nodes: list[int] = []
        self.head: int | None = None
        """The node that has the scope's own name: a variable, with its initializer and slots."""
        self.size = 0
        self.order = 0

    def width(self) -> int:
        """Return how many boxes it has inside, once it is opened."""
        return len(self.scopes) + len(self.nodes)


def boxes_of(graph: GraphDef, most: int = MOST_BOXES) -> Box:
    """Return a graph as the box that holds everything, with at most ``most`` boxes in all.

    Scopes are opened as long as there is room, large ones first. A variable, its initializer and its
    slots are one box. Constants that one operation uses are left out.
    """
    nodes = _shown(list(graph.node))
    numbers = {node.name: number for number, node in enumerate(nodes)}
    root = _Scope("")
    for number, node in enumerate(nodes):
        _place(root, number, node.name, numbers)
    opened = _opened(root, most)
    box_of: dict[int, Box] = {}
    whole = _box(root, nodes, opened, box_of)
    for scope in _scopes(root):
        if scope.head is not None:
            box_of[scope.head] = box_of[scope.nodes[0]]
    _connect(whole, nodes, numbers, box_of)
    return whole


def graph_from_text(text: str) -> GraphDef:
    """Return the nodes of a ``graph.pbtxt`` as a picture needs them: without their attributes."""
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


def sources(node: NodeDef) -> Iterator[tuple[str, bool]]:
    """Yield the names of the nodes that one takes from, and whether it is for control only."""
    for given in node.input:
        yield given.removeprefix("^").partition(":")[0], given.startswith("^")


def _shown(nodes: list[NodeDef]) -> list[NodeDef]:
    uses = Counter(name for node in nodes for name, _ in sources(node))
    return [node for node in nodes if node.op != "Const" or uses[node.name] > 1 or node.input]


def _place(root: _Scope, number: int, name: str, numbers: dict[str, int]) -> None:
    """Put a node into its scope, or into that of the variable to which it belongs."""
    scope = root
    scope.size += 1
    parts = name.split("/")
    for depth in range(1, len(parts)):
        inner = "/".join(parts[:depth])
        if inner not in scope.scopes:
            scope.scopes[inner] = _Scope(inner)
            scope.scopes[inner].order = number
        scope = scope.scopes[inner]
        scope.size += 1
        if inner in numbers:
            scope.head = numbers[inner]
            break
    scope.nodes.append(number)


def _opened(root: _Scope, most: int) -> set[_Scope]:
    opened = {root}
    count = min(root.width(), _WIDEST)
    waiting = [scope for scope in root.scopes.values() if scope.head is None]
    while waiting:
        waiting.sort(key=lambda scope: (scope.size, -scope.order))
        scope = waiting.pop()
        more = min(scope.width(), _WIDEST)
        if count + more <= most:
            opened.add(scope)
            count += more
            waiting += [inner for inner in scope.scopes.values() if inner.head is None]
    return opened


def _box(scope: _Scope, nodes: list[NodeDef], opened: set[_Scope], box_of: dict[int, Box]) -> Box:
    label = scope.name.rpartition("/")[2]
    title = f"{scope.name}: {scope.size} operations"
    whole = Box(scope.name, label, "scope", title, scope.order)
    if scope not in opened:
        whole.label, whole.kind = f"{label} ({scope.size})", "scope collapsed"
        if scope.head is not None:
            whole = _operation(nodes[scope.head], scope.order)
            whole.title += f"\n{scope.size} operations belong to it"
        for number in _numbers(scope):
            box_of[number] = whole
        return whole
    scopes = sorted(scope.scopes.values(), key=lambda one: -one.size)
    room = max(1, _WIDEST - len(scopes) - 1)
    rest = scopes[_WIDEST - 2 :]
    whole.inner = [_box(one, nodes, opened, box_of) for one in scopes[: _WIDEST - 2]]
    heads = {one.head for one in scope.scopes.values()}
    alone = [number for number in scope.nodes if number not in heads]
    lumped = [number for one in rest for number in _numbers(one)]
    if len(alone) > room:
        alone, lumped = alone[: room - 1], alone[room - 1 :] + lumped
    for number in alone:
        box_of[number] = _operation(nodes[number], number)
        whole.inner.append(box_of[number])
    if lumped:
        kinds = Counter(nodes[number].op for number in lumped).most_common(10)
        text = f"{len(lumped)} operations: " + ", ".join(f"{many} {kind}" for kind, many in kinds)
        more = Box("", f"{len(lumped)} more", "scope collapsed", text, min(lumped))
        whole.inner.append(more)
        for number in lumped:
            box_of[number] = more
    return whole


def _scopes(scope: _Scope) -> Iterator[_Scope]:
    yield scope
    for inner in scope.scopes.values():
        yield from _scopes(inner)


def _numbers(scope: _Scope) -> list[int]:
    return [number for inner in _scopes(scope) for number in inner.nodes]


def _operation(node: NodeDef, number: int) -> Box:
    label = node.name.rpartition("/")[2]
    shapes = _shapes(node)
    title = f"{node.name}\n{node.op}" + (f" {', '.join(shapes)}" if shapes else "")
    if node.device:
        title += f"\n{node.device}"
    return Box(node.name, label, _kind(node.op), title, number)


def _kind(op: str) -> str:
    """Return the class by which an operation gets its colour."""
    for kind, words in {
        "variable": ("Variable", "VarHandle"),
        "placeholder": ("Placeholder",),
        "queue": ("Queue", "Reader"),
        "const": ("Const",),
        "summary": ("Summary",),
        "update": ("Assign", "Apply", "Scatter"),
    }.items():
        if any(word in op for word in words):
            return f"op {kind}"
    return "op"


def _shapes(node: NodeDef) -> list[str]:
    found: Any = node.attr.get("_output_shapes")
    if found is None:
        return []
    shapes = []
    for shape in list(found.list.shape)[:8]:
        sizes = ["?" if dim.size < 0 else str(dim.size) for dim in shape.dim]
        shapes.append("?" if shape.unknown_rank else f"[{', '.join(sizes)}]")
    return shapes


def _connect(whole: Box, nodes: list[NodeDef], numbers: dict[str, int], box_of: dict[int, Box]) -> None:
    """Put each edge into the innermost scope that holds both ends, between the two boxes there."""
    chains = {box: chain for chain in _chains(whole, ()) for box in chain[-1:]}
    carries_data: dict[tuple[Box, Box, Box], bool] = {}
    for number, node in enumerate(nodes):
        end = chains[box_of[number]]
        for name, control in sources(node):
            if name not in numbers or box_of[numbers[name]] is box_of[number]:
                continue
            begin = chains[box_of[numbers[name]]]
            pairs = enumerate(zip(begin, end, strict=False))
            depth = next(depth for depth, (one, other) in pairs if one is not other)
            edge = begin[depth - 1], begin[depth], end[depth]
            carries_data[edge] = carries_data.get(edge, False) or not control
    for (scope, begin_box, end_box), data in carries_data.items():
        scope.edges.append((begin_box, end_box, not data))


def _chains(box: Box, around: tuple[Box, ...]) -> Iterable[tuple[Box, ...]]:
    chain = (*around, box)
    yield chain
    for inner in box.inner:
        yield from _chains(inner, chain)
