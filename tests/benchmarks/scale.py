"""How costs grow with size: ``python tests/benchmarks/scale.py [curve ...]``.

Curves: hooks, sessions, nodes, variables, state, workers. Each is measured at several sizes; a
power law is fitted through them, and an exponent above 1 says that it grows faster than the size.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import models
import numpy as np
import psutil
from cluster import grpc_server
from harness import QUICK, Row, command, quiet_environment

import asyncmon as am
from asyncmon import graph as g

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HERE = Path(__file__).parent
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def fitted(points: Sequence[tuple[float, float]]) -> float:
    """Return the exponent of the power law through points: the slope of the line through logarithms."""
    sizes, values = np.log(np.array(points, float)).T
    return float(np.polyfit(sizes, values, 1)[0])


def curve(work: str, unit: str, points: Sequence[tuple[float, float]], most: float = 1.1) -> Row:
    """Return the row of a curve whose last half may grow with the size to the power of ``most``."""
    said = ", ".join(f"{size:,g}: {value:.3g}" for size, value in points)
    exponent = fitted(points[len(points) // 2 - 1 :])
    target = f"at most size ** {most:g}"
    return Row(f"{work}, {unit}", f"{said}; ** {exponent:.2f}", target, exponent <= most, points=points)


def sizes(*all_of_them: int) -> Sequence[int]:
    """Return the sizes to measure: without the largest in a quick run."""
    return all_of_them[:-2] if QUICK else all_of_them


class Looking(am.SessionRunHook):
    """Is called in each step."""

    async def after_run(self, run_context: Any, run_values: am.SessionRunValues) -> None:
        """Do nothing."""


async def step_of(count: int) -> float:
    """Return the microseconds of a step with a number of hooks."""
    with g.Graph().as_default() as graph:
        train = g.assign_add(am.get_or_create_global_step(), 1)
        creator = am.ChiefSessionCreator(program=graph)
        async with am.MonitoredSession(creator, [Looking() for _ in range(count)]) as sess:
            found = []
            for _ in range(11):
                start = time.perf_counter()
                for _ in range(200):
                    await sess.run(train)
                found.append((time.perf_counter() - start) / 200)
    return statistics.median(found) * 1e6


async def hooks() -> list[Row]:
    # the step itself is at size 1: so the curve shows what a hook adds
    points = [(count, await step_of(count)) for count in sizes(1, 5, 20, 50, 100, 200)]
    return [curve("a step with n hooks", "us", points)]


def sessions() -> list[Row]:
    found: list[tuple[int, Mapping[str, float]]] = []
    for count in sizes(1, 10, 100, 1000, 5000):
        done = subprocess.run(
            [sys.executable, str(HERE / "many_sessions.py"), str(count)],
            capture_output=True, text=True, check=True, env=quiet_environment(),
        )  # fmt: skip
        found.append((count, json.loads(done.stdout.splitlines()[-1])))
    opened = [(count, one["open"] * 1e3) for count, one in found]
    step = [(count, one["step"] * 1e6) for count, one in found]
    closed = [(count, one["close"] * 1e3) for count, one in found]
    return [
        curve("n sessions in a loop: open all", "ms", opened),
        curve("n sessions in a loop: a step of one", "us", step, 0.2),
        curve("n sessions in a loop: close all", "ms", closed),
    ]


async def nodes() -> list[Row]:
    points = []
    for count in sizes(10, 100, 1000, 10_000, 100_000):
        start = time.perf_counter()
        with g.Graph().as_default() as graph:
            top, init = models.tower(g, count), g.global_variables_initializer()
        session = g.Session(graph=graph)
        await session.run(init)
        await session.run(top)
        points.append((count, (time.perf_counter() - start) * 1e3))
        await session.close()
    return [curve("a graph of n nodes: build, plan, run", "ms", points)]


async def variables() -> list[Row]:
    first, step, remote = [], [], []
    with grpc_server() as (target, _):
        for count in sizes(1, 10, 100, 1000, 10_000):
            start = time.perf_counter()
            with g.Graph().as_default() as graph:
                made = [g.get_variable(f"v{n}", initializer=0.0) for n in range(count)]
                train = g.group(*[v.assign_add(1.0) for v in made])
                init = g.global_variables_initializer()
            for master, seconds in (("", step), (target, remote)):
                start = time.perf_counter()
                session = g.Session(master, graph=graph)
                await session.run(init)
                await session.run(train)
                if master:
                    first.append((count, (time.perf_counter() - start) * 1e3))
                start = time.perf_counter()
                for _ in range(5):
                    await session.run(train)
                seconds.append((count, (time.perf_counter() - start) / 5 * 1e3))
                await session.close()
    return [
        curve("n variables: a step of all", "ms", step),
        curve("n variables on a server: open, first step", "ms", first),
        curve("n variables on a server: a step of all", "ms", remote),
    ]


async def state() -> list[Row]:
    saved, restored = [], []
    for megabytes in sizes(1, 10, 100, 500, 2000):
        if psutil.virtual_memory().available < 4 * megabytes * 1e6:
            break
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory, g.Graph().as_default() as graph:
            shape = [megabytes, 250_000]
            init = g.get_variable("v", shape, initializer=g.ones_initializer()).initializer
            session, saver = g.Session(graph=graph), am.Saver()
            await session.run(init)
            start = time.perf_counter()
            path = await saver.save(session, f"{directory}/model.ckpt")
            saved.append((megabytes, (time.perf_counter() - start) * 1e3))
            start = time.perf_counter()
            await saver.restore(session, path)
            restored.append((megabytes, (time.perf_counter() - start) * 1e3))
            await session.close()
            await saver.close()
    return [curve("n MB of state: save", "ms", saved), curve("n MB of state: restore", "ms", restored)]


async def workers() -> list[Row]:
    """Steps a second of n workers on one server, each of which waits for its own step only."""
    points, said = [], []
    with grpc_server() as (target, server), g.Graph().as_default() as graph:
        v = g.get_variable("v", initializer=0.0)
        add, process = v.assign_add(1.0).op, psutil.Process(server.pid)
        for count in sizes(1, 2, 4, 8, 16):
            async with AsyncExitStack() as stack:
                made = [g.Session(target, graph=graph) for _ in range(count)]
                for one in made:
                    stack.push_async_callback(one.close)
                await made[0].run(v.initializer)
                await asyncio.gather(*[one.run(v) for one in made])
                before = sum(process.cpu_times()[:2])
                start = time.perf_counter()

                async def work(session: g.Session, steps: int = 4000 // count) -> None:
                    for _ in range(steps):
                        await session.run(add)

                await asyncio.gather(*map(work, made))
                took = time.perf_counter() - start
                used = sum(process.cpu_times()[:2]) - before
                rate = 4000 / took
                points.append((count, rate))
                said.append(f"{count}: {rate:,.0f} at {used / 4:.2f} ms")
    work = "n workers on a server: steps a second, its CPU of each"
    return [Row(work, ", ".join(said), "to compare", points=points)]


CURVES: dict[str, Callable[[], Any]] = {
    "hooks": hooks,
    "sessions": sessions,
    "nodes": nodes,
    "variables": variables,
    "state": state,
    "workers": workers,
}


if __name__ == "__main__":
    sys.exit(command("how costs grow with size", CURVES))
