"""Queues of the engine: ``python tests/benchmarks/queues.py [row ...]``.

Rows: round-trip, shuffle_batch, wake. ``ASYNCMON_PEER_PYTHON`` names an interpreter with TensorFlow,
which runs the same programs. The batches are those of ``tf.train.shuffle_batch`` made of ops of the
engine: a queue runner puts one example at a time into a shuffling queue, a step takes 32 of them.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
from engine import LOOP
from harness import Row, command, peer, ratios, take_turns

import asyncmon as am
from asyncmon import graph as g

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES, BATCH, BATCHES, WAITING = 6000, 32, 150, 1000
IMAGES = np.random.default_rng(0).integers(0, 256, (EXAMPLES, 784)).astype(np.uint8)

TF1 = f"""
import json, time
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
images = tf.constant(np.random.default_rng(0).integers(0, 256, ({EXAMPLES}, 784)).astype(np.uint8))
v = tf.Variable(0, trainable=False)
i = tf.floormod(tf.assign_add(v, 1), {EXAMPLES})
queue = tf.RandomShuffleQueue(2000, {WAITING}, [tf.uint8, tf.int32], [[784], []])
runner = tf.train.QueueRunner(queue, [queue.enqueue([tf.gather(images, i), i % 10])])
batch = queue.dequeue_many({BATCH})
pair = tf.FIFOQueue(4, [tf.int32], shapes=[[]])
put, take = pair.enqueue(7), pair.dequeue()
with tf.Session() as sess:
    sess.run(v.initializer)
    for n in (500, 3000):
        start = time.perf_counter()
        for _ in range(n):
            sess.run(put)
            sess.run(take)
        trip = (time.perf_counter() - start) / n
    coord = tf.train.Coordinator()
    threads = runner.create_threads(sess, coord, start=True)
    for n in (50, {BATCHES}):
        start = time.perf_counter()
        for _ in range(n):
            sess.run(batch)
        example = (time.perf_counter() - start) / n / {BATCH}
    coord.request_stop()
    sess.run(queue.close(cancel_pending_enqueues=True))
    coord.join(threads)
print(json.dumps({{"trip": trip, "example": example}}))
"""


def us(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {took * 1e6:.1f} us" for name, took in found.items())


def with_tf1(work: str) -> dict[str, Callable[[], float]]:
    """Return the contestant of TensorFlow, where it is installed."""
    answer = peer(TF1)
    return {"TF1": lambda: float(answer[work])} if answer else {}


class Trips:
    """An enqueue and a dequeue, each a run of its own."""

    def __init__(self) -> None:
        with g.Graph().as_default() as graph:
            queue = g.FIFOQueue(4, [g.int32], shapes=[[]])
            self.put, self.take = queue.enqueue(7), queue.dequeue()
        self.session = g.Session(graph=graph)

    def seconds(self) -> float:
        """Return the seconds of both."""
        return LOOP.run(self._run(1000))

    async def _run(self, count: int) -> float:
        run = self.session.run
        start = time.perf_counter()
        for _ in range(count):
            await run(self.put)
            await run(self.take)
        return (time.perf_counter() - start) / count


def round_trip() -> Row:
    trips = Trips()
    found = take_turns({"ours": trips.seconds, **with_tf1("trip")})
    LOOP.run(trips.session.close())
    met = found["ours"] <= 0.15 * found["TF1"] if "TF1" in found else None
    return Row("queue: enqueue op + dequeue op", us(found), "0.15x TF1", met, ratios(found))


def shuffled(runners: int = 1) -> float:
    """Return the seconds of an example."""
    return LOOP.run(_shuffled(runners))


async def _shuffled(runners: int) -> float:
    with g.Graph().as_default() as graph:
        v = g.Variable(0, trainable=False)
        i = g.floormod(g.assign_add(v, 1), EXAMPLES)
        queue = g.RandomShuffleQueue(2000, WAITING, [g.uint8, g.int32], [[784], []])
        put = queue.enqueue([g.gather(g.constant(IMAGES), i), i % 10])
        runner = am.QueueRunner(queue, [put] * runners)
        batch = queue.dequeue_many(BATCH)
    async with g.Session(graph=graph) as sess:
        await sess.run(v.initializer)
        coord = am.Coordinator()
        tasks = runner.create_tasks(sess, coord, start=True)
        for count in (50, BATCHES):
            start = time.perf_counter()
            for _ in range(count):
                await sess.run(batch)
            took = (time.perf_counter() - start) / count / BATCH
        coord.request_stop()
        await coord.join(tasks)
    return took


def shuffle_batch() -> list[Row]:
    contestants = {
        "ours": shuffled,
        "four runners": lambda: shuffled(4),
        **with_tf1("example"),
    }
    found = take_turns(contestants, rounds=7)
    met = found["ours"] <= found["TF1"] / 2 if "TF1" in found else None
    share = {"TF1": found["ours"] / found["TF1"]} if "TF1" in found else {}
    return [Row("shuffle_batch, an example", us(found), "0.5x TF1", met, share)]


async def wake() -> list[Row]:
    """The time from the arrival of an element to the return of the step that waited for it."""
    with g.Graph().as_default() as graph:
        x = g.placeholder(g.float64, [])
        queue = g.FIFOQueue(4, [g.float64], shapes=[[]])
        put, step = queue.enqueue(x), queue.dequeue() + 0.0
    late = []
    async with g.Session(graph=graph) as sess:
        for _ in range(200):
            waiting = asyncio.create_task(sess.run(step))
            await asyncio.sleep(0.002)
            await sess.run(put, {x: time.perf_counter()})
            sent = await waiting
            late.append(time.perf_counter() - float(sent))
    median, p99 = statistics.median(late) * 1e3, statistics.quantiles(late, n=100)[98] * 1e3
    said = f"median {median:.3f} ms, p99 {p99:.3f} ms"
    return [Row("a step that waits for a queue wakes after", said, "1 ms or less", median <= 1)]


if __name__ == "__main__":
    with LOOP:
        rows = {"round-trip": round_trip, "shuffle_batch": shuffle_batch, "wake": wake}
        sys.exit(command("queues", rows))
