"""Train many small models at once in one event loop, each in a session, to compare learning rates."""

import argparse
import asyncio
import logging
import time
from pathlib import Path

import numpy as np

import asyncmon as am
from asyncmon import graph as g


class Trial:
    """A softmax regression of the digits with one learning rate, in a session of its own."""

    def __init__(self, rate: float, images: np.ndarray, labels: np.ndarray) -> None:
        self.rate, self.steps, self.accuracy = rate, 0, 0.0
        self.images, self.labels = images, labels
        self.graph = g.Graph()
        with self.graph.as_default():
            self.x = g.placeholder(g.float32, [None, 64])
            self.y = g.placeholder(g.int64, [None])
            weights = g.get_variable("weights", [64, 10], initializer=g.zeros_initializer())
            logits = g.matmul(self.x, weights)
            right = g.equal(g.argmax(logits, 1), self.y)
            self.right = g.reduce_mean(g.cast(right, g.float32))
            losses = g.nn.sparse_softmax_cross_entropy_with_logits(labels=self.y, logits=logits)
            step = am.get_or_create_global_step()
            optimizer = g.train.GradientDescentOptimizer(rate)
            self.train_op = optimizer.minimize(g.reduce_mean(losses), global_step=step)

    async def run(self, stop: asyncio.Event) -> None:
        """Train until all are to stop. Steps of this size are computed in the loop's thread, which the
        sessions share: each has its turns, and timers and other tasks come in between."""
        random = np.random.default_rng(0)
        async with am.MonitoredSession(
            am.ChiefSessionCreator(program=self.graph), signals=None
        ) as sess:
            while not sess.should_stop() and not stop.is_set():
                rows = random.integers(len(self.labels) - 300, size=32)
                await sess.run(self.train_op, {self.x: self.images[rows], self.y: self.labels[rows]})
            held_out = {self.x: self.images[-300:], self.y: self.labels[-300:]}
            self.accuracy = float(await sess.peek(self.right, held_out))
            self.steps = sess.global_step or 0


async def main(count: int, secs: float) -> None:
    with np.load(Path(__file__).parent / "data" / "digits.npz") as digits:
        images = (digits["images"].reshape(-1, 64) / 16).astype(np.float32)
        labels = digits["labels"].astype(np.int64)
    trials = [Trial(rate, images, labels) for rate in np.geomspace(0.001, 10, count)]
    stop, late = asyncio.Event(), []
    async with asyncio.TaskGroup() as group:
        for trial in trials:
            group.create_task(trial.run(stop))
        end = time.perf_counter() + secs
        while (before := time.perf_counter()) < end:
            await asyncio.sleep(0.01)  # what else the loop does: it is held up only so long
            late.append(time.perf_counter() - before - 0.01)
        stop.set()
    steps = [trial.steps for trial in trials]
    best = max(trials, key=lambda trial: trial.accuracy)
    print(f"{count} sessions: {sum(steps)} steps, {min(steps)} to {max(steps)} each")
    print(f"median delay of a timer {1000 * sorted(late)[len(late) // 2]:.1f} ms")
    print(f"best: learning rate {best.rate:.3g}, {100 * best.accuracy:.1f} % right")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--secs", type=float, default=5)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(options.count, options.secs))
