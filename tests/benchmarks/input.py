"""Input and queues: ``python tests/benchmarks/input.py``, with ASYNCMON_PEER_PYTHON for TF1's column.

Items a second through a pipeline, a queue's round trip, how soon a waiting step wakes, and whether
memory stays flat while a million items pass a slow consumer.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from harness import Row, command, peer
from memory_probe import resident

from asyncmon import data
from asyncmon import graph as tf

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

ITEMS = 1_000_000
ROUNDS = 3

TF1 = """
import json, time
import tensorflow as tf
t1 = tf.compat.v1
t1.disable_eager_execution()
queue = t1.FIFOQueue(4, [tf.int32], shapes=[[]])
put, take = queue.enqueue(7), queue.dequeue()
def numbers():
    yield from range(200_000)
batches = tf.data.Dataset.from_generator(numbers, tf.int64).prefetch(1024).batch(64)
batch = t1.data.make_one_shot_iterator(batches).get_next()
with t1.Session() as sess:
    for n in (500, 3000):
        start = time.perf_counter()
        for _ in range(n):
            sess.run(put)
            sess.run(take)
        trip = (time.perf_counter() - start) / n
    start = time.perf_counter()
    try:
        while True:
            sess.run(batch)
    except tf.errors.OutOfRangeError:
        pass
    rate = 200_000 / (time.perf_counter() - start)
print(json.dumps({"trip": trip, "rate": rate}))
"""


def numbers() -> Iterator[int]:
    yield from range(ITEMS)


async def async_numbers() -> AsyncIterator[int]:
    for number in range(ITEMS):
        yield number


async def async_numbers_that_wait() -> AsyncIterator[int]:
    for number in range(ITEMS // 5):
        await asyncio.sleep(0)
        yield number


async def rate(pipeline: data.Dataset) -> float:
    """Return items a second; the best of some rounds, for others use the machine, too."""
    rates = []
    for _ in range(ROUNDS):
        count, start = 0, time.perf_counter()
        async for batch in pipeline:
            count += len(batch["x"] if isinstance(batch, dict) else batch)
        rates.append(count / (time.perf_counter() - start))
    return max(rates)


async def throughput() -> list[Row]:
    rows_of = data.from_arrays({"x": np.zeros((ITEMS, 8), np.float32), "y": np.arange(ITEMS)})
    of_range = data.from_iterable(range(ITEMS))
    cases = {
        "generator, in a thread": (data.from_iterable(numbers).prefetch(1024).batch(64), 500_000),
        "generator, batched first": (data.from_iterable(numbers).batch(64).prefetch(16), 500_000),
        "range": (of_range.prefetch(1024).batch(64), 500_000),
        "range, shuffled": (of_range.shuffle(10_000, 1).batch(64).prefetch(4), None),
        "arrays, all shuffled": (rows_of.shuffle(ITEMS, 1).batch(64).prefetch(4), None),
        "async generator": (data.from_iterable(async_numbers).prefetch(1024).batch(64), 100_000),
        "the same, a wait for each item": (
            data.from_iterable(async_numbers_that_wait).prefetch(1024).batch(64), 100_000,
        ),
    }  # fmt: skip
    rows = []
    for name, (pipeline, target) in cases.items():
        found = await rate(pipeline)
        wanted = "" if target is None else f"{target:,} or more"
        rows.append(Row(name, f"{found:,.0f} items/s", wanted, target is None or found >= target))
    return rows


async def round_trip() -> float:
    """Return seconds for an enqueue and a dequeue, each a run of its own."""
    with tf.Graph().as_default() as graph:
        queue = tf.FIFOQueue(4, [tf.int32], shapes=[[]])
        put, take = queue.enqueue(7), queue.dequeue()
    times = []
    async with tf.Session(graph=graph) as sess:
        for _ in range(12):
            start = time.perf_counter()
            for _ in range(1000):
                await sess.run(put)
                await sess.run(take)
            times.append((time.perf_counter() - start) / 1000)
    return statistics.median(times[2:])


async def wake_of_a_step() -> list[float]:
    """Return seconds from the arrival of an element to the return of the step that waited for it."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float64, [])
        queue = tf.FIFOQueue(4, [tf.float64], shapes=[[]])
        put, step = queue.enqueue(x), queue.dequeue() + 0.0
    late = []
    async with tf.Session(graph=graph) as sess:
        for _ in range(200):
            waiting = asyncio.create_task(sess.run(step))
            await asyncio.sleep(0.002)
            await sess.run(put, {x: time.perf_counter()})
            sent = await waiting
            late.append(time.perf_counter() - float(sent))
    return late


async def wake_of_a_reader(in_thread: bool) -> list[float]:
    """The same for a pipeline whose source waits, on the loop or in a thread."""

    async def paced() -> AsyncIterator[float]:
        for _ in range(200):
            await asyncio.sleep(0.002)
            yield time.perf_counter()

    def paced_in_thread() -> Iterator[float]:
        pause = threading.Event()
        for _ in range(200):
            pause.wait(0.002)
            yield time.perf_counter()

    source: Any = paced_in_thread if in_thread else paced
    return [time.perf_counter() - sent async for sent in data.from_iterable(source).prefetch(8)]


async def growth() -> float:
    """Return how much more memory is held after a million items than after the first hundredth."""
    pipeline = data.from_iterable(numbers).shuffle(1000, seed=1).prefetch(1024).batch(64).prefetch(8)
    held, seen = 0, 0
    async for batch in pipeline:
        seen += len(batch)
        if seen % 1024 == 0:
            await asyncio.sleep(0.0005)  # slower than the source
        if not held and seen >= ITEMS // 100:
            held = resident("VmRSS")
    return (resident("VmRSS") - held) / 2**20


def latency(name: str, late: list[float]) -> Row:
    late = sorted(late)
    median, p99 = late[len(late) // 2] * 1e3, late[int(len(late) * 0.99)] * 1e3
    return Row(name, f"median {median:.3f} ms, p99 {p99:.3f} ms", "1 ms or less", median <= 1)


async def measured() -> list[Row]:
    theirs = peer(TF1) or {}
    trip = await round_trip() * 1e6
    said, met, ratios = f"{trip:.1f} µs", None, {}
    if theirs:
        tf1 = theirs["trip"] * 1e6
        said, met, ratios = f"{said}, TF1 {tf1:.1f} µs", trip * 15 <= tf1, {"TF1": trip / tf1}
    rows = [Row("queue: enqueue op + dequeue op", said, "TF1 / 15", met, ratios), *await throughput()]
    if theirs:
        rows.append(Row("tf.data.from_generator", f"{theirs['rate']:,.0f} items/s", "to compare"))
    rows.append(latency("a step that waits for a queue wakes after", await wake_of_a_step()))
    rows.append(latency("a reader of an async source", await wake_of_a_reader(False)))
    rows.append(latency("a reader of a source in a thread", await wake_of_a_reader(True)))
    grown = await growth()
    rows.append(
        Row("memory over 1 M items, slow consumer", f"{grown:+.1f} MB", "flat: 2 MB", grown <= 2)
    )
    return rows


if __name__ == "__main__":
    sys.exit(command("input and queues", {"input": measured}))
