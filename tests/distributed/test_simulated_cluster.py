"""A cluster of two parameter servers, a chief and two workers in one loop, with faults of all kinds."""

from __future__ import annotations

from typing import Any

import pytest

import asyncmon as am
from asyncmon.testing.simulation import Faults, inject, partition
from tests.distributed.simulated_cluster import Run

FAULTS = Faults(secs=5)


def test_a_cluster_counts_every_step_once() -> None:
    run = Run()
    report = run.simulate()
    assert run.values["step"] == run.done
    assert set(run.values["apart"]) == {run.done}
    assert run.starts == {f"worker/{task}": [0] for task in range(3)}
    assert report.secs < 10


@pytest.mark.parametrize("seed", range(50))
def test_the_promises_hold_under_the_faults_of_a_seed(seed: int) -> None:
    Run().simulate(seed=seed, faults=FAULTS)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_the_promises_hold_under_the_faults_of_1000_seeds(first: int) -> None:
    for seed in range(first, first + 100):
        Run().simulate(seed=seed, faults=FAULTS)


def test_the_last_checkpoint_is_tried_again_after_a_failure_of_the_network() -> None:
    class Cut(am.CheckpointSaverListener):
        async def before_save(self, session: Any, global_step_value: int) -> None:
            if global_step_value >= run.last and not cuts:
                cuts.append(global_step_value)
                inject(partition("ps/1", 7))

    cuts: list[int] = []
    run = Run(last=30, listeners=[Cut()])
    report = run.simulate()
    assert run.values["step"] == cuts[0] == run.saved
    assert report.ends["chief"] > 6
