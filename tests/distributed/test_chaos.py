"""Training on four processes that are killed, stopped and cut off at random moments."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from tests.distributed import chaos_worker
from tests.distributed.over_grpc import Proxy, free_port, make_certificates

LAST_STEP = 300
SILENT_SECS = 3.0  # longer than the 2 s of rpc_options.timeout_secs
SUSPENDED_SECS = {"stop": SILENT_SECS, "suspend": 7.0, "suspend long": 30.0}
ROUND_SECS = 180.0

Task = tuple[str, int]
Spec = dict[str, list[str]]

TASKS: list[Task] = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
FAULTS: list[tuple[str, Task]] = (
    [(kind, task) for kind in ("kill", "stop") for task in TASKS]
    + [(kind, task) for kind in ("cut", "flip") for task in TASKS[:2]]
    + [("suspend", task) for task in TASKS[2:]]
    + [("kill", ("worker", 0))]
)


class Cluster:
    """Two servers and two workers. A task that was killed is started again.

    Args:
        directory: for certificates, logs and checkpoints.
        spec: the addresses of the tasks.
        faults: what may happen: a kind, and the task that it happens to.
        seed: decides which three of them do, and when.
    """

    def __init__(
        self, directory: Path, spec: Spec, faults: Sequence[tuple[str, Task]], seed: int
    ) -> None:
        self.directory = directory
        self.spec = spec
        self.running: dict[Task, asyncio.subprocess.Process] = {}
        self.begun: list[tuple[int, int]] = []  # worker, label of an attempt of a step
        self.lines: list[tuple[int, int, int]] = []  # worker, step, label of the attempt that succeeded
        self.children: list[asyncio.subprocess.Process] = []
        found = random.Random(seed)
        self.faults = [(found.randrange(20, 280), *found.choice(faults)) for _ in range(3)]
        self._left = sorted(self.faults)
        self._silent: set[asyncio.Task[None]] = set()

    def command(self, job: str, task: int) -> list[str]:
        """Return the command of a task."""
        cluster = json.dumps(self.spec)
        if job == "ps":
            return [
                *(sys.executable, "-m", "asyncmon", "server", "--job", job, "--task", str(task)),
                *("--cluster", cluster, "--timeout-secs", "2"),
                *("--certificate", str(self.directory / "server.pem")),
                *("--private-key", str(self.directory / "server.key")),
                *("--authority", str(self.directory / "authority.pem")),
            ]
        path = str(Path(chaos_worker.__file__))
        model = str(self.directory / "model")
        return [sys.executable, path, cluster, str(task), model, str(LAST_STEP)]

    async def run(self, job: str, task: int) -> None:
        """Run a task to its end."""
        while True:
            with (self.directory / f"{job}{task}.log").open("ab") as log:
                child = await asyncio.create_subprocess_exec(
                    *self.command(job, task),
                    env={**os.environ, "CERTIFICATES": str(self.directory)},
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                )
            self.running[job, task] = child
            self.children.append(child)
            assert child.stdout is not None, "PIPE"
            async for line in child.stdout:
                if job == "worker":
                    match json.loads(line):
                        case {"begun": label}:
                            self.begun.append((task, label))
                        case {"step": step, "label": label}:
                            self.lines.append((task, step, label))
                            self.stepped()
                            self._disturb(step)
            status = await child.wait()
            if status != -signal.SIGKILL:
                assert status == 0, f"{job} {task} has ended with {status}: {self.log(job, task)}"
                return

    def stepped(self) -> None:
        """Follow a step of a worker."""

    def log(self, job: str, task: int) -> str:
        """Return the last of what a task wrote."""
        return (self.directory / f"{job}{task}.log").read_text()[-6000:]

    def _disturb(self, step: int) -> None:
        while self._left and step >= self._left[0][0]:
            _, kind, name = self._left.pop(0)
            if self.running[name].returncode is not None:
                continue
            silent = asyncio.create_task(self.disturb(kind, name))
            self._silent.add(silent)
            silent.add_done_callback(self._silent.discard)

    async def disturb(self, kind: str, name: Task) -> None:
        """Kill a process, or stop it for longer than requests wait."""
        child = self.running[name]
        if kind == "kill":
            child.kill()
            return
        child.send_signal(signal.SIGSTOP)
        await asyncio.sleep(SUSPENDED_SECS[kind])
        if child.returncode is None:
            child.send_signal(signal.SIGCONT)

    async def train(self) -> None:
        """Run all four until the workers have ended."""
        tasks = [asyncio.create_task(self.run(*name)) for name in TASKS]
        try:
            async with asyncio.timeout(ROUND_SECS):
                await asyncio.gather(*tasks[2:])
                await asyncio.gather(*self._silent)
                for name in TASKS[:2]:
                    self.running[name].terminate()
                await asyncio.gather(*tasks[:2])
        except TimeoutError:
            for name in TASKS[2:]:
                if self.running[name].returncode is None:
                    self.running[name].send_signal(signal.SIGUSR1)
            await asyncio.sleep(1.0)
            logs = [f"{job} {task}: {self.log(job, task)}" for job, task in TASKS]
            raise AssertionError("\n".join([f"Hung: {self.faults}", *logs])) from None
        finally:
            for child in self.children:
                if child.returncode is None:
                    child.kill()
            for task in (*tasks, *self._silent):
                task.cancel()
            await asyncio.gather(*tasks, *self._silent, return_exceptions=True)


class ProxiedCluster(Cluster):
    """A cluster whose servers are each behind a proxy, which cuts connections or changes bytes."""

    def __init__(self, directory: Path, proxies: list[Proxy], ports: list[int], seed: int) -> None:
        addresses = [proxy.target.removeprefix("grpc://") for proxy in proxies]
        workers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        super().__init__(directory, {"ps": addresses, "worker": workers}, FAULTS, seed)
        self._proxies, self._ports = proxies, ports
        make_certificates(directory)  # without them changed bytes may go unnoticed

    def command(self, job: str, task: int) -> list[str]:
        port = ["--port", str(self._ports[task])] if job == "ps" else []
        return [*super().command(job, task), *port]

    async def disturb(self, kind: str, name: Task) -> None:
        if kind == "flip":
            self._proxies[name[1]].flips = 3
        elif kind == "cut":
            self._proxies[name[1]].is_cut = True
            await asyncio.sleep(SILENT_SECS)
            self._proxies[name[1]].is_cut = False
        else:
            await super().disturb(kind, name)


def serial(log: Any, count: int) -> list[int]:
    """Return the labels of attempts in the order in which a server applied them."""
    labels = [int(label) for label in log[:count][::-1]]
    assert len(set(labels)) == len(labels), "an attempt was applied twice"
    return labels


async def check(cluster: Cluster) -> None:
    """Check the last checkpoint, and the steps that workers saw.

    Each attempt of a step has a label. A server has applied it once or not at all, and has the value
    of those in its log, in their order. A step of an attempt that failed is repeated with a label of
    its own. A checkpoint, and so the state after a restore, is of one version on each server.
    """
    newest = await am.latest_checkpoint(str(cluster.directory / "model"))
    assert newest is not None
    saved = await am.load_checkpoint(newest)
    step = int(await saved.get_tensor("global_step"))
    assert step >= LAST_STEP
    applied = []
    for server in range(2):
        log = await saved.get_tensor(f"log{server}")
        labels = serial(log, int((log != 0).sum()))
        value = 0
        for label in labels:
            value = chaos_worker.folded(value, label)
        assert value == (await saved.get_tensor(f"value{server}")).item()
        applied.append(labels)
    assert len(applied[0]) == step  # the counter is on the first server
    begun = {label for _, label in cluster.begun}
    assert {*applied[0], *applied[1]} <= begun, "an update is of no attempt"

    logs = [(cluster.directory / f"worker{task}.log").read_text() for task in range(2)]
    restored = [
        int(found) for found in re.findall(r"Restoring parameters from \S*-(\d+)", "".join(logs))
    ]
    if "steps are lost by an initialisation" in logs[0]:  # killed before its first checkpoint
        restored.append(0)
    killed = [name for _, kind, name in cluster.faults if kind in ("kill", "move")]
    for worker in range(2):
        kills = killed.count(("worker", worker))
        failed = sum(task == worker for task, _ in cluster.begun)
        failed -= sum(task == worker for task, *_ in cluster.lines)
        recoveries = logs[worker].count("An error was raised. This may be due to a preemption in a")
        assert failed <= recoveries + kills, "a step that succeeded was repeated"
        steps = [step for task, step, _ in cluster.lines if task == worker]
        for before, after in itertools.pairwise(steps):
            if after <= before:
                assert any(one < after for one in restored), (before, after, restored)
                warned = ": training continues from step" in logs[worker]
                assert warned or kills or ("worker", 0) in killed, (worker, before, after)


@pytest.mark.campaign("cluster", short=1)
@pytest.mark.asyncio
async def test_training_outlives_faults(tmp_path: Path, seed: int) -> None:
    ports = [free_port(), free_port()]
    async with Proxy(ports[0]) as first, Proxy(ports[1]) as second:
        cluster = ProxiedCluster(tmp_path, [first, second], ports, seed)
        await cluster.train()
    try:
        await check(cluster)
    except AssertionError as error:
        error.add_note(f"Seed {seed}: {cluster.faults}; logs in {tmp_path}")
        raise
    for child in cluster.children:
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, 0)
