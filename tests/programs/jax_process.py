"""A process of the tests of several hosts: ``jax_process.py ADDRESS NUMBER DIRECTORY FAULT``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))

import jax.numpy as jnp  # noqa: E402 - the processes join before jax finds its devices
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import asyncmon as am  # noqa: E402
from asyncmon.programs.jax import JaxProgram  # noqa: E402


def train(state: Any, batch: Any) -> Any:
    loss, gradient = jax.value_and_grad(lambda w: jnp.square(batch @ w - 1).mean())(state["w"])
    return {"w": state["w"] - 0.1 * gradient}, {"loss": loss}


def see(state: Any, batch: Any) -> Any:
    return {"rows": batch}


async def refusal(sess: Any, batch: Any) -> str:
    """Return the error of a fetch of an array whose parts are at both processes."""
    try:
        await sess.run(["see", "rows"], {"batch": batch}, hooks=False)
    except am.errors.UnimplementedError as error:
        return str(error)
    return "it was fetched"


def act(fault: str, sess: Any, directory: Path) -> None:
    """Do in the second process at step 3 what a test asks for."""
    if jax.process_index() == 0 or sess.global_step != 3:
        return
    if fault == "stop":
        sess.request_stop("process 1 has enough")
    elif fault == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    elif fault == "kill":
        state = directory / "checkpoint"
        while not (state.exists() and "ckpt-2" in state.read_text()):  # the other process commits
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)


async def main(directory: Path, fault: str) -> None:
    number = jax.process_index()
    mesh = jax.make_mesh((2,), ("hosts",))
    whole = NamedSharding(mesh, PartitionSpec())
    w = jax.device_put(np.arange(4.0, dtype=np.float32), whole)
    program = JaxProgram({"w": w}, {"train": train})
    program.step(see, read_only=True)
    assert program.is_chief == (number == 0)
    numbers = np.arange(36, dtype=np.float32).reshape(36, 1) * np.ones(4, np.float32) / 36
    data = am.data.from_arrays(numbers).shuffle(36, seed=1).shard(2, number).batch(3)
    hosts = NamedSharding(mesh, PartitionSpec("hosts"))
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=directory, save_checkpoint_steps=2,
        hooks=[am.StopAtStepHook(last_step=6)], log_step_count_steps=None,
    ) as sess:  # fmt: skip
        raw = sess.raw_session()
        begun = raw.global_step
        async for rows in sess.iterate(data):
            batch = jax.make_array_from_process_local_data(hosts, rows)
            assert batch.shape == (6, 4)
            await sess.run("train", {"batch": batch})
            act(fault, sess, directory)
            found = (await sess.run("w", hooks=False)).tolist()
        if fault == "spread":
            (directory / f"refusal{number}").write_text(await refusal(sess, batch))
    (directory / f"process{number}").write_text(f"{begun} {raw.global_step} {found}")


logging.basicConfig(level=logging.INFO, format="%(message)s")
asyncio.run(main(Path(sys.argv[3]), sys.argv[4]))
