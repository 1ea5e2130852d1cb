"""Training on five hosts, whose network is disturbed at random moments."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from tests.distributed.hosts import Hosts, why_none
from tests.distributed.over_grpc import make_certificates
from tests.distributed.test_chaos import TASKS, Cluster, Task, check

logger = logging.getLogger(__name__)

_SPARE = 4  # the host of a worker that has moved
_SECS = 4.0  # longer than the 2 s of rpc_options.timeout_secs

FAULTS: list[tuple[str, Task]] = [
    *((kind, task) for kind in ("partition", "one way", "deaf", "delay", "loss") for task in TASKS),
    *(("split", task) for task in TASKS[2:]),
    *(("kill", task) for task in TASKS),
    *((kind, task) for kind in ("stop", "suspend long") for task in TASKS),
    ("move", TASKS[3]),
]


class HostCluster(Cluster):
    """A cluster with a host for each task, and one to which the second worker may move."""

    def __init__(self, directory: Path, hosts: Hosts, seed: int) -> None:
        addresses = [f"{address}:2222" for address in hosts.addresses]
        spec = {"ps": addresses[:2], "worker": addresses[2:4]}
        super().__init__(directory, spec, FAULTS, seed)
        self._hosts = hosts
        self._places = {task: number for number, task in enumerate(TASKS)}
        self._last: float | None = None  # when a step was made
        self._quiet_since: float | None = None  # since when no fault lasts
        self._faults = 0
        self.longest_stall = 0.0
        """In seconds, without faults that last."""
        make_certificates(directory, *hosts.addresses)

    def command(self, job: str, task: int) -> list[str]:
        return [*self._hosts.command(self._places[job, task]), *super().command(job, task)]

    def stepped(self) -> None:
        now = time.monotonic()
        if not self._faults and self._last is not None:
            began = max(self._last, self._quiet_since or self._last)
            self.longest_stall = max(self.longest_stall, now - began)
        self._last = now

    async def disturb(self, kind: str, name: Task) -> None:
        self._faults += 1
        try:
            if kind == "move":
                self._places[name] = _SPARE
                moved = f"{self._hosts.addresses[_SPARE]}:2222"
                self.spec = {**self.spec, "worker": [self.spec["worker"][0], moved]}
                await super().disturb("kill", name)
            elif kind in ("kill", "stop", "suspend long"):
                await super().disturb(kind, name)
            else:
                other = len(self.lines) % 2  # one of the servers
                await self._hosts.disturb(kind, self._places[name], other, _SECS)
        finally:
            self._faults -= 1
            self._quiet_since = time.monotonic()


@pytest.mark.campaign("namespaces", short=1)
@pytest.mark.asyncio
async def test_training_outlives_a_disturbed_network(tmp_path: Path, seed: int) -> None:
    if reason := why_none():
        pytest.skip(reason)
    async with Hosts(5) as hosts:
        cluster = HostCluster(tmp_path, hosts, seed)
        await cluster.train()
    logger.info("Seed %d: stalled for %.1f s, %s", seed, cluster.longest_stall, cluster.faults)
    try:
        await check(cluster)
    except AssertionError as error:
        error.add_note(f"Seed {seed}: {cluster.faults}; logs in {tmp_path}")
        raise
