"""Train an MLP on 1,797 real handwritten digits. Stop it, kill it, run it again: it resumes."""

import argparse
import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import asyncmon as am
from asyncmon import graph as g


class Validate(am.SessionRunHook):
    """Measure the accuracy on the held-out digits at an interval of steps, and at the end."""

    def __init__(self, accuracy: g.Tensor, feeds: dict[Any, Any], logdir: Path, every: int) -> None:
        self.accuracy, self.feeds, self.logdir, self.every = accuracy, feeds, logdir, every
        self.latest, self.latest_step = 0.0, -1

    async def begin(self) -> None:
        self.writer = am.summary.FileWriter(self.logdir)

    async def after_run(self, run_context: Any, run_values: am.SessionRunValues) -> None:
        if run_values.step % self.every == 0:
            await self.measure(run_context.session, run_values.step)

    async def end(self, session: Any) -> None:
        if session.global_step != self.latest_step:
            await self.measure(session, session.global_step)

    async def measure(self, session: Any, step: int) -> None:
        self.latest, self.latest_step = float(await session.run(self.accuracy, self.feeds)), step
        self.writer.add_scalar("accuracy", self.latest, step)
        logging.info("step %d: validation accuracy %.2f %%", step, 100 * self.latest)

    async def cleanup(self, error: BaseException | None) -> None:
        await self.writer.close()


def draw_curves(logdir: Path) -> Path:
    """Draw loss and accuracy of all runs in a directory, read back from their event files."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    axes = dict(zip(["loss", "accuracy"], figure.subplots(1, 2), strict=True))
    for path in sorted(logdir.glob("events.out.tfevents.*")):
        events = [event for event in am.summary.summary_iterator(path) if event.summary]
        for tag, axis in axes.items():
            points = [(e.step, v.simple_value) for e in events for v in e.summary.value if v.tag == tag]
            axis.plot(*zip(*points, strict=True))
            axis.set(title=tag, xlabel="global step")
    axes["loss"].set_yscale("log")
    figure.savefig(logdir / "curves.png", dpi=120)
    return logdir / "curves.png"


async def train(steps: int, logdir: Path) -> None:
    with np.load(Path(__file__).parent / "data" / "digits.npz") as digits:
        order = np.random.default_rng(0).permutation(len(digits["labels"]))
        images = digits["images"].reshape(-1, 64)[order].astype(np.float32) / 16
        labels = digits["labels"][order].astype(np.int64)
    fifth = len(labels) // 5
    source = am.data.from_arrays((images[fifth:], labels[fifth:]))
    batches = source.shuffle(2000, seed=1).repeat().batch(64)

    g.set_random_seed(1)
    x = g.placeholder(g.float32, [None, 64], name="x")
    y = g.placeholder(g.int64, [None], name="y")
    logits = g.layers.dense(g.layers.dense(x, 64, activation=g.nn.relu), 10)
    loss = g.reduce_mean(g.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    accuracy = g.reduce_mean(g.cast(g.equal(g.argmax(logits, 1), y), g.float32))
    train_op = g.train.AdamOptimizer(2e-3).minimize(loss, am.get_or_create_global_step())
    am.summary.scalar("loss", loss)

    validate = Validate(accuracy, {x: images[:fifth], y: labels[:fifth]}, logdir, every=200)
    hooks = [am.StopAtStepHook(last_step=steps), am.LoggingTensorHook({"loss": loss}, 200), validate]
    async with am.MonitoredTrainingSession(
        checkpoint_dir=str(logdir), hooks=hooks, save_checkpoint_steps=200, save_summaries_steps=20
    ) as sess:
        first, began = sess.global_step, time.perf_counter()
        logging.info(f"resumed from step {first}" if first else "starting at step 0")
        async for pixels, digits in sess.iterate(batches):
            await sess.run(train_op, {x: pixels, y: digits})
        rate = (sess.global_step - first) / (time.perf_counter() - began)

    files = f"checkpoint {await am.latest_checkpoint(str(logdir))}, events {validate.writer.path}"
    curves = await asyncio.to_thread(draw_curves, logdir)
    print(f"accuracy {100 * validate.latest:.2f} %, {rate:.0f} steps/s, {files}, curves {curves}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--dir", type=Path, default=Path("runs/digits"))
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(train(options.steps, options.dir))
