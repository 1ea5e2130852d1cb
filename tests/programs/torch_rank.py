"""A rank of the tests of torchrun: ``torch_rank.py DIRECTORY FAULT``, a program of DDP over gloo."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

import asyncmon as am
from asyncmon.programs.torch import TorchProgram

STEPS = 12


def act(fault: str, step: int, rank: int, sess: Any) -> None:
    """Do at step 5 what a test asks for, in the second rank."""
    first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if step != 5 or rank != 1 or not first:
        return
    if fault == "stop":
        sess.request_stop("rank 1 has enough")
    elif fault == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    elif fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


async def main(directory: Path, fault: str) -> None:
    rank = distributed.get_rank()
    torch.manual_seed(rank)  # ranks begin with the weights of the first nevertheless
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    program = TorchProgram({"model": model, "optimizer": optimizer})

    @program.training_step
    def train(state: Any, batch: Any) -> Any:
        return state["model"](batch).square().mean()

    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=directory, save_checkpoint_steps=2,
        hooks=[am.StopAtStepHook(last_step=STEPS)], log_step_count_steps=None,
    ) as sess:  # fmt: skip
        raw = sess.raw_session()
        begun = raw.global_step
        while not sess.should_stop():
            step = sess.global_step
            batch = torch.arange(32.0).reshape(8, 4) * (rank + 1) / (step + 1) / 30
            await sess.run("train", {"batch": batch})
            act(fault, step + 1, rank, sess)
    end = raw.global_step
    weights = model.module.weight.detach().flatten().tolist()
    (directory / f"rank{rank}.{os.environ['TORCHELASTIC_RESTART_COUNT']}").write_text(
        f"{begun} {end} {weights}"
    )


logging.basicConfig(level=logging.INFO, format="%(message)s")
distributed.init_process_group("gloo")
try:
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
finally:
    distributed.destroy_process_group()
