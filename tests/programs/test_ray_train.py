"""Sessions report to a real Ray Train, and stop with it before a preemption."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")
pytest.importorskip("ray.train", reason="Ray Train is not installed: pip install 'asyncmon[ray]'")

PROGRAM = """
import asyncio, os, pathlib, sys, time
import ray, ray.train.torch, torch
from ray.train.v2.api.preemption import PreemptionInfo
import asyncmon as am
from asyncmon.programs.ray_train import RayTrainHook
from asyncmon.programs.torch import TorchProgram

def train(config):
    place = pathlib.Path(config["place"])
    rank = ray.train.get_context().get_world_rank()
    first = not (place / "again").exists()
    if config["preempt"] and first:  # as the barrier of Ray does for all workers
        checks = []
        def notice():
            checks.append(1)
            due = int(time.time() * 1000) + 60_000
            return PreemptionInfo(due, {"node": [1]}) if len(checks) == 3 else None
        ray.train.get_preemption_info = notice
    torch.manual_seed(1)
    model = ray.train.torch.prepare_model(torch.nn.Linear(4, 1))
    program = TorchProgram({"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)})

    @program.training_step
    def step(state, batch):
        return {"loss": (state["model"](batch) - 1.0).square().mean()}

    hook = RayTrainHook({"loss": "loss"}, report_steps=10, check_steps=5)

    async def learn():
        hooks = [am.StopAtStepHook(last_step=40), hook]
        async with am.MonitoredTrainingSession(
            program=program, checkpoint_dir=place / "run", hooks=hooks, save_checkpoint_steps=1000,
            save_checkpoint_secs=None,
        ) as sess:
            begun = sess.global_step
            while not sess.should_stop():
                generator = torch.Generator().manual_seed(10 * sess.global_step + rank)
                await sess.run("step", {"batch": torch.randn(8, 4, generator=generator)})
        if rank == 0:
            with (place / "said").open("a") as file:
                how = f"{sess.outcome.state}: {sess.stop_reason}"
                file.write(f"{begun} to {sess.global_step}, {how}\\n")
            with torch.no_grad():
                weights = model.module.weight.flatten().tolist()
            (place / "weights").write_text(repr(weights))

    asyncio.run(learn())
    if rank == 0:
        (place / "again").touch()
    hook.raise_if_preempted()

ray.init(num_cpus=3, include_dashboard=False)
ray.train.torch.TorchTrainer(
    train, train_loop_config={"place": sys.argv[1], "preempt": sys.argv[2] == "1"},
    scaling_config=ray.train.ScalingConfig(num_workers=2),
    run_config=ray.train.RunConfig(
        storage_path=sys.argv[1] + "/ray", failure_config=ray.train.FailureConfig(max_failures=2)
    ),
).fit()
"""


def run(place: Path, preempt: bool) -> tuple[str, str]:
    place.mkdir()
    short = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # names of sockets must be short
    environment = os.environ | {
        "RAY_TMPDIR": short,
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    environment.pop("RAY_ADDRESS", None)
    (place / "program.py").write_text(PROGRAM)
    try:
        done = subprocess.run(
            [sys.executable, "program.py", str(place), str(int(preempt))],
            cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(short, ignore_errors=True)
    assert done.returncode == 0, done.stdout[-4000:]
    return (place / "said").read_text(), (place / "weights").read_text()


def test_a_preempted_training_saves_and_ends_with_the_bits_of_an_uninterrupted_one(
    tmp_path: Path,
) -> None:
    said, weights = run(tmp_path / "whole", preempt=False)
    assert said.startswith("0 to 40, completed: ")
    said, again = run(tmp_path / "preempted", preempt=True)
    first, second = said.splitlines()
    assert first.startswith("0 to 15, preempted: Ray preempts node node in ")
    assert second.startswith("15 to 40, completed: ")
    assert again == weights
