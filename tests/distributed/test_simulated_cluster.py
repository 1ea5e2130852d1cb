"""A cluster of two parameter servers, a chief and two workers in one loop, with faults of all kinds."""

from __future__ import annotations

from typing import Any

import pytest

import asyncmon as am
from tests.distributed.simulated_cluster import Run
from tests.simulation import Faults, at, crash, disturb, inject, kill, partition, suspend

FAULTS = Faults(secs=5)


def test_a_cluster_counts_every_step_once() -> None:
    run = Run(save_steps=1)
    run.is_exact = True
    report = run.simulate()
    assert run.values["step"] == run.done
    assert set(run.values["apart"]) == {run.done}
    assert run.starts == {f"worker/{task}": [0] for task in range(3)}
    assert report.secs < 10


@pytest.mark.campaign("simulation", short=20)
def test_the_promises_hold_under_the_faults_of_a_seed(seed: int) -> None:
    Run().simulate(seed=seed, faults=FAULTS)


@pytest.mark.parametrize("secs", [0.024, 0.026, 0.028, 0.036, 0.044])
def test_a_chief_that_is_cut_off_while_it_initialises_loses_no_steps(secs: float) -> None:
    run = Run()
    run.simulate([at(secs, partition("chief", 7))])
    assert not run.rollbacks


def test_a_worker_suspended_for_longer_than_its_lease_stops_with_the_others() -> None:
    run = Run(last=60)
    report = run.simulate([at(1, suspend("worker/2", 9))])
    assert report.ends["chief"] < 10 < report.ends["worker/2"] < 11
    assert run.values["step"] < 60 + 3


def test_a_restarted_chief_keeps_the_newer_variables_of_a_running_training() -> None:
    run = Run(save_steps=100)  # so that the checkpoint is that of the beginning
    run.simulate([at(1.5, kill("chief", restart_secs=0.5))])
    (first, second) = run.starts["worker/0"]
    assert first == 0
    assert second > 40
    assert not run.rollbacks


def test_a_snapshot_superseded_by_a_recovery_ends_no_session() -> None:
    """A worker of each server waits in a snapshot while the chief restores lost variables."""

    class Lose(am.CheckpointSaverListener):
        async def before_save(self, session: Any, global_step_value: int) -> None:
            if global_step_value >= 30 and not lost:
                lost.append(global_step_value)
                inject(kill("ps/1", restart_secs=0.01))

    lost: list[int] = []
    run = Run(listeners=[Lose()])
    report = run.simulate()
    assert lost
    assert run.values["step"] >= 120
    assert len(report.results) == 3


@pytest.mark.parametrize("early", [0, 2])
def test_the_last_checkpoint_is_saved_after_a_failure_of_the_network(early: int) -> None:
    """Of the last save, or of one before that fails after the stop."""

    class Cut(am.CheckpointSaverListener):
        async def before_save(self, session: Any, global_step_value: int) -> None:
            if global_step_value >= run.last - early and not cuts:
                cuts.append(global_step_value)
                inject(partition("ps/1", 6.5))

    cuts: list[int] = []
    run = Run(last=30, save_steps=1, listeners=[Cut()])
    report = run.simulate()
    assert run.values["step"] == run.saved >= run.done
    assert report.ends["chief"] > 6


@pytest.mark.parametrize("seed", [73, 79, 83, 87])
def test_a_server_suspended_during_a_snapshot_releases_its_memory(seed: int) -> None:
    """The request of the snapshot and its cancellation arrive together afterwards."""
    Run(last=60, save_steps=2).simulate([at(1 + seed * 0.0011, suspend("ps/0", 8))], seed=seed)


@pytest.mark.parametrize("seed", [0, 28, 58])
def test_a_save_that_fails_after_the_stop_does_not_end_the_chief(seed: int) -> None:
    """Its result is lost with its connection. The last checkpoint follows.

    With 7 of 150 seeds a connection breaks in a recovery of the chief, which ends it with the error.
    """
    run = Run(last=20, save_steps=1)
    run.simulate([at(0.6, disturb(2, broken=0.06))], seed=seed)
    assert run.values["step"] == run.saved


def test_a_chief_that_missed_the_stop_ends_after_a_worker_has_restarted() -> None:
    run = Run()
    run.simulate([at(4.17, partition("chief", 2.43)), at(4.92, crash("worker/1", 3.42))])
    assert run.values["step"] >= 120


def test_a_chief_that_missed_the_stop_ends_at_each_step_of_its_run() -> None:
    Run().simulate(seed=1778, faults=FAULTS)
