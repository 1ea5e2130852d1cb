"""``asyncmon watch``: show the runs of a log directory at a terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asyncmon.cli.output import complain, positive_secs, printable, unreadable
from asyncmon.cli.scalars import add_tag_option, is_selected
from asyncmon.monitor.log_directory import LogDirectory
from asyncmon.monitor.quota import Quota
from asyncmon.monitor.run_directory import RunDirectory
from asyncmon.monitor.scalars import downsample
from asyncmon.system import clock
from asyncmon.system.urls import require_local

if TYPE_CHECKING:
    from rich.console import Console, Group

DESCRIPTION = """\
Show the runs of a log directory at the terminal: state, step, rate, newest checkpoint, and a sparkline
of each scalar. Ctrl-C exits. If the output is not a terminal, it is printed once. Needs rich: pip
install 'asyncmon[progress]'."""

EPILOG = """\
exit status: 0 done; 1 there is no run, or a damaged file, which is named on standard error at the end;
2 wrong arguments."""

_MARKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-~=+*#"
_WIDTH = 32
_VALUES_WIDTH = 36  # of the last, the least and the greatest value
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "logdir",
        metavar="LOGDIR",
        help="a directory with event files and checkpoints, or with runs",
    )
    add_tag_option(parser)
    text = "the refresh interval (default: 1)"
    add("--every", type=positive_secs, default=1.0, metavar="SECS", help=text)
    add("--once", action="store_true", help="print it once")


def run(options: argparse.Namespace) -> int:
    """Show runs until Ctrl-C."""
    try:
        from rich.console import Console
    except ImportError as error:
        raise ImportError("`watch` needs rich: pip install 'asyncmon[progress]'") from error
    damages: dict[str, None] = {}  # each once, in order
    logging.getLogger("asyncmon.monitor").addHandler(logging.NullHandler())  # they are printed below
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_watch(Console(), options, damages))
    for damage in damages:
        complain(damage)
    return int(bool(damages))


async def _watch(console: Console, options: argparse.Namespace, damages: dict[str, None]) -> None:
    from rich.live import Live

    require_local(options.logdir, "The runs")
    directory, refreshes = LogDirectory(options.logdir), 0
    live = Live(console=console, screen=True, auto_refresh=False)
    once = options.once or not console.is_terminal
    with contextlib.nullcontext() if once else live:
        while True:
            refreshes += 1
            runs, quota = await directory.scan(), Quota()
            for one in runs:
                one.scalars.join(quota)
                await one.refresh()
                one.scalars.publish(refreshes)
                damages.update(dict.fromkeys(one.damages))
            if once and not runs:
                problem = unreadable(options.logdir) or "no event file, no checkpoint"
                raise ValueError(f"There is no run in {options.logdir!r}: {problem}.")
            page = await _page(runs, options.tag or [], console)
            if once:
                console.print(page)
                return
            live.update(page, refresh=True)
            await asyncio.sleep(options.every)


async def _page(runs: Sequence[RunDirectory], patterns: Sequence[str], console: Console) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    marks = _MARKS if console.encoding.startswith("utf") else _ASCII
    tables: list[Any] = [] if runs else [Text("waiting for runs")]
    for one in runs:
        title = Text(printable(one.name), style="bold").append(await _facts(one), style="not bold")
        table = Table(box=None, title=title, title_justify="left", pad_edge=False, show_header=False)
        table.add_column(no_wrap=True, max_width=console.width // 3)
        table.add_column(no_wrap=True, style="cyan")
        for _ in range(3):
            table.add_column(justify="right", style="dim", no_wrap=True)
        chosen = [last for last in one.scalars.tags() if is_selected(last.tag, patterns)]
        longest = max((len(last.tag) for last in chosen), default=0)
        width = console.width - min(longest, console.width // 3) - _VALUES_WIDTH
        width = min(max(width, 8), _WIDTH)
        for last in chosen:
            points = one.scalars.points([last.tag])[last.tag]
            values = downsample(points, 8 * width).values
            least, most = _finite_range(values)
            row = [f"{last.value:.6g}", f"min {least:.4g}", f"max {most:.4g}"]
            table.add_row(Text(printable(last.tag)), sparkline(values, width, marks), *row)
        tables += [table, Text()]
    return Group(*tables)


async def _facts(one: RunDirectory) -> str:
    status, details = one.status(), await one.details()
    facts = ["", status.outcome or status.state]
    if status.step is not None:
        facts.append(f"step {status.step:,}")
    if status.rate is not None:
        facts.append(f"{status.rate:,.4g} steps/s")
    if details.checkpoints:
        newest = details.checkpoints[0]
        age = "" if newest.saved is None else f", {_age(clock.wall() - newest.saved)} ago"
        name = os.path.basename(newest.path) if newest.step is None else newest.step
        facts.append(f"checkpoint {name}{age}")
    return "  ".join(facts)


def _age(secs: float) -> str:
    count, unit = next(((secs // size, unit) for size, unit in _UNITS if secs >= size), (0, "s"))
    return f"{count:.0f} {unit}"


def _finite_range(values: NDArray[np.float64]) -> tuple[float, float]:
    finite = [value for value in values.tolist() if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (math.nan, math.nan)


def sparkline(values: NDArray[np.float64], width: int, marks: str = _MARKS) -> str:
    """Return a sparkline of values, ``width`` characters at most.

    Each character shows the mean of equally many values; without a finite one it is a space.
    """
    least, most = _finite_range(values)
    size = max(1, math.ceil(len(values) / width))
    line = ""
    for begin in range(0, len(values), size):
        finite = [value for value in values[begin : begin + size].tolist() if math.isfinite(value)]
        if not finite:
            line += " "
            continue
        height = 0.5 if most == least else (sum(finite) / len(finite) - least) / (most - least)
        line += marks[round(height * (len(marks) - 1))]
    return line
