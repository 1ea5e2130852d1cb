"""The processes of a cluster: their start, their end, and other processes beside them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import partial
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph as g
from asyncmon.system import clock
from tests import forked
from tests.distributed.over_grpc import free_port
from tests.simulation import simulate

CLUSTER = {"ps": ["ps0:1"], "worker": ["chief:1", "worker:1"]}


def output(program: str, *arguments: str) -> str:
    """Run a program; return its output and its errors."""
    return forked.run("-c", program, *arguments, merged=True).stdout


def test_a_child_with_a_preexec_fn_starts_beside_a_session() -> None:
    program = """
import asyncio, os, subprocess
import asyncmon as am

async def steps(sess, x, until):
    while not until.is_set():
        await sess.run(x)

async def main():
    config = am.SessionConfig()
    config.rpc_options.use_rpc_for_inprocess_master = True
    x, until = am.graph.constant(1.0) + 1.0, asyncio.Event()
    server = am.Server.create_local_server()
    async with server, am.Session(server.target, config=config) as sess:
        stepping = asyncio.create_task(steps(sess, x, until))
        for _ in range(20):
            await asyncio.sleep(0.01)
            subprocess.run(["/bin/true"], preexec_fn=os.setpgrp, check=True)
        until.set()
        await stepping
    assert "GRPC_ENABLE_FORK_SUPPORT" not in os.environ

asyncio.run(main())
"""
    assert output(program) == ""


@pytest.mark.parametrize("how", ["any port", "a port", "over the network", "session, too"])
def test_a_server_made_before_the_event_loop_starts_with_its_first_session(how: str) -> None:
    program = """
import asyncio, sys
import asyncmon as am
from asyncmon import graph as g

how, port = sys.argv[1:]
if how == "any port":
    server = am.Server.create_local_server()
else:
    server = am.Server({"ps": [f"localhost:{port}"]}, "ps", 0)
target = server.target
v = g.Variable(1.0)
config = am.SessionConfig()
config.rpc_options.use_rpc_for_inprocess_master = how == "over the network"
if how == "session, too":
    sess = am.Session(target)

async def main():
    made = sess if how == "session, too" else am.Session(target, config=config)
    async with made:
        await made.run(v.initializer)
        print(await made.run(v))

asyncio.run(main())
"""
    assert output(program, how, str(free_port())) == "1.0\n"


@pytest.mark.asyncio
@pytest.mark.parametrize("is_running", [False, True])
async def test_a_suspended_child_is_closed_within_a_second(is_running: bool) -> None:
    x = g.constant(1.0) + 1.0
    sess: Any = am.Session("local")
    await sess.run(x)
    os.kill(sess.backend.channel.process.pid, signal.SIGSTOP)
    run = asyncio.create_task(sess.run(x) if is_running else asyncio.sleep(0))
    await asyncio.sleep(0.05)
    started = time.monotonic()
    await sess.close()
    assert time.monotonic() - started < 1
    await asyncio.wait([run])
    assert is_running == (run.exception() is not None)


async def serve(secs: float) -> None:
    await asyncio.sleep(secs)
    async with am.Server(CLUSTER, "ps", 0) as server:
        await server.join()


async def supervise(task: int, directory: str) -> float:
    async with am.Server(CLUSTER, "worker", task) as server:
        with g.device(am.replica_device_setter(cluster=CLUSTER)):
            step = am.get_or_create_global_step()
            add = g.assign_add(step, 1)
        supervisor = am.Supervisor(is_chief=task == 0, logdir=directory, recovery_wait_secs=1)
        async with supervisor.managed_session(server.target) as sess:
            started = clock.monotonic()
            for _ in range(50 * (2 - task)):
                await sess.run(add)
    return started


def test_the_workers_of_a_supervisor_wait_for_their_ps() -> None:
    programs = {"chief": partial(supervise, 0, "/runs"), "worker": partial(supervise, 1, "")}
    report = simulate(programs, services={"ps": lambda: serve(20)})
    assert all(20 < started < 30 for started in report.results.values())
