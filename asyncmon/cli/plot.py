"""``asyncmon plot``: draw the scalars of several runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asyncmon.cli.output import printable, write_line
from asyncmon.cli.scalars import Selection, add_selection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DESCRIPTION = """\
Draw scalars into a PNG, one chart per tag with one line per run. Needs matplotlib: pip install
'asyncmon[examples]'."""

EPILOG = """\
example: asyncmon plot runs/a runs/b --tag loss --log --smooth 0.9 -o loss.png
exit status: 0 done; 1 no scalar found, too many scalars, a damaged file (what is readable is drawn), or
matplotlib is not installed; 2 wrong arguments."""

_COLUMNS = 3
_MOST_CHARTS = 120  # drawn in 15 s
_SIZE = (4.5, 3.2)  # inches of one chart
_LONGEST = 44  # characters of a title


def add_options(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)
    add = parser.add_argument
    add("-o", "--output", type=Path, default=Path("scalars.png"), help="default: %(default)s")
    add("--log", action="store_true", help="use a logarithmic scale for values")
    text = "smooth as TensorBoard does, 0 <= W < 1"
    add("--smooth", type=_weight, default=0.0, metavar="W", help=text)
    add(
        "--time",
        action="store_true",
        help="draw over hours since the start of the run, not over steps",
    )


def run(options: argparse.Namespace) -> int:
    """Draw the picture and print its path."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("`plot` needs matplotlib: pip install 'asyncmon[examples]'") from error
    selection = Selection(options)
    runs = selection.runs
    tags = sorted({tag for scalars in runs.values() for tag in scalars})
    if len(tags) > _MOST_CHARTS:
        raise ValueError(
            f"There are {len(tags):,} scalars, and a picture has {_MOST_CHARTS} charts at most: choose "
            f"some, --tag {tags[0]!r} for example."
        )
    columns = min(_COLUMNS, len(tags))
    rows = -(-len(tags) // columns)
    size = _SIZE[0] * columns, _SIZE[1] * rows
    figure = Figure(figsize=size, layout="constrained")
    charts = list(figure.subplots(rows, columns, squeeze=False).flat)
    for tag, chart in zip(tags, charts, strict=False):
        for number, (name, scalars) in enumerate(runs.items()):
            if tag in scalars:
                points = scalars[tag]
                began = min(series[0].wall_time for series in scalars.values())
                along = [(p.wall_time - began) / 3600 if options.time else p.step for p in points]
                values = [p.value for p in points]
                _draw(chart, along, values, options.smooth, name, f"C{number % 10}")
        title = printable(tag)
        chart.set_title(title if len(title) <= _LONGEST else f"{title[:_LONGEST]}…", parse_math=False)
        chart.set_xlabel("hours" if options.time else "step")
        if options.log:
            chart.set_yscale("log")
        chart.grid(alpha=0.25)
    for chart in charts[len(tags) :]:
        chart.set_axis_off()
    if len(runs) > 1:
        lines = {line.get_label(): line for chart in charts[: len(tags)] for line in chart.get_lines()}
        shown = {label: line for label, line in lines.items() if label in runs}
        legend = figure.legend(
            shown.values(), shown.keys(), loc="outside lower center", ncols=min(len(shown), 4)
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    figure.savefig(options.output, dpi=120, format="png")
    write_line(str(options.output))
    return selection.status


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = -1.0
    if not 0 <= weight < 1:
        raise argparse.ArgumentTypeError(f"a weight from 0 to below 1 is expected, got {text}.")
    return weight


def _draw(
    chart: Axes, along: list[float], values: list[float], weight: float, name: str, color: str
) -> None:
    marker = "o" if len(values) == 1 else None
    if not weight:
        chart.plot(along, values, label=name, linewidth=1.2, marker=marker, color=color)
        return
    chart.plot(along, values, label="_", linewidth=1, alpha=0.25, color=color)
    smooth = smoothed(np.asarray(values), weight)
    chart.plot(along, smooth, label=name, linewidth=1.5, marker=marker, color=color)


def smoothed(values: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    """Return the exponential moving average with bias correction. NaN and infinities become NaN.

    Args:
        values: shape ``[n]``.
        weight: the weight of the previous average, from 0 to below 1.
    """
    result, average, count = np.full(len(values), np.nan), 0.0, 0
    for i, value in enumerate(values.tolist()):
        if np.isfinite(value):
            average = weight * average + (1 - weight) * value
            count += 1
            result[i] = average / (1 - weight**count)
    return result
