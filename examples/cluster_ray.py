"""Learn the digits with two workers of Ray Train. One that is killed is started again. Extra `ray`."""

import argparse
import asyncio
import hashlib
import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.train.torch
import torch
from torch.nn.functional import cross_entropy

import asyncmon as am
from asyncmon.programs.torch import TorchProgram


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the images, [1797, 64] from 0 to 1, and the labels, in a fixed random order."""
    with np.load(Path(__file__).parent / "data" / "digits.npz") as file:
        order = np.random.default_rng(0).permutation(len(file["labels"]))
        images = file["images"][order].reshape(-1, 64).astype(np.float32) / 16
        return images, file["labels"][order].astype(np.int64)


def train(config: dict[str, Any]) -> None:
    """Train as one of the workers. Ray Train calls it again in all of them if one dies."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(learn(**config))


async def learn(images: np.ndarray, labels: np.ndarray, steps: int, logdir: Path, kill_at: int) -> None:
    worker = ray.train.get_context()
    rank, size = worker.get_world_rank(), worker.get_world_size()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = ray.train.torch.prepare_model(model)  # in DDP, on the worker's device
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    program = TorchProgram({"model": model, "optimizer": optimizer})
    device = ray.train.torch.get_device()

    @program.training_step
    def step(state: Any, batch: np.ndarray) -> dict[str, torch.Tensor]:
        pixels, classes = (torch.from_numpy(part[batch]).to(device) for part in (images, labels))
        return {"loss": cross_entropy(state["model"](pixels), classes)}

    fifth = len(labels) // 5  # is held out
    hooks = [am.StopAtStepHook(last_step=steps), am.NanTensorHook("loss")]
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=logdir, hooks=hooks, save_checkpoint_steps=20
    ) as sess:
        begun = sess.global_step
        while not sess.should_stop():
            if rank == 1 and sess.global_step == kill_at and not (logdir / "killed").exists():
                (logdir / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            rows = np.random.default_rng(sess.global_step).integers(fifth, len(labels), 64)
            await sess.run("step", {"batch": rows[rank::size]})  # each worker takes its part

    if rank == 0:
        with torch.no_grad():
            found = model.module(torch.tensor(images[:fifth], device=device)).argmax(1).cpu().numpy()
        weights = b"".join(one.detach().cpu().numpy().tobytes() for one in model.parameters())
        result = {
            "begun": begun, "step": sess.global_step, "accuracy": (found == labels[:fifth]).mean(),
            "weights": hashlib.sha256(weights).hexdigest()[:16],
        }  # fmt: skip
        (logdir / "result.json").write_text(json.dumps(result))


def main(steps: int, logdir: Path, kill_at: int) -> None:
    images, labels = digits()
    config = {"images": images, "labels": labels, "steps": steps, "logdir": logdir, "kill_at": kill_at}
    failures = ray.train.FailureConfig(max_failures=2)
    ray.train.torch.TorchTrainer(
        train,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(storage_path=str(logdir / "ray"), failure_config=failures),
    ).fit()
    found = json.loads((logdir / "result.json").read_text())
    print(f"began at step {found['begun']}, ended at step {found['step']}, accuracy "
          f"{100 * found['accuracy']:.2f} %, weights {found['weights']}")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--dir", type=Path, default=Path("runs/cluster"), help="seen by all machines")
    parser.add_argument("--kill-at", type=int, default=-1, help="kill a worker once, at this step")
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    ray.init()  # a cluster of this machine; the one of RAY_ADDRESS if that is set
    main(options.steps, options.dir.absolute(), options.kill_at)
