"""Draw the curves of chosen values in a notebook, while the training runs."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

from asyncmon.hooks.hook_support import log_errors, named_tensor, positive, samples_every
from asyncmon.runtime import Coordinator, Session, SessionRunHook
from asyncmon.system.diagnostics import Diagnostics
from asyncmon.system.notebook import Cell, in_notebook

_MOST = 1_000  # points of a curve; beyond it, every second one is dropped
_WIDTH, _HEIGHT = 320, 150
_LEFT, _TOP, _BOTTOM = 58, 20, 18

Point = tuple[int, float]


class CurvesHook(SessionRunHook):
    """Draw curves of chosen values in the cell of a notebook that opens the session.

    Elsewhere nothing is drawn. The hook itself, as the value of a cell, shows its curves at any time,
    also after the session. The values are samples of runs, so that a step is not delayed. A restored
    session removes the points of steps that it repeats.

    Args:
        values: fetches of one number each, by name.
        every_secs: the interval of the samples and of the drawing, in seconds.

    Raises:
        ValueError: the interval is not positive, or there is no value.

    Example::

        hooks = [CurvesHook({"loss": loss, "accuracy": accuracy})]
    """

    def __init__(self, values: Mapping[str, Any], every_secs: float = 1.0) -> None:
        positive("every_secs", every_secs)
        if not values:
            raise ValueError("CurvesHook was given no value: pass fetches by name, {'loss': loss}.")
        self._values = dict(values)
        self._every_secs = every_secs
        self._points: dict[str, list[Point]] = {name: [] for name in self._values}
        self._stride = 1  # of the samples that are kept
        self._samples = 0
        self._cell: Cell | None = None
        self._diagnostics = Diagnostics("The curves")
        self._fetches: dict[str, Any]

    async def begin(self) -> None:
        self._fetches = {name: named_tensor(fetch) for name, fetch in self._values.items()}
        self._cell = Cell() if in_notebook() else None

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        first = session.global_step or 0
        for name, points in self._points.items():
            self._points[name] = [point for point in points if point[0] <= first]

    async def background(self, session: Session, coord: Coordinator) -> None:
        async for values, step in samples_every(coord, self._every_secs, self._fetches):
            with log_errors(self, "a sample"):
                self._add(values, step or 0)
                self._draw()

    async def cleanup(self, error: BaseException | None) -> None:
        self._draw()

    def _add(self, values: Mapping[str, Any], step: int) -> None:
        numbers = {name: _number(name, value) for name, value in values.items()}
        temporary = self._samples % self._stride != 0
        self._samples += 1
        for name, number in numbers.items():
            points = self._points[name]
            if temporary and points:
                points[-1] = (step, number)  # the newest one is always there
            else:
                points.append((step, number))
        if max(map(len, self._points.values())) > _MOST:
            self._stride *= 2
            self._points = {name: points[::2] for name, points in self._points.items()}

    def _draw(self) -> None:
        if self._cell is not None:
            with self._diagnostics.tolerated("the notebook"):
                self._cell.show(self._repr_html_())

    def _repr_html_(self) -> str:
        charts = "".join(_chart(name, points) for name, points in self._points.items())
        return f'<div style="display:flex;flex-wrap:wrap;gap:12px">{charts}</div>'


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"CurvesHook was given {value!r} for {name!r}; expected one number.") from None


def _chart(name: str, points: list[Point]) -> str:
    """Return an SVG of a curve, in the colour of the text around it."""
    finite = [value for _, value in points if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    first, last = (points[0][0], points[-1][0]) if points else (0, 1)
    wide, tall = _WIDTH - _LEFT - 8, _HEIGHT - _TOP - _BOTTOM

    def place(step: int, value: float) -> str:
        across = (step - first) / (last - first) if last > first else 0.5
        up = (value - low) / (high - low) if 0 < high - low < math.inf else 0.5
        return f"{_LEFT + across * wide:.1f},{_TOP + (1 - up) * tall:.1f}"

    lines: list[list[str]] = [[]]
    for step, value in points:
        if math.isfinite(value):
            lines[-1].append(place(step, value))
        elif lines[-1]:
            lines.append([])  # a gap
    curves = "".join(
        f'<polyline points="{" ".join(line * 2 if len(line) == 1 else line)}" fill="none" '
        'stroke="#1f6feb" stroke-width="1.6" stroke-linecap="round"/>'
        for line in lines
        if line
    )
    bottom = _TOP + tall
    newest = f" {points[-1][1]:.4g}" if points else ""
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" font-size="11" fill="currentColor">'
        f'<text x="{_LEFT}" y="13" font-weight="600">{html.escape(name)}{newest}</text>'
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{_LEFT + wide}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.35"/>'
        f'<text x="{_LEFT - 5}" y="{_TOP + 8}" text-anchor="end">{high:.4g}</text>'
        f'<text x="{_LEFT - 5}" y="{bottom}" text-anchor="end">{low:.4g}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{first:,}</text>'
        f'<text x="{_LEFT + wide}" y="{_HEIGHT - 4}" text-anchor="end">{last:,}</text>{curves}</svg>'
    )
