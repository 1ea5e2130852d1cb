"""What monitoring adds to a step: ``python tests/benchmarks/step_overhead.py [row ...]``.

Rows: none, silent, fetching, default, function, sessions, lag. ``ASYNCMON_PEER_PYTHON`` names an
interpreter with TensorFlow.

The overhead is measured as a difference: monitored and raw runs of one increment take turns, 200
steps each, and the median of the differences counts. So other work of the machine cancels out.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import QUICK, Peer, Row, command, quiet_environment, ratios, take_turns

import asyncmon as am
from asyncmon.programs import FunctionProgram
from asyncmon.system.loop_budget import LoopBudget

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
TF1 = Peer(HERE / "tf1_monitored.py")
LOOP = asyncio.Runner()
PLACE = f"{tempfile.gettempdir()}/asyncmon-benchmark-{os.getpid()}"

STEPS = 200  # in a row
TURNS = 20
ROUNDS = 3 if QUICK else 15


class Silent(am.SessionRunHook):
    """Overrides nothing that is called per step."""

    async def end(self, session: Any) -> None:
        """Do nothing."""


class Fetching(am.SessionRunHook):
    """Fetches a tensor, and reads it."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    async def before_run(self, run_context: Any) -> am.SessionRunArgs:
        return am.SessionRunArgs(self.tensor)

    async def after_run(self, run_context: Any, run_values: am.SessionRunValues) -> None:
        self.value = run_values.results


class Work:
    """A monitored session, and a raw one of the same increment to compare it with."""

    def __init__(self, kind: str) -> None:
        graph = am.graph.Graph()
        with graph.as_default():
            self.train = am.graph.assign_add(am.get_or_create_global_step(), 1)
            weight = am.graph.Variable(1.0, name="weight")
            self.values = [weight * (0.1 * (i + 1)) for i in range(5)]
            am.summary.scalar("loss", self.values[0])
            init = am.graph.global_variables_initializer()
        self.raw = am.Session(graph=graph)
        self.monitored = self._monitored(kind, graph)
        LOOP.run(self.monitored.start())
        LOOP.run(self.raw.run(init))

    def _monitored(self, kind: str, graph: am.graph.Graph) -> Any:
        hooks: list[Any] = []
        if kind == "silent":
            hooks = [Silent() for _ in range(20)]
        elif kind == "fetching":
            hooks = [Fetching(value) for value in self.values]
        elif kind == "default":
            hooks = [
                am.StopAtStepHook(last_step=10**9),
                am.LoggingTensorHook({"loss": self.values[0]}, every_n_iter=100),
                am.NanTensorHook(self.values[0]),
            ]
            return am.MonitoredTrainingSession(
                checkpoint_dir=f"{PLACE}/{id(self)}", hooks=hooks, program=graph, signals=None
            )
        return am.MonitoredSession(am.ChiefSessionCreator(program=graph), hooks)

    def above(self) -> float:
        """Return the seconds that a monitored step takes above a raw one."""
        return LOOP.run(difference(self.monitored, self.raw, self.train, self.train))

    def close(self) -> None:
        LOOP.run(self.monitored.close())
        LOOP.run(self.raw.close())


async def steps(session: Any, fetches: Any, count: int = STEPS) -> float:
    """Return the seconds of a step, over a number of steps in a row."""
    run = session.run
    start = time.perf_counter()
    for _ in range(count):
        await run(fetches)
    return (time.perf_counter() - start) / count


async def difference(one: Any, other: Any, fetches: Any, others_fetches: Any) -> float:
    """Return how many seconds more a step of one session takes than a step of the other."""
    return statistics.median(
        [await steps(one, fetches) - await steps(other, others_fetches) for _ in range(TURNS)]
    )


async def usual(session: Any, fetches: Any) -> float:
    """Return the seconds that a step takes as a rule."""
    return statistics.median([await steps(session, fetches) for _ in range(TURNS)])


def added(kind: str, most: float) -> Row:
    """Measure one kind of session, in turns with TensorFlow's, with a limit for their ratio."""
    work = Work(kind)
    contestants: dict[str, Callable[[], float]] = {"ours": work.above}
    if TF1.installed:
        contestants["TF1"] = lambda: tf1(kind)
    found = take_turns(contestants)
    work.close()
    said = ", ".join(f"{name} {us(value)}" for name, value in found.items())
    met = found["ours"] <= most * found["TF1"] if "TF1" in found else None
    return Row(f"above the raw run, {NAMES[kind]}", said, f"{most:g}x TF1", met, ratios(found))


def tf1(kind: str) -> float:
    """Return what TensorFlow's session adds."""
    return float(TF1.ask(above=kind, turns=TURNS, steps=50, place=PLACE)["seconds"])


NAMES = {
    "none": "0 hooks",
    "fetching": "5 hooks that fetch a tensor each",
    "default": "default hooks, Stop, Logging, Nan",
}


def none() -> Row:
    return added("none", 0.1)


def fetching() -> Row:
    return added("fetching", 0.08)


def default() -> Row:
    return added("default", 0.07)


