"""What summaries cost: scalars to the disk, calls on the step path, histograms, a disk that hangs.

Run by name: ``python tests/benchmarks/summaries.py``. tensorboardX, if it is installed, takes turns
with us over the same 10,000 scalars.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import shutil
import statistics
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from harness import Row, command, take_turns

import asyncmon as am
from asyncmon import graph as tf
from asyncmon.graph.numerics.blas import single_threaded_blas
from asyncmon.summary import FileWriter
from asyncmon.summary.histogram import encode_histogram
from asyncmon.system.files import FileCalls

if TYPE_CHECKING:
    from collections.abc import Iterator

SCALARS = 10_000
HAS_TENSORBOARDX = importlib.util.find_spec("tensorboardX") is not None


@contextmanager
def directory() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="asyncmon-benchmark-")
    try:
        yield path
    finally:
        shutil.rmtree(path)


def ours() -> float:
    """Return seconds until 10,000 scalars were added and are on the disk (with fsync)."""

    async def write(path: str) -> float:
        async with FileWriter(path) as writer:
            start = time.perf_counter()
            for step in range(SCALARS):
                writer.add_scalar("train/loss", 0.5, step)
            await writer.flush()
            return time.perf_counter() - start

    with directory() as path:
        return asyncio.run(write(path))


def tensorboardx() -> float:
    """Return seconds tensorboardX takes for the same; it does not fsync."""
    from tensorboardX import SummaryWriter

    with directory() as path:
        writer = SummaryWriter(path)
        start = time.perf_counter()
        for step in range(SCALARS):
            writer.add_scalar("train/loss", 0.5, step)
        writer.close()
        return time.perf_counter() - start


def scalars() -> list[Row]:
    contestants = {"ours": ours} | ({"tensorboardX": tensorboardx} if HAS_TENSORBOARDX else {})
    found = take_turns(contestants, rounds=9)
    peer = found.get("tensorboardX")
    beside = f"tensorboardX {peer * 1e3:.0f} ms" if peer else "no tensorboardX"
    return [
        Row(
            "10,000 scalars added and on the disk",
            f"{found['ours'] * 1e3:.1f} ms, {beside}",
            "<= 100 ms",
            found["ours"] <= 0.1,
        )
    ]


async def one_add() -> list[Row]:
    """The call as a training loop makes it: a few a step, the loop going round between."""
    found = []
    with directory() as path:
        async with FileWriter(path) as writer:
            for step in range(2000):
                start = time.perf_counter()
                for tag in ("loss", "accuracy", "rate", "norm", "lr"):
                    writer.add_scalar(tag, 0.5, step)
                found.append((time.perf_counter() - start) / 5)
                await asyncio.sleep(0)
    median, worst = statistics.median(found), statistics.quantiles(found, n=100)[98]
    return [
        Row(
            "add_scalar on the step path",
            f"{median * 1e6:.2f} us, 99th percentile {worst * 1e6:.1f} us",
            "<= 3 us",
            median <= 3e-6,
        )
    ]


async def histograms() -> list[Row]:
    """A million elements: how long it takes, where, and how long the loop is held."""
    rows = []
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        values = rng.normal(size=1_000_000).astype(dtype)
        times = []
        for _ in range(9):
            start = time.perf_counter()
            encode_histogram(values)
            times.append(time.perf_counter() - start)
        took = statistics.median(times)
        rows.append(
            Row(f"histogram of 1 M {np.dtype(dtype)}", f"{took * 1e3:.1f} ms", "<= 10 ms", took <= 0.01)
        )
    adds, lags = [], []
    with directory() as path:
        async with FileWriter(path) as writer:
            for step in range(9):
                start = time.perf_counter()
                writer.add_histogram("weights", values, step)
                adds.append(time.perf_counter() - start)
                lags.append(await _longest_hold(writer))
    held = statistics.median(adds)
    rows.append(
        Row(
            "the same on the loop's thread",
            f"{held * 1e3:.2f} ms (a copy of 8 MB); the loop was late by "
            f"{statistics.median(lags) * 1e3:.1f} ms meanwhile",
            "< 1 ms",
            held < 0.001,
        )
    )
    return rows


async def _longest_hold(writer: FileWriter) -> float:
    """Flush; return the longest time meanwhile in which the loop did not go round."""
    flushing = asyncio.create_task(writer.flush())
    longest, before = 0.0, time.perf_counter()
    while not flushing.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return longest


class HungDisk(FileCalls):
    """Does not answer until it is released."""

    def __init__(self) -> None:
        self.reached, self.released = threading.Event(), threading.Event()

    def write(self, descriptor: int, data: Any) -> int:
        self.reached.set()
        self.released.wait()
        return super().write(descriptor, data)


async def hung_disk() -> list[Row]:
    """Adds for five seconds while the writer's thread hangs in a write."""
    rows = []
    for policy in ("drop_oldest", "coalesce"):
        disk = HungDisk()
        with directory() as path:
            writer = FileWriter(path, max_queue=100, policy=policy, calls=disk)  # type: ignore[arg-type]
            writer.add_scalar("loss", 0.5, 0)
            flushing = asyncio.create_task(writer.flush())
            await asyncio.to_thread(disk.reached.wait)
            longest, step, end = 0.0, 0, time.perf_counter() + 5
            gc.disable()
            while (start := time.perf_counter()) < end:
                step += 1
                writer.add_scalar("loss", 0.5, step)
                longest = max(longest, time.perf_counter() - start)
                await asyncio.sleep(0.001)
            gc.enable()
            disk.released.set()
            await flushing
            await writer.close()
        rows.append(
            Row(
                f"disk hung for 5 s, {policy}",
                f"the slowest of {step} adds took {longest * 1e6:.0f} us, {writer.dropped} dropped",
                "adds go on",
                longest < 0.01 and step > 1000,
            )
        )
    return rows


