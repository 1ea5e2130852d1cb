"""A task of a cluster that learns the digits: --cluster JSON --job worker --task 0."""

import argparse
import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import asyncmon as am
from asyncmon import graph as g

LAST_STEP = 1800


def report(**values: Any) -> None:
    print(json.dumps({"time": time.time(), **values}), flush=True)


class Report(am.SessionRunHook):
    """Report the loss to the parent, and each session after the first one."""

    def __init__(self, task: int, loss: g.Tensor) -> None:
        self.task, self.loss, self.sessions = task, loss, 0

    async def after_create_session(self, session: Any, coord: am.Coordinator) -> None:
        self.sessions += 1
        if self.sessions > 1:
            report(worker=self.task, recovered=session.global_step)

    async def before_run(self, run_context: am.SessionRunContext) -> am.SessionRunArgs:
        return am.SessionRunArgs(self.loss)

    async def after_run(self, run_context: Any, run_values: am.SessionRunValues) -> None:
        report(worker=self.task, step=run_values.step, loss=float(run_values.results))


def config() -> am.SessionConfig:
    made = am.SessionConfig()
    made.rpc_options.token = os.environ.get("ASYNCMON_TOKEN")  # without one, for this machine only
    return made


async def work(cluster: Any, task: int, directory: Path) -> None:
    with np.load(Path(__file__).parent / "data" / "digits.npz") as digits:
        order = np.random.default_rng(0).permutation(len(digits["labels"]))
        images = digits["images"].reshape(-1, 64)[order].astype(np.float32) / 16
        labels = digits["labels"][order].astype(np.int64)
    source = am.data.from_arrays((images[350:], labels[350:]))
    batches = source.shuffle(2000, seed=task).repeat().batch(64)
    async with am.Server(cluster, "worker", task, config=config()) as server:
        own = f"/job:worker/task:{task}"
        with g.device(am.replica_device_setter(cluster=cluster, worker_device=own)):
            x, y = g.placeholder(g.float32, [None, 64]), g.placeholder(g.int64, [None])
            logits = g.layers.dense(g.layers.dense(x, 64, activation=g.nn.relu), 10)
            loss = g.reduce_mean(g.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            accuracy = g.reduce_mean(g.cast(g.equal(g.argmax(logits, 1), y), g.float32))
            train = g.train.AdamOptimizer(2e-3).minimize(loss, am.get_or_create_global_step())
        last = am.FinalOpsHook(accuracy, {x: images[:350], y: labels[:350]})
        hooks = [am.StopAtStepHook(last_step=LAST_STEP), Report(task, loss), last]
        async with am.MonitoredTrainingSession(
            server.target, task == 0, str(directory), hooks=hooks, save_checkpoint_steps=100
        ) as sess:
            async for pixels, digits in sess.iterate(batches):
                await sess.run(train, {x: pixels, y: digits})
        report(worker=task, accuracy=float(last.final_ops_values))


async def serve(cluster: Any, task: int) -> None:
    async with am.Server(cluster, "ps", task, config=config()) as server:
        await server.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", type=json.loads, required=True, help='{"ps": […], "worker": […]}')
    parser.add_argument("--job", choices=["ps", "worker"], required=True)
    parser.add_argument("--task", type=int, required=True)
    parser.add_argument("--dir", type=Path, default=Path("runs/cluster"))
    options = parser.parse_args()
    if options.job == "ps":
        asyncio.run(serve(options.cluster, options.task))
    else:
        asyncio.run(work(options.cluster, options.task, options.dir))
