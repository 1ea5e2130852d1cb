"""Nested boxes as a picture: layers from the top down, drawn as SVG without any style of its own.

Each scope is laid out by itself: a box lies below those that it takes from, as far as there is no
cycle, and boxes of a layer are ordered by the places of their neighbours. Colours come from the page,
by the classes of groups (``scope``, ``collapsed``, ``op``, ``variable``, ``placeholder``, ``queue``,
``const``, ``summary``, ``update``) and of paths (``edge``, ``control``, ``back``).
"""

from __future__ import annotations

from collections import defaultdict
from xml.sax.saxutils import escape, quoteattr

from asyncmon.monitor.graph_boxes import Box, boxes_of
from asyncmon.protobuf.graph_def import GraphDef

_LONGEST = 22  # characters of a label
_LETTER = 6.6
_LINE = 24.0
_BESIDE, _BELOW = 18.0, 34.0
_MARGIN = 14.0
_A_ROW = 8  # boxes of one layer side by side; more go into further rows


def graph_svg(graph: GraphDef) -> str:
    """Return a graph as a picture. May take some ten milliseconds: call it in a thread."""
    whole = boxes_of(graph)
    _lay_out(whole)
    width, height = whole.width, whole.height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-size="11" text-anchor="middle">',
        '<defs><marker id="arrow" markerWidth="7" markerHeight="7" refX="6" refY="3" orient="auto">'
        '<path d="M0 0L6 3L0 6z"/></marker></defs>',
    ]
    _draw_inside(whole, 0.0, 0.0, lines)
    lines.append("</svg>")
    return "\n".join(lines)


def _lay_out(box: Box) -> None:
    """Set the sizes of a box and of those in it, and their places within it."""
    if not box.inner:
        box.width = min(len(box.label), _LONGEST) * _LETTER + 16
        box.height = _LINE
        return
    for inner in box.inner:
        _lay_out(inner)
    rows = _rows(box)
    widths = [sum(one.width for one in row) + _BESIDE * (len(row) - 1) for row in rows]
    box.width = max([*widths, min(len(box.label), _LONGEST) * _LETTER]) + 2 * _MARGIN
    y = _MARGIN + (_LINE * 0.6 if box.label else 0.0)
    for row, width in zip(rows, widths, strict=True):
        x = (box.width - width) / 2
        tallest = max(one.height for one in row)
        for one in row:
            one.x, one.y = x, y + (tallest - one.height) / 2
            x += one.width + _BESIDE
        y += tallest + _BELOW
    box.height = y - _BELOW + _MARGIN


def _rows(box: Box) -> list[list[Box]]:
    above: dict[Box, list[Box]] = defaultdict(list)
    below: dict[Box, list[Box]] = defaultdict(list)
    for begin, end, _ in box.edges:
        if begin.order < end.order:  # the others lead back: a cycle of scopes, or of a loop
            above[end].append(begin)
            below[begin].append(end)
    layer: dict[Box, int] = {}
    for one in sorted(box.inner, key=lambda one: one.order):
        layer[one] = 1 + max((layer[other] for other in above[one]), default=-1)
    for one in sorted(box.inner, key=lambda one: -one.order):
        if not above[one] and below[one]:  # what nothing leads to lies right above its use
            layer[one] = min(layer[other] for other in below[one]) - 1
    layers: dict[int, list[Box]] = defaultdict(list)
    for one in sorted(box.inner, key=lambda one: one.order):
        layers[layer[one]].append(one)
    ordered = [layers[number] for number in sorted(layers)]
    for neighbours in (above, below, above):
        place = {one: i / len(row) for row in ordered for i, one in enumerate(row)}
        for row in ordered:
            row.sort(key=lambda one: _mean([place[n] for n in neighbours[one]], place[one]))
            place.update((one, i / len(row)) for i, one in enumerate(row))
    return [row[i : i + _A_ROW] for row in ordered for i in range(0, len(row), _A_ROW)]


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _draw_inside(box: Box, x: float, y: float, lines: list[str]) -> None:
    lines += [_edge(begin, end, control, x, y) for begin, end, control in box.edges]
    for inner in box.inner:
        _draw(inner, x + inner.x, y + inner.y, lines)


def _draw(box: Box, x: float, y: float, lines: list[str]) -> None:
    label = box.label if len(box.label) <= _LONGEST else box.label[: _LONGEST - 1] + "…"
    middle = x + box.width / 2
    baseline = y + 15 if box.inner else y + box.height / 2 + 4
    radius = 4 if box.kind.startswith("scope") else box.height / 2
    lines.append(
        f"<g class={quoteattr(box.kind)}><title>{_text(box.title)}</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="{radius:.0f}"/><text x="{middle:.1f}" y="{baseline:.1f}">{_text(label)}</text></g>'
    )
    _draw_inside(box, x, y, lines)


def _edge(begin: Box, end: Box, control: bool, x: float, y: float) -> str:
    x1, x2 = x + begin.x + begin.width / 2, x + end.x + end.width / 2
    kind = "edge control" if control else "edge"
    if begin.y + begin.height <= end.y:
        y1, y2 = y + begin.y + begin.height, y + end.y
        bend = max(12.0, (y2 - y1) / 2)
    else:
        kind += " back"
        y1, y2 = y + begin.y, y + end.y + end.height
        bend = -max(12.0, abs(y1 - y2) / 2)
    path = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
    return (
        f'<path class="{kind}" fill="none" stroke="currentColor" marker-end="url(#arrow)" d="{path}"/>'
    )


def _text(text: str) -> str:
    """Return text as XML may have it."""
    return escape("".join(one if one >= " " or one == "\n" else "?" for one in text))
