"""Learn the digits on Ray while processes are killed, or workers come and go. Extra `cluster`."""

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
        images, labels = digits["images"].reshape(-1, 64)[order] / 16, digits["labels"][order]
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
    hooks, draw = [am.StopAtStepHook(last_step=steps), final], np.random.default_rng(task.task_index)
    with (logdir / f"worker-{task.task_index}.jsonl").open("a", buffering=1) as log:
        role, config = (task.target, task.is_chief, str(logdir), None, hooks), task.config
        async with am.MonitoredTrainingSession(*role, save_checkpoint_steps=100, config=config) as sess:
            while not sess.should_stop():
                some = draw.integers(fifth, len(labels), 64)
                feeds = {x: images[some], y: labels[some]}
                value, now, _ = await sess.run([loss, step, train_op], feeds)
                print(json.dumps([time.time(), int(now), float(value)]), file=log)
    return float(final.final_ops_values)


async def kill(name: str, at_step: int, logdir: Path) -> float:
    """Kill the process of a task when training has come to a step, and return when."""
    while reached(logdir) < at_step:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    pid = int((logdir / f"{name}.log").read_text().splitlines()[-1].split()[2])
    os.kill(pid, signal.SIGKILL)
    return time.time()


def rows(path: Path) -> list[list[float]]:  # of times, steps and losses
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def reached(logdir: Path) -> int:
    return max([int(step) for _, step, _ in rows(logdir / "worker-0.jsonl")], default=0)


def draw_curves(logdir: Path, kills: dict[str, float]) -> None:
    axis = (figure := Figure(figsize=(9, 3.5))).subplots()
    for path in sorted(logdir.glob("worker-*.jsonl")):
        times, _steps, losses = zip(*rows(path), strict=True)
        axis.plot(times, losses, ".", label=path.stem)
    for name, when in kills.items():
        axis.axvline(when, color="k", label=f"{name} killed")
    axis.set(title="loss", xlabel="seconds", yscale="log")
    axis.legend()
    figure.savefig(logdir / "cluster.png", dpi=120)


async def main(steps: int, least: int, most: int, logdir: Path) -> None:
    middle = range(steps // 4, steps * 3 // 4)
    trouble = {"ps-0": steps // 2} | ({"worker-2": steps // 4} if least > 2 else {})
    kills = [asyncio.create_task(kill(name, step, logdir)) for name, step in trouble.items()]
    accuracy = await am.distributed.launch(
        partial(train, steps=steps, logdir=logdir), (least, most), ps=2, resources={"CPU": 0.5},
        wanted=lambda: most if reached(logdir) in middle else least, log_dir=logdir,
    )  # fmt: skip
    draw_curves(logdir, dict(zip(trouble, await asyncio.gather(*kills), strict=True)))
    print(f"accuracy {100 * accuracy:.2f} %, curves {logdir / 'cluster.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--workers", default="3", help="their number, or least and most: 1:4")
    options, logdir = parser.parse_args(), Path("runs/cluster").absolute()
    least, *more = map(int, options.workers.split(":"))
    ray.init(num_cpus=3, object_store_memory=100 << 20, include_dashboard=False)
    logdir.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(options.steps, least, max(more, default=least), logdir))
