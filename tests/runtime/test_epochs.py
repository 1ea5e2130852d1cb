"""Epochs are counted in checkpoints: three are three, however often the program is restarted."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.errors import AbortedError
from asyncmon.programs import FunctionProgram
from tests import forked

pytestmark = pytest.mark.asyncio


def program() -> FunctionProgram:
    made = FunctionProgram({"seen": np.zeros(4)})

    @made.step
    def add(state: Any, batch: Any) -> None:
        state["seen"][int(batch)] += 1

    return made


def data() -> am.data.Dataset:
    return am.data.from_iterable(range(4)).shuffle(4, seed=1)


class Crash(Exception):
    pass


def session(directory: Path, *hooks: Any) -> am.MonitoredSession:
    return am.MonitoredTrainingSession(
        program=program(), checkpoint_dir=str(directory), save_checkpoint_steps=1, hooks=list(hooks),
        save_checkpoint_secs=None,
    )  # fmt: skip


async def train(directory: Path, crash_after: int, ended: list[int]) -> tuple[int, list[float]]:
    async with session(directory) as sess:
        async for epoch in sess.epochs(data(), 3):
            async for batch in epoch:
                if crash_after == 0:
                    raise Crash
                crash_after -= 1
                await sess.run("add", {"batch": batch})
            ended.append(epoch.number)
        return sess.global_step or 0, (await sess.peek("seen")).tolist()


@pytest.mark.parametrize("seed", range(5))
async def test_three_epochs_are_three_however_often_it_crashes(tmp_path: Path, seed: int) -> None:
    chance, ended = random.Random(seed), list[int]()
    for _ in range(4):
        try:
            await train(tmp_path, chance.randrange(4), ended)
        except Crash:
            continue
    steps, seen = await train(tmp_path, 100, ended)
    assert steps == 12
    assert seen == [3.0] * 4
    assert set(ended) == {0, 1, 2}  # the end of an epoch is seen at least once
    assert await train(tmp_path, 100, ended) == (12, [3.0] * 4)


async def test_a_killed_process_does_each_element_of_each_epoch_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    for attempt in range(4):
        child = forked.Process("-c", KILLED, str(tmp_path / "runs"))
        lines = chance.randrange(1, 14) if attempt < 3 else 10**9
        last = ""
        while lines and (line := child.stdout.readline()):
            last, lines = line, lines - 1
        if attempt < 3:
            child.kill()
        child.communicate()
    assert json.loads(last) == {"steps": 30, "seen": [3.0] * 10}


KILLED = """
import asyncio, json, sys
import numpy as np
import asyncmon as am
from asyncmon.programs import FunctionProgram

program = FunctionProgram({"seen": np.zeros(10)})


@program.step
def add(state, batch):
    state["seen"][int(batch)] += 1


async def main():
    data = am.data.from_iterable(range(10)).shuffle(4, seed=3)
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=sys.argv[1], save_checkpoint_steps=2, save_checkpoint_secs=None
    ) as sess:
        async for epoch in sess.epochs(data, 3):
            async for batch in epoch:
                await sess.run("add", {"batch": batch})
                print(sess.global_step, flush=True)
                await asyncio.sleep(0.01)
        print(json.dumps({"steps": sess.global_step, "seen": (await sess.peek("seen")).tolist()}))


asyncio.run(main())
"""


async def test_a_recovery_goes_back_to_the_epoch_of_the_state(tmp_path: Path) -> None:
    class Fails(am.SessionRunHook):
        calls = 0

        async def before_run(self, run_context: Any) -> None:
            self.calls += 1
            if self.calls in (3, 6, 11):
                raise AbortedError("preempted")

    async with session(tmp_path, Fails()) as sess:
        async for epoch in sess.epochs(data(), 3):
            async for batch in epoch:
                await sess.run("add", {"batch": batch})
        assert sess.global_step == 12
        assert (await sess.peek("seen")).tolist() == [3.0] * 4


async def test_leaving_an_epoch_skips_its_rest(tmp_path: Path) -> None:
    first = []
    async with session(tmp_path) as sess:
        async for epoch in sess.epochs(range(4), 3):
            async for batch in epoch:
                first.append((epoch.number, batch))
                if epoch.number == 1:
                    break
                await sess.run("add", {"batch": batch})
        assert sess.global_step == 8
    assert first == [*[(0, i) for i in range(4)], (1, 0), *[(2, i) for i in range(4)]]


async def test_a_stop_ends_the_epoch_and_the_epochs(tmp_path: Path) -> None:
    numbers = []
    async with session(tmp_path, am.StopAtStepHook(last_step=6)) as sess:
        async for epoch in sess.epochs(data()):
            numbers.append(epoch.number)
            async for batch in epoch:
                await sess.run("add", {"batch": batch})
    assert numbers == [0, 1]
    async with session(tmp_path, am.StopAtStepHook(last_step=9)) as sess:
        async for epoch in sess.epochs(data()):
            numbers.append(epoch.number)
            async for batch in epoch:
                await sess.run("add", {"batch": batch})
    assert numbers == [0, 1, 1, 2]
    assert repr(epoch) == "epoch 3"


async def test_what_can_be_read_once_has_no_epochs(tmp_path: Path) -> None:
    async with session(tmp_path) as sess:
        with pytest.raises(TypeError, match="for each pass, got <generator"):
            sess.epochs((i for i in range(3)), 2)
