"""Kills trainings that read by workers, and continues them: ``python killed_torch.py DIR KILLS SEED``.

A model with dropout reads a shuffled ``DataLoader`` whose workers draw random numbers. Processes are
forked and killed by SIGKILL some steps after their start, until there were enough kills and the last
training is complete. One line of JSON has the number of kills and the digests of the weights at the
ends, of which the first is that of a training that was never killed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import asyncmon as am
from asyncmon.programs.torch import TorchProgram

EPOCHS, BATCHES, SIZE = 3, 8, 4


class Noisy(Dataset[Any]):
    def __len__(self) -> int:
        return BATCHES * SIZE

    def __getitem__(self, number: int) -> Any:
        return torch.full((3,), number / 10) + torch.randn(3)


async def train(directory: str, out: int) -> None:
    """Write a byte for each step, and the digest of the weights at the end."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    program = TorchProgram({"model": model, "optimizer": optimizer})

    @program.training_step
    def step(state: Any, batch: Any) -> Any:
        return state["model"](batch).square().mean()

    loader = DataLoader(Noisy(), SIZE, shuffle=True, num_workers=2)
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=directory, save_checkpoint_steps=1, log_step_count_steps=None
    ) as sess:
        async for epoch in sess.epochs(loader, EPOCHS):
            async for batch in epoch:
                await sess.run("step", {"batch": batch})
                os.write(out, b".")
    weights = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    os.write(out, hashlib.sha256(weights).hexdigest().encode())


def in_child(directory: str, steps: int | None) -> str:
    """Train in a child, killed after a number of steps; return its digest, or "" if killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            signal.alarm(120)
            asyncio.run(train(directory, writing))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    found = b""
    while len(found) != steps and (piece := os.read(reading, 1)):  # workers may hold the pipe open
        found += piece
        if len(found.lstrip(b".")) == 64:
            break
    if len(found) == steps:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if status and os.WTERMSIG(status) != signal.SIGKILL:
        raise SystemExit(f"The training failed: {status}.")
    return "" if status else found.lstrip(b".").decode()


def campaign(root: str, kills: int, seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    ends = [in_child(os.path.join(root, "whole"), None)]
    killed = 0
    while killed < kills:
        digest = ""
        while not digest:
            steps = dice.randint(1, 4) if killed < kills else None
            digest = in_child(os.path.join(root, str(len(ends))), steps)
            killed += not digest
        ends.append(digest)
    return {"killed": killed, "ends": ends}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(campaign(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
