"""A worker that prints each step of its training, one a line: CLUSTER TASK DIRECTORY LAST."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import uuid
from typing import Any

import asyncmon as am
from asyncmon import graph as g
from asyncmon.system.error_text import where_it_waits

SIZE = 2048
"""Steps that a log has room for."""

MODULUS = 1_000_003


def folded(value: Any, label: Any) -> Any:
    """Return a value after one more step. The order of steps matters."""
    return (value * 31 + label) % MODULUS


def build(cluster: Any, task: int) -> tuple[Any, Any]:
    """Return a step, which logs its label on two servers, and the placeholder of that."""
    label = g.placeholder(g.int64, [1])
    done = []
    own = f"/job:worker/task:{task}"
    with g.device(am.replica_device_setter(cluster=cluster, worker_device=own)):
        done.append(am.get_or_create_global_step().assign_add(1).op)
    for server in range(2):
        with g.device(f"/job:ps/task:{server}"):
            log = g.get_variable(f"log{server}", [SIZE], g.int64, g.zeros_initializer())
            value = g.get_variable(f"value{server}", [1], g.int64, g.zeros_initializer())
            done.append(log.assign(g.concat([label, log[:-1]], 0)).op)
            done.append(value.assign(folded(value, label)).op)
    return g.group(*done), label


def write(**values: Any) -> None:
    """Write a line."""
    sys.stdout.write(f"{json.dumps(values)}\n")
    sys.stdout.flush()


def write_tasks() -> None:
    """Write where each task waits."""
    for task in asyncio.all_tasks():
        sys.stderr.write(f"{task.get_name()}: {where_it_waits(task)}\n")


async def main(cluster: Any, task: int, directory: str, last: int) -> None:
    """Train to a step."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, write_tasks)
    config = am.SessionConfig()
    config.rpc_options.timeout_secs = 2.0
    if certificates := os.environ.get("CERTIFICATES"):
        config.rpc_options.certificate = f"{certificates}/server.pem"
        config.rpc_options.private_key = f"{certificates}/server.key"
        config.rpc_options.authority = f"{certificates}/authority.pem"
    async with am.Server(cluster, "worker", task, config=config) as server:
        train, placeholder = build(cluster, task)
        label = 0

        def feed() -> dict[Any, Any]:  # before each attempt: a recovery repeats a run with a new label
            nonlocal label
            label = uuid.uuid4().int >> 80
            write(begun=label)
            return {placeholder: [label]}

        async with am.MonitoredTrainingSession(
            server.target, task == 0, directory, save_checkpoint_steps=50, save_checkpoint_secs=None,
            hooks=[am.StopAtStepHook(last_step=last), am.FeedFnHook(feed)], config=config,
        ) as sess:  # fmt: skip
            while not sess.should_stop():
                await sess.run(train)
                write(step=sess.raw_session().global_step, label=label)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
