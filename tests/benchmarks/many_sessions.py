"""A thousand monitored sessions in one loop, in a process of its own: prints the figures as JSON.

Each session has a graph of its own and two hooks that are called by seconds, those of more than a
thousand sessions together as often as those of a thousand: a call takes some 50 us. All sessions step
as fast as they can for some seconds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

import psutil

import asyncmon as am

SECONDS = 4.0


class Ticks:
    """Counts the calls of the timer hooks."""

    seen = 0


def timer_hooks(count: int) -> list[Any]:
    secs = max(1.0, count / 1000)

    async def look(session: Any) -> None:
        Ticks.seen += session.global_step >= 0

    async def tick() -> None:
        Ticks.seen += 1

    return [am.every(secs=0.5 * secs)(look), am.every(secs=secs)(tick)]


def graph_session(count: int) -> tuple[Any, Any]:
    graph = am.graph.Graph()
    with graph.as_default():
        train = am.graph.assign_add(am.get_or_create_global_step(), 1)
    return am.MonitoredSession(am.ChiefSessionCreator(program=graph), timer_hooks(count)), train


async def measure(make: Any, count: int) -> dict[str, float]:
    process = psutil.Process()
    warm, _ = make(count)
    async with warm:
        pass
    gc.collect()
    before, start = process.memory_info().rss, time.perf_counter()
    sessions = [make(count) for _ in range(count)]
    await asyncio.gather(*[sess.start() for sess, _ in sessions])
    opened = time.perf_counter() - start
    gc.collect()
    size = (process.memory_info().rss - before) / count
    steps, lags = [0] * count, [0.0]

    async def train(number: int) -> None:
        sess, fetch = sessions[number]
        while not sess.should_stop():
            await sess.run(fetch)
            steps[number] += 1

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            lags.append(time.perf_counter() - before - 0.001)

    cpu = time.process_time()
    bodies = [asyncio.create_task(train(number)) for number in range(count)]
    watcher = asyncio.create_task(watch())
    await asyncio.sleep(SECONDS)
    watcher.cancel()
    cpu = (time.process_time() - cpu) / SECONDS
    done = list(steps)
    start = time.perf_counter()
    for sess, _ in sessions:
        sess.request_stop()
    await asyncio.gather(*bodies)
    await asyncio.gather(*[sess.close() for sess, _ in sessions])
    closed = time.perf_counter() - start
    return {
        "open": opened,
        "bytes": size,
        "jain": sum(done) ** 2 / (count * sum(n * n for n in done)),
        "least": min(done),
        "most": max(done),
        "step": SECONDS / sum(done),
        "lag": sorted(lags)[int(len(lags) * 0.99)],
        "cpu": cpu,
        "ticks": Ticks.seen / count,
        "close": closed,
    }


def main(count: str = "1000") -> None:
    print(json.dumps(asyncio.run(measure(graph_session, int(count)))))


main(*sys.argv[1:])
