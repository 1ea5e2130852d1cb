"""After a crash of the machine at any call, acknowledged saves are there, unflushed data may be lost.

A save, retention and ``prune`` run on a simulated disk. Before each change of it, the disks are made as
they may be after a crash then: without unflushed data, with all renames and deletions but empty
files, and with everything.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import KeepBest, Saver, prune
from tests.simulation import Disk, simulate

MakeSession = Callable[..., Any]


class Crashes:
    """The disks after a crash at each change, and the newest step that was acknowledged before."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.disk.before_change = self.note
        self.acknowledged: int | None = None
        self.newest = 0
        self.found: dict[tuple[Any, ...], tuple[str, int, Disk]] = {}

    def note(self) -> None:
        if self.acknowledged is not None:
            for lost, disk in self.disk.variants():
                key = (*sorted(disk.files().items()), self.acknowledged)
                self.found.setdefault(key, (lost, self.acknowledged, disk))

    def acknowledge(self, step: int) -> None:
        self.acknowledged = self.newest = step
        self.note()

    def check(self, make_session: MakeSession, prefix: str) -> None:
        assert len(self.found) > 10
        seen = set()
        for lost, least, disk in self.found.values():
            report = simulate({"restore": lambda: restored(make_session, prefix)}, disk=disk)
            step = report.results["restore"]
            assert (step or 0) >= least, (lost, sorted(disk.files()))
            seen.add(step)
        assert self.newest in seen


async def restored(make_session: MakeSession, directory: str) -> int | None:
    session = make_session(global_step=np.int64(-1), a=np.zeros(20))
    saver = Saver(max_to_keep=2)
    path = await saver.restore_latest(session, directory)
    if path is None:
        return None
    step = int(session.state["global_step"])
    assert (session.state["a"] == step).all()
    await saver.save(session, f"{directory}/m", 99)  # tidies up, and works
    await saver.close()
    return step


def run(crashes: Crashes, main: Callable[[], Awaitable[None]]) -> None:
    simulate({"main": main}, disk=crashes.disk)


@pytest.mark.campaign("lost-writes", short=2)
def test_every_acknowledged_checkpoint_survives_a_crash_of_the_machine(
    make_session: MakeSession, seed: int
) -> None:
    """Saves, a step that is saved twice, retention and prunes in an order that the seed decides."""
    crashes, dice = Crashes(), random.Random(seed)

    async def main() -> None:
        saver = Saver(
            max_to_keep=dice.choice([1, 2, 2, 3]),
            keep_best=dice.choice([KeepBest("loss"), None]),
            keep_checkpoint_every_n_hours=1e9,
        )
        crashes.acknowledge(0)
        for step in (1, 2, 2, *range(3, dice.choice([4, 5, 6]))):
            session = make_session(global_step=np.int64(step), a=np.full(20, float(step)))
            await saver.save(session, "/deep/run/m", step, metrics={"loss": dice.random()})
            crashes.acknowledge(step)
            if dice.random() < 0.2:
                await prune("/deep/run", dice.choice([1, 2]))
        await saver.close()

    run(crashes, main)
    crashes.check(make_session, "/deep/run")


def test_a_prune_loses_nothing_in_a_crash_of_the_machine(make_session: MakeSession) -> None:
    crashes = Crashes()

    async def main() -> None:
        saver = Saver(max_to_keep=None)
        for step in (1, 2, 3):
            session = make_session(global_step=np.int64(step), a=np.full(20, float(step)))
            await saver.save(session, "/run/m", step)
        await saver.close()
        crashes.acknowledge(3)
        assert len((await prune("/run", 1)).deleted) == 2

    run(crashes, main)
    crashes.check(make_session, "/run")
