"""Programs of the tests of Ray: ``cluster``, or a driver and the directory of its runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
from ray import tune

import asyncmon as am
from asyncmon.programs.ray_train import RayTrainHook, as_trainable
from asyncmon.programs.torch import TorchProgram

COUNT, BATCH = 400, 4
MEMORY = {"object_store_memory": 100 * 2**20}


def cluster() -> None:
    """Run a head and three machines with two cores each until the input ends."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args={**head, **MEMORY})
    for _ in range(3):
        nodes.add_node(num_cpus=2, **MEMORY)
    nodes.wait_for_nodes()
    sys.stdout.write(f"{nodes.address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    nodes.shutdown()


def program_of(prepare: Any) -> TorchProgram:
    torch.manual_seed(1)
    layers = torch.nn.Linear(1, 3), torch.nn.Dropout(0.2), torch.nn.Linear(3, 1)
    model = prepare(torch.nn.Sequential(*layers))
    program = TorchProgram({"model": model, "optimizer": torch.optim.Adam(model.parameters(), 0.01)})

    @program.training_step
    def step(state: Any, batch: Any) -> dict[str, Any]:
        x = torch.tensor(batch, dtype=torch.float32).reshape(-1, 1) / COUNT
        return {"loss": (state["model"](x) - 1.0).square().mean()}

    return program


def act(fault: str, saved: Path) -> None:
    """Announce a preemption, or kill the driver, a process id, once step 20 is saved."""
    if fault == "preemption":
        preempt()
    elif ray.train.get_context().get_world_rank() == 0:
        while "ckpt-20" not in saved.read_text():
            time.sleep(0.02)
        os.kill(int(fault), signal.SIGKILL)
        time.sleep(600)  # Ray ends the workers


def preempt() -> None:
    """Announce the preemption of the machine of the second worker, and wait for the notice."""
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    context = ray.get_runtime_context()
    if ray.train.get_context().get_world_rank() == 1:
        reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        due = int(time.time() * 1000) + 600_000
        client = GcsClient(address=context.gcs_address)
        accepted, why = client.drain_node(context.get_node_id(), reason, "a test", due)
        assert accepted, why
    while ray.train.get_preemption_info() is None:
        time.sleep(0.05)


async def learn(place: Path, last: int, hook: RayTrainHook, fault: str | None) -> None:
    """Train; at step 20 announce a preemption. Each worker writes the elements that it has used."""
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    program = program_of(ray.train.torch.prepare_model)
    data = am.data.from_iterable(range(COUNT)).shuffle(COUNT, seed=2).shard(size, rank)
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=place / "run", save_checkpoint_steps=10,
        hooks=[am.StopAtStepHook(last_step=last), hook], log_step_count_steps=None,
    ) as sess:  # fmt: skip
        begun = sess.global_step
        with (place / f"used.{size}.{rank}").open("a") as file:
            async for batch in sess.iterate(data.batch(BATCH // size, collate=list)):
                await sess.run("step", {"batch": batch})
                file.write(f"{batch}\n")
                if sess.global_step == 20 and fault is not None:
                    await asyncio.to_thread(act, fault, place / "run" / "checkpoint")
    weights = b"".join(one.detach().numpy().tobytes() for one in program.state["model"].parameters())
    digest = hashlib.sha256(weights).hexdigest()[:16]
    found = {"begun": begun, "end": sess.global_step, "size": size, "weights": digest,
             "state": sess.outcome.state, "text": sess.stop_reason}  # fmt: skip
    if rank == 0:
        with (place / "ends").open("a") as file:
            file.write(json.dumps(found) + "\n")


def train(config: dict[str, Any]) -> None:
    place = Path(config["place"])
    begun = place / f"begun.{ray.train.get_context().get_world_rank()}"
    is_first = not begun.exists()
    begun.touch()
    for name in ("whole", "preempted"):
        (place / name).mkdir(exist_ok=True)
    if is_first:
        asyncio.run(learn(place / "whole", config["last"], RayTrainHook(report_steps=None), None))
    hook = RayTrainHook({"loss": "loss"}, report_steps=10, check_steps=5)
    fault = config["fault"] if is_first else None
    asyncio.run(learn(place / "preempted", config["last"], hook, fault))
    hook.raise_if_preempted()


def fit(place: str, fault: str, last: int, **scaling: Any) -> None:
    ray.init()
    result = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"place": place, "fault": fault, "last": last},
        scaling_config=ray.train.ScalingConfig(placement_strategy="SPREAD", **scaling),
        run_config=ray.train.RunConfig(
            storage_path=f"{place}/ray", failure_config=ray.train.FailureConfig(max_failures=2)
        ),
    ).fit()
    Path(place, "metrics").write_text(json.dumps(result.metrics))


def trial(config: dict[str, Any]) -> None:
    async def learn() -> None:
        program = program_of(lambda model: model)
        hook = RayTrainHook({"loss": "loss"}, report_steps=2)
        async with am.MonitoredTrainingSession(
            program=program, checkpoint_dir=Path(config["place"], config["name"]),
            hooks=[am.StopAtStepHook(last_step=config["steps"]), hook], log_step_count_steps=None,
        ) as sess:  # fmt: skip
            while not sess.should_stop():
                await sess.run("step", {"batch": [1, 2]})

    asyncio.run(learn())


def tuned(place: str) -> None:
    ray.init()
    tune.Tuner(
        as_trainable(trial),
        param_space={"place": place, "name": tune.grid_search(["short", "long"]),
                     "steps": tune.sample_from(lambda config: {"short": 8}.get(config["name"], 10**6))},
        run_config=tune.RunConfig(storage_path=f"{place}/ray", stop={"step": 20}),
    ).fit()  # fmt: skip


if __name__ == "__main__":
    match sys.argv[1]:
        case "cluster":
            cluster()
        case "preempted":
            fit(sys.argv[2], "preemption", 40, num_workers=2)
        case "driver":
            fit(sys.argv[2], str(os.getpid()), 40, num_workers=2)
        case "elastic":
            fit(sys.argv[2], "preemption", 100, num_workers=(1, 2), resources_per_worker={"CPU": 2})
        case "tuned":
            tuned(sys.argv[2])