async def training(turns: int) -> tuple[float, dict[int, float]]:
    """Train a classifier of MNIST's size, a hundred steps with each hook and without, in turns.

    One session, so that all have their arrays at the same places in memory, which makes some percent.
    Of a flush, which a writer does every two seconds, as much counts as is the share of a step in them.

    Returns:
        A step's processor time in seconds, in all threads, and what each period adds to it.
    """
    rng = np.random.default_rng(0)
    with tf.Graph().as_default(), directory() as logdir:
        images = tf.placeholder(tf.float32, [None, 784])
        labels = tf.placeholder(tf.int64, [None])
        hidden = tf.nn.relu(tf.matmul(images, tf.get_variable("hidden", [784, 128])))
        logits = tf.matmul(hidden, tf.get_variable("logits", [128, 10]))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(losses)
        step = am.get_or_create_global_step()
        fetches = [tf.train.AdamOptimizer(0.001).minimize(loss, global_step=step), loss]
        am.summary.scalar("loss", loss)
        summary_op = am.summary.merge_all()
        feeds = {
            images: rng.normal(size=(100, 784)).astype(np.float32),
            labels: rng.integers(0, 10, 100),
        }
        writer = am.summary.FileWriter(logdir)

        async def hundred_steps(session: am.MonitoredSession) -> float:
            for _ in range(50):  # the first summary of a hook prepares it, which sessions do once
                await session.run(fetches, feeds)
            start = time.process_time()
            for _ in range(100):
                await session.run(fetches, feeds)
            return (time.process_time() - start) / 100

        bare, flushes, added = [], [], {every: [] for every in PERIODS}
        session = am.MonitoredTrainingSession(
            log_step_count_steps=None, save_summaries_steps=None, save_summaries_secs=None
        )
        async with session:
            for turn in range(turns):
                seconds = {}
                for every in (None, *PERIODS) if turn % 2 else (*reversed(PERIODS), None):
                    if every is None:
                        seconds[every] = await hundred_steps(session)
                        continue
                    hook = am.SummarySaverHook(every, summary_writer=writer, summary_op=summary_op)
                    attached = await session.attach(hook)
                    seconds[every] = await hundred_steps(session)
                    await attached.detach()
                if turn % 10 == 9:
                    start = time.process_time()
                    await writer.flush()
                    flushes.append(time.process_time() - start)
                if turn >= 5:
                    bare.append(seconds[None])
                    for every, longer in added.items():
                        longer.append(seconds[every] - seconds[None])
        await writer.close()
    step = statistics.median(bare)
    flushing = statistics.median(flushes) * step / 2.0
    return step, {every: statistics.median(each) + flushing for every, each in added.items()}


PERIODS = (100, 1)


async def hooked() -> list[Row]:
    """What a summary each 100 steps adds to the mean step, and what one at each step would.

    Processor time is what is compared, the writer's thread included: whatever else the machine does
    counts less.
    """
    with single_threaded_blas():
        found = [await training(60) for _ in range(3)]
    step = statistics.median(step for step, _ in found)
    seldom, often = (statistics.median(added[every] for _, added in found) for every in PERIODS)
    return [
        Row(
            "a summary every 100 steps",
            f"{seldom / step:+.1%} of a {step * 1e6:.0f} us step, at every step {often / step:+.1%}",
            "< 1 %",
            seldom / step < 0.01,
        )
    ]


ROWS = {
    "scalars": scalars,
    "add_scalar": one_add,
    "histograms": histograms,
    "hung_disk": hung_disk,
    "hooked": hooked,
}


if __name__ == "__main__":
    sys.exit(command("summaries", ROWS))
