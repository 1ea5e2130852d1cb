"""Train a conv net of PyTorch on real handwritten digits. Kill it, run it again: it resumes."""

import argparse
import asyncio
import hashlib
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import asyncmon as am
from asyncmon.programs.torch import MixedPrecision, TorchProgram


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images, [1797, 1, 8, 8] from 0 to 1, and the labels, in a fixed random order."""
    with np.load(Path(__file__).parent / "data" / "digits.npz") as file:
        order = np.random.default_rng(0).permutation(len(file["labels"]))
        images = torch.from_numpy(file["images"][order].astype(np.float32) / 16)
        return images.reshape(-1, 1, 8, 8), torch.from_numpy(file["labels"][order].astype(np.int64))


def build(device: str) -> TorchProgram:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.25), nn.Linear(512, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    program = TorchProgram({"model": model, "optimizer": optimizer, "scheduler": scheduler})

    # The step autocasts to bfloat16, and updates once by the gradients of both halves of a batch.
    @program.training_step(
        scheduler="scheduler", precision=MixedPrecision("bfloat16"), accumulate=2, clip_norm=1.0
    )
    def train(state: Any, batch: Any) -> dict[str, torch.Tensor]:
        images, labels = (part.to(device) for part in batch)
        return {"loss": cross_entropy(state["model"](images), labels)}

    @program.step(read_only=True)
    def evaluate(state: Any, batch: Any) -> dict[str, torch.Tensor]:
        images, labels = (part.to(device) for part in batch)
        found = state["model"].eval()(images).argmax(1)
        state["model"].train()
        return {"accuracy": (found == labels).float().mean()}

    return program


async def main(steps: int, logdir: Path, device: str) -> None:
    images, labels = digits()
    fifth = len(labels) // 5
    batches = am.data.from_arrays((images[fifth:].numpy(), labels[fifth:].numpy()))
    batches = batches.shuffle(2000, seed=1).repeat().batch(64)
    program = build(device)
    held_out = {"batch": (images[:fifth], labels[:fifth])}
    validate = am.EvalHook("evaluate", [held_out], every_steps=100, at_end=True)
    hooks = [
        am.StopAtStepHook(last_step=steps),
        am.NanTensorHook("loss"),
        am.LoggingTensorHook({"loss": "loss"}, every_n_iter=100),
        am.SummarySaverHook(20, output_dir=logdir, summary_op={"loss": "loss", "norm": "grad_norm"}),
        validate,
    ]
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=logdir, hooks=hooks, save_checkpoint_steps=50
    ) as sess:
        logging.info("begins at step %d", sess.global_step)
        async for pixels, classes in sess.iterate(batches):
            batch = (torch.from_numpy(pixels), torch.from_numpy(classes))
            await sess.run("train", {"batch": batch})

    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in program.state["model"].parameters())
    digest = hashlib.sha256(weights).hexdigest()[:16]
    print(
        f"step {validate.step}, accuracy {100 * validate.metrics['accuracy']:.2f} %, weights {digest}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--dir", type=Path, default=Path("runs/torch_digits"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(main(options.steps, options.dir, options.device))
