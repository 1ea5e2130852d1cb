"""A rank of the tests of several processes: ``run(DIRECTORY, FAULT, KIND)``, or by torchrun.

``ddp`` replicates the model, ``fsdp`` shards it, ``whole`` does neither.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

import asyncmon as am
from asyncmon.programs.torch import TorchProgram

STEPS = 12


class Counter(am.SessionRunHook):
    """Count the steps of all sessions, as many times as the number of the rank says."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.counted = 0
        self.begun: int | None = None

    async def after_create_session(self, session: Any, coord: Any) -> None:
        self.begun = session.global_step

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.counted += self.times

    def state_dict(self) -> dict[str, int]:
        return {"counted": self.counted}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.counted = state["counted"]


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
    elif fault in ("kill in save", "full disk"):  # the next write of more bytes is one too many
        action = signal.SIG_DFL if fault == "kill in save" else signal.SIG_IGN
        signal.signal(signal.SIGXFSZ, action)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))


async def check_refusals(rank: int, raw: Any, values: dict[str, Any]) -> None:
    """Read a sharded session from outside its steps."""
    with pytest.raises(am.errors.InvalidArgumentError, match="sharded over ranks"):
        await raw.run("model/0.weight")
    keep, sharded = raw.own_pieces(), raw.graph.state["model"].state_dict()
    for name, tensor in sharded.items():  # what a rank keeps of the state that the chief sends
        piece = keep(f"model/{name}", values[name].numpy())
        assert (piece.array.tolist(), piece.shape) == (tensor.to_local().tolist(), tensor.shape)
        assert piece.array.base is None
    assert keep("model/0.weight", "of another shape") == "of another shape"
    if rank:
        with pytest.raises(am.errors.FailedPreconditionError, match="ordered on rank 0"):
            await raw.snapshot()
        return
    with await raw.snapshot() as snapshot:
        for name in values:
            if not name.startswith("moments/"):
                assert snapshot[f"model/{name}"].tolist() == values[name].tolist()
    evaluating = raw.graph.create_session()
    with pytest.raises(am.errors.FailedPreconditionError, match="no copy"):
        await evaluating.run("weights")
    await evaluating.close()


async def main(directory: Path, fault: str, kind: str) -> None:
    rank = distributed.get_rank()
    model: Any
    torch.manual_seed(rank if kind == "ddp" else 0)  # replicas begin with the weights of the first
    layers = torch.nn.Linear(4, 3), torch.nn.Dropout(0.2), torch.nn.Linear(3, 1)
    model = torch.nn.Sequential(*layers)
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp":
        fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    program = TorchProgram({"model": model, "optimizer": optimizer})

    @program.training_step(clip_norm=1.0)
    def train(state: Any, batch: Any) -> Any:
        return state["model"](batch).square().mean()

    @program.step(read_only=True)
    def weights(state: Any) -> dict[str, Any]:
        found = {name: tensor + 0 for name, tensor in state["model"].state_dict().items()}
        for number, one in state["optimizer"].state_dict()["state"].items():
            found |= {f"moments/{number}/{key}": tensor + 0 for key, tensor in one.items()}
        return found

    @program.step(read_only=True)
    def evaluate(state: Any) -> float:
        return float(state["model"].eval()(torch.ones(1, 4)))

    counter = Counter(rank + 1)
    hooks = [am.StopAtStepHook(last_step=STEPS), counter]
    if kind == "ddp":
        hooks.append(am.EvalHook({"output": "evaluate"}, every_steps=4))
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=directory, save_checkpoint_steps=2,
        hooks=hooks, log_step_count_steps=None,
    ) as sess:  # fmt: skip
        raw = sess.raw_session()
        while not sess.should_stop():
            if fault == "look":
                values = await sess.run("weights", hooks=False)
                if kind == "fsdp" and distributed.get_world_size() > 1:
                    await check_refusals(rank, raw, values)
                break
            step = sess.global_step
            batch = torch.arange(32.0).reshape(8, 4) * (rank + 1) / (step + 1) / 30
            if fault == "alone" and rank == 1 and step == 5:
                await sess.run("weights")
            await sess.run("train", {"batch": batch})
            act(fault, step + 1, rank, sess)
            values = await sess.run("weights", hooks=False)
    end = raw.global_step
    found = {name.removeprefix("module."): one.flatten().tolist() for name, one in values.items()}
    (directory / f"rank{rank}.{os.environ['TORCHELASTIC_RESTART_COUNT']}").write_text(
        f"{counter.begun} {end} {found}"
    )
    (directory / f"counted{rank}").write_text(str(counter.counted))


def run(directory: str, fault: str, kind: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    distributed.init_process_group("gloo")
    try:
        asyncio.run(main(Path(directory), fault, kind))
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    run(*sys.argv[1:])
