"""A training with everything on, for some time: ``python tests/campaigns/soak.py SECONDS``.

A graph with a queue, summaries, checkpoints, an evaluation that saves the best, peeks, requests of the
monitor's page and viewers that come and go. Memory, tasks, threads and descriptors must be flat: the
last quarter of the time is compared with the second.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import statistics
import sys
import tempfile
import threading
import time
from typing import Any

import httpx
import numpy as np
import psutil

import asyncmon as am
from asyncmon import graph as g

MOST_BYTES = 8_000_000  # what allocators and caches of files may add in a quarter


class Model:
    """A regression whose rows come from a queue."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        rows = g.constant(rng.normal(size=[64, 32]).astype(np.float32))
        queue = g.FIFOQueue(20, [g.float32], [[64, 32]])
        am.add_queue_runner(am.QueueRunner(queue, [queue.enqueue(rows)] * 2))
        weights = g.get_variable("w", [32, 1], initializer=g.zeros_initializer())
        self.loss = g.reduce_mean(g.square(g.matmul(queue.dequeue(), weights) - 1.0))
        self.test_loss = g.reduce_mean(g.square(g.matmul(rows, weights) - 1.0))
        step = am.get_or_create_global_step()
        self.train = g.train.GradientDescentOptimizer(0.01).minimize(self.loss, global_step=step)
        am.summary.scalar("loss", self.loss)
        am.summary.histogram("weights", weights)


def measured() -> dict[str, float]:
    gc.collect()
    process = psutil.Process()
    return {
        "bytes": process.memory_info().rss,
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "descriptors": process.num_fds(),
    }


async def view(port: int, dice: random.Random) -> None:
    """Open the page's events and API for a moment, again and again."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        while True:
            with contextlib.suppress(TimeoutError, httpx.HTTPError):
                async with asyncio.timeout(dice.uniform(0.1, 2)):
                    runs = (await http.get("/api/runs")).json()["runs"]
                    await http.get(f"/api/runs/{runs[0]['id']}/scalars")
                    async with http.stream("GET", "/api/events") as events:
                        async for _ in events.aiter_bytes():
                            pass
            await asyncio.sleep(dice.uniform(0, 0.3))


async def soak(secs: float, directory: str) -> list[dict[str, float]]:
    model, dice, found = Model(), random.Random(0), list[dict[str, float]]()
    hooks = [
        am.NanTensorHook(model.loss),
        am.LoggingTensorHook({"loss": model.loss}, every_n_secs=1),
        am.EvalHook({"loss": model.test_loss}, every_steps=500),
    ]
    async with (
        am.MonitoredTrainingSession(
            checkpoint_dir=directory, hooks=hooks, save_checkpoint_secs=0.5, save_summaries_steps=100,
            log_step_count_steps=1000, signals=None,
        ) as sess,
        am.monitor.serve(sess, port=0) as server,
    ):  # fmt: skip
        port = int(server.url.rpartition(":")[2].rstrip("/"))
        viewers = [asyncio.create_task(view(port, dice)) for _ in range(5)]
        start = time.monotonic()
        while (now := time.monotonic()) < start + secs:
            await sess.run(model.train)
            if dice.random() < 0.01:
                await sess.peek(model.test_loss)
            await asyncio.sleep(0)
            if now > start + len(found) * secs / 40:
                found.append(measured())
        print(f"{sess.global_step:,} steps in {secs:.0f} s")
        for viewer in viewers:
            viewer.cancel()
        await asyncio.wait(viewers)
    return found


def main(secs: float) -> int:
    logging.getLogger("asyncmon").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(soak(secs, directory))
    grown: dict[str, Any] = {}
    for name in found[0]:
        values = [one[name] for one in found]
        grown[name] = statistics.median(values[30:]) - statistics.median(values[10:20])
    print(
        "soak:",
        ", ".join(f"{name} {found[-1][name]:,.0f} ({more:+,.0f})" for name, more in grown.items()),
    )
    flat = grown["bytes"] < MOST_BYTES and all(
        abs(more) <= 5 for name, more in grown.items() if name != "bytes"
    )
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
