"""Learn the digits on Ray: two parameter servers, three workers, two are killed. Extra `cluster`."""

import argparse
import asyncio
import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import ray
from matplotlib.figure import Figure

import asyncmon as am
from asyncmon import graph as g

DIGITS = Path(__file__).parent.absolute() / "data" / "digits.npz"


async def train(task: am.distributed.ClusterTask, steps: int, logdir: Path) -> float:
    """Train as one of the workers, and return the accuracy on held-out digits."""
    with np.load(DIGITS) as digits:
        order = np.random.default_rng(0).permutation(len(digits["labels"]))
        images = digits["images"].reshape(-1, 64)[order].astype(np.float32) / 16
        labels = digits["labels"][order].astype(np.int64)
    fifth = len(labels) // 5

    g.set_random_seed(1)
    own = f"/job:worker/task:{task.task_index}"
    with g.device(am.replica_device_setter(worker_device=own, cluster=task.cluster)):
        x, y = g.placeholder(g.float32, [None, 64]), g.placeholder(g.int64, [None])
        logits = g.layers.dense(g.layers.dense(x, 64, activation=g.nn.relu), 10)
        loss = g.reduce_mean(g.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        accuracy = g.reduce_mean(g.cast(g.equal(g.argmax(logits, 1), y), g.float32))
        step = am.get_or_create_global_step()
        train_op = g.train.AdamOptimizer(2e-3).minimize(loss, step)

    final = am.FinalOpsHook(accuracy, {x: images[:fifth], y: labels[:fifth]})
    hooks = [am.StopAtStepHook(last_step=steps), final]
    draw = np.random.default_rng(task.task_index)
    with (logdir / f"worker-{task.task_index}.jsonl").open("a", buffering=1) as log:
        async with am.MonitoredTrainingSession(
            task.target, task.is_chief, str(logdir), None, hooks, save_checkpoint_steps=100,
            config=task.config,
        ) as sess:  # fmt: skip
            while not sess.should_stop():
                some = draw.integers(fifth, len(labels), 64)
                feeds = {x: images[some], y: labels[some]}
                value, now, _ = await sess.run([loss, step, train_op], feeds)
                print(json.dumps([time.time(), int(now), float(value)]), file=log)
    return float(final.final_ops_values)


async def kill(name: str, at_step: int, logdir: Path) -> float:
    """Kill the process of a task when training has come to a step, and return when."""
    while all(row[1] < at_step for row in rows(logdir / "worker-0.jsonl")):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    pid = int((logdir / f"{name}.log").read_text().splitlines()[-1].split()[2])
    os.kill(pid, signal.SIGKILL)
    return time.time()


def rows(path: Path) -> list[list[float]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def draw_curves(logdir: Path, kills: dict[str, float]) -> None:
    """Draw the losses of all workers over time, and when a process was killed."""
    axis = (figure := Figure(figsize=(9, 3.5))).subplots()
    for path in sorted(logdir.glob("worker-*.jsonl")):
        axis.plot(
            *zip(*[(when, loss) for when, _, loss in rows(path)], strict=True), ".", label=path.stem
        )
    for name, when in kills.items():
        axis.axvline(when, color="k", linestyle=":", label=f"{name} killed")
    axis.set(title="loss", xlabel="seconds", yscale="log")
    axis.legend()
    figure.savefig(logdir / "cluster.png", dpi=120)


async def main(steps: int, logdir: Path) -> None:
    trouble = {"worker-2": steps // 4, "ps-0": steps // 2}
    kills = [asyncio.create_task(kill(name, step, logdir)) for name, step in trouble.items()]
    work = partial(train, steps=steps, logdir=logdir)
    accuracy = await am.distributed.launch(work, 3, 2, resources={"CPU": 0.5}, log_dir=logdir)
    draw_curves(logdir, dict(zip(trouble, await asyncio.gather(*kills), strict=True)))
    print(f"accuracy {100 * accuracy:.2f} %, curves {logdir / 'cluster.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    options, logdir = parser.parse_args(), Path("runs/cluster").absolute()
    ray.init(num_cpus=3, object_store_memory=100 << 20, include_dashboard=False)
    logdir.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(options.steps, logdir))
