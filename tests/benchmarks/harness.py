"""What the benchmarks share: interleaved timing, peers in other Pythons, one kind of table.

Each benchmark is a script, run by name (``python tests/benchmarks/engine.py [row ...]``), and
``python -m tests.benchmarks`` runs them all. Machines are noisy, so a figure is a ratio against a peer
measured in the same run: contestants take turns, round by round, and the median of the rounds counts.
A peer that needs other packages (TensorFlow) runs in its own interpreter, named by the environment
variable ``ASYNCMON_PEER_PYTHON``; without one it is left out. With ``ASYNCMON_QUICK`` set there are few
rounds: enough to see whether a benchmark works, and the rough size of a figure.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

QUICK = bool(os.environ.get("ASYNCMON_QUICK"))


@dataclass(frozen=True)
class Row:
    """One line of a table: the measured quantity, the figure it must reach, and whether it does."""

    work: str
    measured: str
    target: str
    met: bool | None = None
    """None where the peer is not installed, or where there is no limit."""

    ratios: Mapping[str, float] = field(default_factory=dict)
    """Our time over that of each peer: below 1 is faster."""

    points: Sequence[tuple[float, float]] = ()
    """Of a scale curve: each size, and the quantity measured there."""

    name: str = ""
    """The name of the row on the command line."""


def seconds(fn: Callable[[], object], repeats: int) -> float:
    """Return seconds per call of ``fn``, over ``repeats`` calls in a row."""
    start = time.perf_counter()
    for _ in range(repeats):
        fn()
    return (time.perf_counter() - start) / repeats


def typical(
    measure: Callable[[int], float], repeats: int, core: int | None = None, stretches: int = 25
) -> float:
    """Return the median of what ``measure(n)`` gives for stretches that are ``repeats`` in all.

    So rare events, and the first stretch after a rest, do not decide.

    Args:
        measure: does the given number and returns seconds.
        repeats: how many in all.
        core: keep this thread to that core while measuring; None leaves it to the system.
        stretches: how many.
    """
    each = max(1, repeats // stretches)
    with kept_to(core):
        return statistics.median(measure(each) for _ in range(max(1, repeats // each)))


CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@contextmanager
def kept_to(core: int | None) -> Iterator[None]:
    """Keep this thread to a core inside ``with``."""
    if core is None:
        yield
        return
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)


_REST = 0.2  # seconds: threads of BLAS spin for half of it


def take_turns(
    contestants: Mapping[str, Callable[[], float]],
    rounds: int = 15,
    warmup: int = 2,
    take: Callable[[Sequence[float]], float] = statistics.median,
) -> dict[str, float]:
    """Call each contestant once a round; return the median of what each returned, or what to take.

    A contestant returns its own measurement in seconds. The collector runs between, not within; and
    there is a rest, for threads of BLAS spin on for some time after their work.
    """
    found: dict[str, list[float]] = {name: [] for name in contestants}
    if QUICK:
        rounds, warmup = min(rounds, 3), 1
    for number in range(warmup + rounds):
        for name, measure in contestants.items():
            gc.collect()
            gc.disable()
            time.sleep(_REST)
            try:
                value = measure()
            finally:
                gc.enable()
            if number >= warmup:
                found[name].append(value)
    return {name: take(values) for name, values in found.items()}


def peer(script: str, *args: str, timeout: float = 300) -> dict[str, Any] | None:
    """Run a script in the peer's interpreter and return the JSON object it prints last, or None."""
    python = os.environ.get("ASYNCMON_PEER_PYTHON")
    if not python:
        return None
    done = subprocess.run(
        [python, "-c", script, *args],
        capture_output=True, text=True, timeout=timeout, env=quiet_environment(), check=False,
    )  # fmt: skip
    if done.returncode:
        print(f"the peer failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


class Peer:
    """A script that stays open in the peer's interpreter, so that it can take turns with us.

    It reads lines of JSON and answers each with one. Without a peer ``installed`` is false. Use in
    ``with``; leaving it ends the process.
    """

    def __init__(
        self, script: Path, variable: str = "ASYNCMON_PEER_PYTHON", *, python: str | None = None
    ) -> None:
        self.python = os.environ.get(variable, "") if python is None else python
        self._script = script
        self._process: subprocess.Popen[str] | None = None

    @property
    def installed(self) -> bool:
        """Whether there is an interpreter for it."""
        return bool(self.python)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises:
            RuntimeError: the script ended instead; its own error is on stderr.
        """
        if self._process is None:
            assert self.python, "no peer is installed"
            self._process = subprocess.Popen(
                [self.python, str(self._script)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=quiet_environment(),
            )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._script.name} ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def quiet_environment() -> dict[str, str]:
    """Return the environment for a peer: TensorFlow on the CPU, silent, with the cells of version 1."""
    chosen = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TF_USE_LEGACY_KERAS": "1"}
    return {**os.environ, **chosen}


def ratios(found: Mapping[str, float]) -> dict[str, float]:
    """Return what contestants' seconds say: ours over each other's."""
    return {name: found["ours"] / took for name, took in found.items() if name != "ours"}


Measure: TypeAlias = "Callable[[], Row | list[Row] | Awaitable[list[Row]]]"


def command(title: str, rows: Mapping[str, Measure]) -> int:
    """Measure the rows that the command line names, or all; print them; return the exit status.

    With ``--json`` as the first argument the last line is a list with an object for each row.
    """
    names = sys.argv[1:]
    as_json = names[:1] == ["--json"]
    found: list[Row] = []
    for name in chosen(names[as_json:], rows):
        measured: Any = rows[name]()
        if inspect.isawaitable(measured):
            measured = asyncio.run(_result_of(measured))
        several = [measured] if isinstance(measured, Row) else measured
        found += [replace(row, name=name) for row in several]
        gc.collect()
        print(f"{name} is measured", file=sys.stderr, flush=True)
    met = show(title, found)
    if as_json:
        print(json.dumps([asdict(row) for row in found]))
    return 0 if met else 1


async def _result_of(measured: Awaitable[list[Row]]) -> list[Row]:
    return await measured


def chosen(names: Sequence[str], rows: Collection[str]) -> Collection[str]:
    """Return the names of rows that were asked for; all where none was.

    Raises:
        SystemExit: a name is that of no row.
    """
    for name in names:
        if name not in rows:
            print(f"No row is called {name!r}; there are {', '.join(rows)}.", file=sys.stderr)
            sys.exit(2)
    return names or rows


def show(title: str, rows: Sequence[Row]) -> bool:
    """Print a table; return whether every figure that has a limit, and its peer, is met."""
    widths = [max(map(len, column)) for column in zip(*map(cells, rows), strict=True)]
    print(f"\n{title}")
    for row in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells(row), widths, strict=True)]
        print(f"  {'  '.join(padded)}".rstrip())
    return all(row.met is not False for row in rows)


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """Return a row's cells: work, figures, ratios to peers, the target, and whether it is met."""
    verdict = {True: "met", False: "NOT MET", None: ""}[row.met]
    said = ", ".join(f"{ratio:.2f}x {name}" for name, ratio in row.ratios.items())
    return row.work, row.measured, said, f"({row.target})" if row.target else "", verdict
