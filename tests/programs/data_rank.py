"""A rank that reads its share of the data: ``run(DIRECTORY, KIND, DATA, MOMENT, LAST)``.

``KIND`` is ``ddp`` or ``fsdp``. ``DATA`` is ``loader``, a ``DataLoader`` with a ``DistributedSampler``
whose items draw random numbers, or ``shard``, a dataset. At the moment, one of 20, a rank is killed
once. The used elements are appended to a file, one line a step.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import asyncmon as am
from asyncmon.programs.torch import TorchProgram

COUNT, BATCH, EPOCHS = 48, 8, 3  # elements, of which all ranks take a batch at each step


class Noisy(Dataset[Any]):
    """Items that draw from torch's default generator, as dropout does."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> Any:
        return number, torch.full((4,), number / COUNT) + 0.1 * torch.randn(4)


async def plain(number: int) -> Any:
    return number, torch.full((4,), number / COUNT)


def data_of(kind: str, rank: int, ranks: int) -> Any:
    if kind == "loader":
        sampler = DistributedSampler(Noisy(), ranks, rank, shuffle=True, seed=5)
        return DataLoader(Noisy(), BATCH // ranks, sampler=sampler)
    data = am.data.from_iterable(range(COUNT)).shuffle(COUNT, seed=5).shard(ranks, rank).map(plain)
    return data.batch(BATCH // ranks, collate=torch.utils.data.default_collate).prefetch(2)


def program_of(kind: str, ranks: int) -> TorchProgram:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    if kind == "fsdp":
        fully_shard(model)
    elif ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    program = TorchProgram({"model": model, "optimizer": optimizer})

    @program.training_step
    def train(state: Any, batch: Any) -> Any:
        return state["model"](batch[1]).square().mean()

    return program


def full(tensor: Any) -> Any:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


async def main(directory: Path, kind: str, data: str, moment: int, last: int) -> None:
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    is_first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    victim, place = divmod(moment, 2) if moment >= 0 else (-1, 0)  # before or after step 2, 3, ... 11
    program, source = program_of(kind, ranks), data_of(data, rank, ranks)

    def die(step: int, now: int) -> None:
        if is_first and victim + 2 == step and now == place and rank == victim % 2:
            os.kill(os.getpid(), signal.SIGKILL)

    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=directory, save_checkpoint_steps=2, log_step_count_steps=None,
        hooks=[am.StopAtStepHook(last_step=last)], save_summaries_steps=None,
    ) as sess:  # fmt: skip
        with (directory / f"used.{ranks}.{rank}").open("a") as file:
            async for epoch in sess.epochs(source, EPOCHS):
                if data == "loader":
                    source.sampler.set_epoch(epoch.number)
                async for batch in epoch:
                    step = sess.global_step
                    die(step, 0)
                    await sess.run("train", {"batch": batch})
                    file.write(f"{step} {epoch.number} {batch[0].tolist()}\n")
                    file.flush()
                    die(step, 1)
    weights = b"".join(
        full(one).detach().numpy().tobytes() for one in program.state["model"].state_dict().values()
    )
    digest = hashlib.sha256(weights).hexdigest()[:16]
    (directory / f"end.{ranks}.{rank}").write_text(f"{sess.global_step} {digest}")


def run(directory: str, kind: str, data: str, moment: str, last: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    try:
        asyncio.run(main(Path(directory), kind, data, int(moment), int(last)))
    finally:
        distributed.destroy_process_group()