def silent() -> Row:
    """Twenty hooks that do nothing per step, against none."""
    one, other = Work("none"), Work("silent")

    def above_none() -> float:
        return LOOP.run(difference(other.monitored, one.monitored, other.train, one.train))

    contestants: dict[str, Callable[[], float]] = {"ours": above_none}
    if TF1.installed:
        contestants["TF1"] = lambda: tf1("silent") - tf1("none")
    found = take_turns(contestants)
    one.close()
    other.close()
    said = ", ".join(f"{name} {value * 1e6:+.2f} us" for name, value in found.items())
    return Row("20 silent hooks above none", said, "1 us", abs(found["ours"]) <= 1e-6)


def us(value: float) -> str:
    return f"{value * 1e6:.2f} us"


# --- functions --------------------------------------------------------------------------------------


async def number() -> float:
    return 0.5


class Ignite:
    """An iteration of ignite's engine, whose process function returns the same float."""

    def __init__(self) -> None:
        from ignite.engine import Engine  # type: ignore[import-not-found,unused-ignore]  # optional

        self._engine = Engine(lambda _engine, _batch: 0.5)

    def __call__(self) -> float:
        found = []
        for _ in range(TURNS):
            start = time.perf_counter()
            self._engine.run(range(10 * STEPS), max_epochs=1)  # its start, some 100 us, does not show
            found.append((time.perf_counter() - start) / 10 / STEPS)
        return statistics.median(found)


def function() -> Row:
    """One async function that returns a float, against the raw session and an engine of ignite."""
    program = FunctionProgram(steps={"train": number})
    monitored = am.MonitoredSession(am.ChiefSessionCreator(program=program))
    raw = program.create_session()
    LOOP.run(monitored.start())
    contestants: dict[str, Callable[[], float]] = {
        "ours": lambda: LOOP.run(usual(monitored, "train")),
        "raw": lambda: LOOP.run(usual(raw, "train")),
    }
    if importlib.util.find_spec("ignite"):
        contestants["ignite"] = Ignite()
    found = take_turns(contestants)
    LOOP.run(monitored.close())
    said = ", ".join(f"{name} {us(value)}" for name, value in found.items())
    met = found["ours"] <= 0.5 * found["ignite"] if "ignite" in found else None
    return Row("a function that returns a float", said, "0.5x ignite", met, ratios(found))


# --- many sessions, and the loop --------------------------------------------------------------------


def sessions() -> Row:
    done = subprocess.run(
        [sys.executable, str(HERE / "many_sessions.py")],
        capture_output=True, text=True, check=True, env=quiet_environment(),
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    said = (
        f"open in {found['open']:.2f} s, {found['bytes'] / 1e3:.0f} KB each, "
        f"Jain {found['jain']:.3f} ({found['least']} to {found['most']} steps), "
        f"closed in {found['close']:.2f} s; {us(found['step'])} a step, "
        f"loop lag p99 {found['lag'] * 1e3:.2f} ms"
    )
    met = found["open"] <= 3 and found["bytes"] <= 60_000 and found["jain"] >= 0.95
    met = met and found["close"] <= 3
    return Row("1,000 sessions", said, "3 s, 60 KB, Jain 0.95, 3 s", met)


def lag() -> Row:
    """A monitored loop of increments beside a task that wants to run each millisecond.

    Its delay is counted in time of the loop's thread, so that the machine's other work, which
    no loop can help, stays out.
    """
    work = Work("none")
    found: list[float] = []
    by_the_clock: list[float] = []

    async def beside() -> None:
        lags: list[tuple[float, float]] = []

        async def tick() -> None:
            while True:
                start, start_here = time.perf_counter(), time.thread_time()
                await asyncio.sleep(0.001)
                late = time.perf_counter() - start - 0.001
                lags.append((time.thread_time() - start_here - 0.001, late))

        ticker = asyncio.create_task(tick())
        await asyncio.sleep(0)
        await steps(work.monitored, work.train, 30_000)
        ticker.cancel()
        for kept, column in zip((found, by_the_clock), zip(*lags, strict=True), strict=True):
            kept.append(sorted(column)[int(len(lags) * 0.99)])

    async def lost() -> float:
        """Return the share of the time that goes into letting the loop turn."""
        budget, shares = LoopBudget.of_running_loop(), []
        for _ in range(TURNS):
            yielding = await steps(work.monitored, work.train, 2000)
            kept, budget.seconds = budget.seconds, 1e9  # a loop that never turns
            alone = await steps(work.monitored, work.train, 2000)
            budget.seconds = kept
            shares.append(1 - alone / yielding)
        return statistics.median(shares)

    for _ in range(ROUNDS):
        LOOP.run(beside())
    share = statistics.median([LOOP.run(lost()) for _ in range(ROUNDS)])
    work.close()
    middle = statistics.median(found)
    said = f"p99 {middle * 1e3:.2f} ms ({statistics.median(by_the_clock) * 1e3:.2f} ms by the clock)"
    said += f", {share:.1%} lost"
    return Row("a monitored loop's lag", said, "p99 2 ms, 3 % lost", middle <= 0.002 and share <= 0.03)


ROWS: dict[str, Callable[[], Row]] = {
    "none": none,
    "silent": silent,
    "fetching": fetching,
    "default": default,
    "function": function,
    "sessions": sessions,
    "lag": lag,
}


def main() -> int:
    try:
        with TF1, LOOP:
            return command("what monitoring adds to a step", ROWS)
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
