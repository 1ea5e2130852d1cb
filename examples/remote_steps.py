"""Train on a remote service, several steps in flight. Kill it, run it again: it resumes exactly.

The service here is a fake in this process: it keeps a model, trains in the order of the calls, and
answers after a delay. Each call saves the model, and its answer has the name: so a checkpoint names the
model of its step, although the service has done more calls by then.
"""

import argparse
import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np

import asyncmon as am
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import Item


class Service:
    """A line that is fitted far away: each answer takes ``latency`` seconds."""

    def __init__(self, directory: Path, latency: float) -> None:
        self.directory, self.latency = directory, latency
        self.weights = np.zeros(8)

    async def restore(self, name: str) -> None:
        if name:
            self.weights = await asyncio.to_thread(np.load, self.directory / name)

    async def train(self, call: tuple[int, Any]) -> dict[str, Any]:
        number, x = call
        error = x @ (self.weights - np.arange(8.0))
        self.weights = self.weights - 0.05 * error @ x / len(x)
        name, weights = f"model-{number + 1}.npy", self.weights
        await asyncio.to_thread(np.save, self.directory / name, weights)
        (self.directory / f"model-{number - 99}.npy").unlink(missing_ok=True)
        await asyncio.sleep(self.latency)  # to the service and back
        return {"loss": float(np.square(error).mean()), "saved": name}


def make_program() -> FunctionProgram:
    program = FunctionProgram({"model": "", "loss_sum": 0.0})

    @program.step
    async def train(state: dict[str, Any], reply: Item) -> dict[str, Any]:
        answer = await reply.result()
        state["model"] = answer["saved"]
        state["loss_sum"] += answer["loss"]
        return {"loss": answer["loss"]}

    return program


def batch(number: int) -> tuple[int, np.ndarray]:
    return number, np.random.default_rng(number).normal(size=(16, 8))


async def train(steps: int, in_flight: int, latency: float, logdir: Path) -> None:
    service = Service(logdir, latency)
    batches = am.data.from_iterable(range(steps)).map(batch)
    hooks = [
        am.LoggingTensorHook({"loss": "loss"}, every_n_iter=50),
        am.SummarySaverHook(10, output_dir=logdir, summary_op={"loss": "loss"}),
    ]
    async with am.MonitoredTrainingSession(
        checkpoint_dir=logdir, hooks=hooks, program=make_program(), save_checkpoint_steps=25
    ) as sess:
        first, began = sess.global_step, time.perf_counter()
        await service.restore(str(await sess.peek("model")))
        logging.info(f"resumed from step {first}" if first else "starting at step 0")
        replies = sess.produce(
            batches, service.train, workers=in_flight, depth=in_flight, ordered=True, on_error="item"
        )
        async for reply in replies:
            await sess.run("train", {"reply": reply})
        rate = (sess.global_step - first) / (time.perf_counter() - began)
        step, total = sess.global_step, await sess.peek("loss_sum")
    weights = float(service.weights.sum())
    print(f"step {step}: sum of losses {total!r}, weights {weights!r}, {rate:.0f} steps/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--dir", type=Path, default=Path("runs/remote"))
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options.dir.mkdir(parents=True, exist_ok=True)
    asyncio.run(train(options.steps, options.in_flight, options.latency, options.dir))
