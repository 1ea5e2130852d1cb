"""The files of simulated processes: what crashes lose, full and slow disks, locks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import asyncmon as am
from asyncmon.errors import FailedPreconditionError
from asyncmon.system.files import in_thread, system_calls
from tests.simulation import (
    Disk,
    Faults,
    SimulationError,
    at,
    crash,
    crash_at_write,
    fill_disk,
    inject,
    kill,
    simulate,
    slow_disk,
    terminate,
)


class Acknowledged(am.CheckpointSaverListener):
    def __init__(self) -> None:
        self.step = 0

    async def after_save(self, session: object, global_step_value: int) -> None:
        self.step = global_step_value


async def train(saves: Acknowledged, last: int = 40, secs: float = 0.1) -> list[int]:
    """Count to a number of steps, and return the first and the last one of this life."""
    step = am.get_or_create_global_step()
    train_op = step.assign_add(1)
    hooks = [
        am.StopAtStepHook(last_step=last),
        am.CheckpointSaverHook("/run", save_steps=5, listeners=[saves]),
    ]
    async with am.MonitoredTrainingSession(
        checkpoint_dir="/run", save_checkpoint_secs=None, hooks=hooks
    ) as sess:
        first = reached = int(sess.global_step)
        assert first >= saves.step, "an acknowledged checkpoint is lost"
        while not sess.should_stop():
            await asyncio.sleep(secs)
            reached = int(await sess.run(train_op))
    return [first, reached]


def test_a_training_continues_from_its_last_checkpoint_after_a_crash() -> None:
    saves = Acknowledged()
    report = simulate({"train": lambda: train(saves)}, [at(2.27, crash("train", restart_secs=5))])
    assert report.results == {"train": [20, 40]}
    assert "/run/model.ckpt-40.json" in report.disk.files()


def test_a_terminated_training_saves_and_continues_later() -> None:
    saves = Acknowledged()
    report = simulate({"train": lambda: train(saves)}, [at(2.27, terminate("train", 5))])
    assert report.results == {"train": [23, 40]}  # the current step is completed
    assert [line[14:] for line in report.log] == [
        "terminate train, start again in 5 s", "train ended", "start train", "train ended",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_no_acknowledged_checkpoint_is_lost_by_a_crash_during_a_save(seed: int) -> None:
    saves = Acknowledged()
    changes = 3 * seed
    report = simulate(
        {"train": lambda: train(saves)}, [at(1.7, crash_at_write("train", changes, 1))], seed=seed
    )
    assert report.results["train"][1] == 40
    assert report.results["train"][0] > 0


def test_a_full_disk_is_an_error_of_the_save() -> None:
    saves = Acknowledged()
    with pytest.raises(am.errors.ResourceExhaustedError, match="No space left"):
        simulate({"train": lambda: train(saves)}, [at(1, fill_disk(10))])


@pytest.mark.campaign("disk", short=5)
def test_no_acknowledged_checkpoint_is_lost_by_faults_of_the_disk(seed: int) -> None:
    """A full disk ends the training, which is started again, as a service manager would do."""
    saves = Acknowledged()

    async def restarted() -> list[int]:
        while True:
            try:
                return await train(saves)
            except am.errors.ResourceExhaustedError:
                await asyncio.sleep(1)

    kinds = ["crash", "crash_at_write", "kill", "fill_disk", "slow_disk"]
    faults = Faults(secs=5, count=5, kinds=kinds, longest=4)
    report = simulate({"train": restarted}, seed=seed, faults=faults, deadline_secs=200)
    assert report.results["train"][1] == 40


def test_a_slow_disk_delays_saves_and_not_steps() -> None:
    saves = Acknowledged()
    usual = simulate({"train": lambda: train(saves, 100)})
    slow = simulate({"train": lambda: train(Acknowledged(), 100)}, [at(2, slow_disk(0.005, 4))])
    assert slow.ends["train"] < usual.ends["train"] + 3
    assert slow.results == usual.results


def test_a_kill_keeps_what_was_written_and_releases_locks() -> None:
    async def write() -> bytes:
        calls, path = system_calls.get(), Path("/file")
        if calls.exists(path):
            descriptor = calls.open_regular(path)
            calls.lock(descriptor)
            try:
                return calls.read(descriptor, 0, 10)
            finally:
                calls.close(descriptor)
        await in_thread(calls.append, path, b"a", False)
        calls.lock(calls.open_regular(path))
        inject(kill("a", restart_secs=1))
        return b""

    assert simulate({"a": write}).results == {"a": b"a"}


def test_a_crash_loses_names_and_contents_that_were_not_flushed() -> None:
    async def write() -> dict[str, bytes]:
        calls = system_calls.get()
        if not disk.exists("/durable"):
            calls.write_file(Path("/durable"), b"1")
            calls.sync_directory(Path("/"))
            calls.write_file(Path("/no-name"), b"2")
            descriptor = calls.open(Path("/durable"), os.O_WRONLY)
            calls.write(descriptor, b"3")
            inject(crash("a", restart_secs=1))
        return disk.files()

    found = set()
    for seed in range(30):
        disk = Disk()
        files = simulate({"a": write}, seed=seed, disk=disk).results["a"]
        found.add((files["/durable"], "/no-name" in files))
    assert found == {(b"1", True), (b"3", True), (b"1", False), (b"3", False)}


def test_two_processes_cannot_save_into_one_directory() -> None:
    with pytest.raises(FailedPreconditionError, match="Another process saves checkpoints"):
        simulate({"a": lambda: train(Acknowledged()), "b": lambda: train(Acknowledged())})


def test_a_file_that_is_left_open_is_an_error() -> None:
    async def main() -> None:
        system_calls.get().open(Path("/file"), os.O_CREAT)

    with pytest.raises(SimulationError, match="a: open file /file"):
        simulate({"a": main})
