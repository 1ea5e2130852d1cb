"""Learn the digits with two workers of Ray Train. One that is killed is started again. Extra `ray`."""

import argparse
import asyncio
import hashlib
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
from asyncmon.programs.ray_train import RayTrainHook
from asyncmon.programs.torch import TorchProgram


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the images, [1797, 64] from 0 to 1, and the labels, in a fixed random order."""
    with np.load(Path(__file__).parent / "data" / "digits.npz") as file:
        order = np.random.default_rng(0).permutation(len(file["labels"]))
        return file["images"][order].reshape(-1, 64).astype(np.float32) / 16, file["labels"][order]


def train(config: dict[str, Any]) -> dict[str, Any]:
    """Train as one of the workers. Ray Train calls it again in all of them if one dies."""
    hook = RayTrainHook({"loss": "loss"}, report_steps=50)
    result = asyncio.run(learn(hook, **config))
    hook.raise_if_preempted()
    return result


async def learn(hook: Any, images: Any, labels: Any, run: str, steps: int, kill_at: int) -> Any:
    worker = ray.train.get_context()
    rank, size = worker.get_world_rank(), worker.get_world_size()
    torch.manual_seed(1)
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 10)
    model = ray.train.torch.prepare_model(torch.nn.Sequential(*layers))  # DDP on the worker's device
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    program = TorchProgram({"model": model, "optimizer": optimizer})
    device = ray.train.torch.get_device()

    @program.training_step
    def step(state: Any, batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
        x, y = (torch.from_numpy(batch[name]).to(device) for name in "xy")
        return {"loss": cross_entropy(state["model"](x), y.long())}

    fifth = len(labels) // 5  # is held out
    rows = am.data.from_arrays({"x": images[fifth:], "y": labels[fifth:]}).shuffle(2000, seed=1)
    data = rows.repeat().shard(size, rank).batch(64 // size)  # the same elements for any size
    hooks = [am.StopAtStepHook(last_step=steps), am.NanTensorHook("loss"), hook]
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=run, hooks=hooks, save_checkpoint_steps=20
    ) as sess:
        begun = sess.global_step
        async for batch in sess.iterate(data):
            if rank == 1 and sess.global_step == kill_at and begun == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            await sess.run("step", {"batch": batch})

    with torch.no_grad():
        model.eval()
        found = model(torch.tensor(images[:fifth], device=device)).argmax(1).cpu().numpy()
    weights = b"".join(one.detach().cpu().numpy().tobytes() for one in model.parameters())
    accuracy, digest = (found == labels[:fifth]).mean(), hashlib.sha256(weights).hexdigest()[:16]
    return {"begun": begun, "step": sess.global_step, "accuracy": accuracy, "weights": digest}


def main(run: str, storage: str, steps: int, kill_at: int) -> None:
    images, labels = digits()
    config = {"images": images, "labels": labels, "run": run, "steps": steps, "kill_at": kill_at}
    failures = ray.train.FailureConfig(max_failures=2)
    result = ray.train.torch.TorchTrainer(
        train,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(storage_path=storage, failure_config=failures),
    ).fit()
    found: Any = result.return_value  # that of worker 0
    print(f"began at step {found['begun']}, ended at step {found['step']}, accuracy "
          f"{100 * found['accuracy']:.2f} %, weights {found['weights']}")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--dir", default="runs/cluster", help="a directory of all machines, or s3://..."
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--kill-at", type=int, default=-1, help="kill a worker once, at this step")
    options = parser.parse_args()
    place = options.dir if "://" in options.dir else str(Path(options.dir).absolute())
    ray.init()  # a cluster of this machine; the one of RAY_ADDRESS if that is set
    main(f"{place}/run", f"{place}/ray", options.steps, options.kill_at)
