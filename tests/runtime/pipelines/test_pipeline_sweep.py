"""A training with a pipeline, interrupted at each await of its calls, its learner and its evaluator."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.pipelines import Policy
from asyncmon.testing import VirtualTimeLoop, assert_nothing_left_behind
from tests.faults import AtAwait

COUNT = 12
INTERRUPTED = 1
"""The element whose calls are interrupted: one of the first, so that it waits for a newer version."""


class Injected(Exception):
    """An error at an await."""


class Training:
    """Uses each element once, beside an evaluator.

    Args:
        directory: of the checkpoints.
        role: whose awaits are interrupted: a call, the learner or the evaluator.
        at: the number of the await; -1 for none.
        what: happens there. A kill leaves the files of that moment, in another directory.
    """

    def __init__(self, directory: Path, role: str = "", at: int = -1, what: str = "") -> None:
        self.directory, self.role, self.at, self.what = directory, role, at, what
        self.killed = directory.with_name(f"{directory.name}-killed")
        self.is_reached = False
        self.session: Any = None
        self.counts: list[int] = []

    def drive(self, role: str, coro: Coroutine[Any, Any, Any]) -> AtAwait:
        at = self.at if role == self.role and not self.is_reached else -1
        return AtAwait(coro, at, self.act)

    def act(self) -> Exception | None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self.is_reached = True
        if self.what == "error":
            return Injected()
        if self.what == "cancel":
            loop.call_soon(task.cancel)
        elif self.what == "stop":
            loop.call_soon(self.session.request_stop, "injected")
        else:
            # Not files that a rename may replace during the copy: no resume reads them.
            unfinished = shutil.ignore_patterns("*.new")
            shutil.copytree(self.directory, self.killed, ignore=unfinished, dirs_exist_ok=True)
        return None

    async def make(self, element: int, policy: Policy) -> int:
        await policy.weights()
        await asyncio.sleep(0.02 * (1 + element % 3))
        if element == INTERRUPTED and not policy.version:
            newer = await policy.wait_newer()
            await newer.weights()
        return element

    async def call(self, element: int, policy: Policy) -> int:
        coro = self.make(element, policy)
        made: int = await (self.drive("call", coro) if element == INTERRUPTED else coro)
        return made

    async def evaluate(self) -> None:
        await self.drive("evaluator", self.look())

    async def look(self) -> None:
        while True:
            await self.session.peek("counts")
            await asyncio.sleep(0.03)

    async def train(self) -> None:
        program = FunctionProgram({"counts": np.zeros(COUNT, np.int64)})

        @program.step
        async def use(state: Any, batch: Any) -> None:
            await asyncio.sleep(0.01)
            state["counts"][batch] += 1

        self.session = am.MonitoredTrainingSession(
            program=program, checkpoint_dir=self.directory, signals=None, save_checkpoint_steps=2,
            save_checkpoint_secs=None, save_summaries_steps=0, log_step_count_steps=0,
        )  # fmt: skip
        async with self.session as sess:
            sess.coord.create_task(self.evaluate, cancel_on_stop=True)
            await self.drive("learner", self.learn())

    async def learn(self) -> None:
        sess = self.session
        made = sess.produce(
            range(COUNT), self.call, workers=4, max_age=2, weights="counts", name="made"
        )
        async for batch in made.batches(2):
            assert max(item.age for item in batch) <= 2
            await sess.run("use", {"batch": [item.value for item in batch]})
        self.counts = (await sess.peek("counts")).tolist()

    async def run(self) -> BaseException | None:
        """Train in a task of its own, to the end; return its error."""
        self.directory.mkdir(exist_ok=True)
        async with assert_nothing_left_behind(self.directory):
            task = asyncio.create_task(self.train())
            await asyncio.wait([task])
            if task.cancelled():
                return asyncio.CancelledError()
            error = task.exception()
            del task
            if error is not None:
                error.__traceback__ = None  # whose frames hold open resources
        return error


ENDS: dict[tuple[str, str], type[BaseException] | None] = {
    ("call", "error"): Injected,
    ("learner", "error"): Injected,
    ("evaluator", "error"): Injected,
    ("learner", "cancel"): asyncio.CancelledError,
}
"""The errors that trainings end with; others end without one."""


async def interrupted(one: Training) -> bool:
    """Interrupt a training and resume it. Return whether the await was reached."""
    error = await one.run()
    if not one.is_reached:
        assert error is None
        return False
    wanted = ENDS.get((one.role, one.what))
    assert error is None if wanted is None else isinstance(error, wanted), (one.at, error)
    if (one.role, one.what) in (("call", "cancel"), ("evaluator", "cancel")):
        assert one.counts == [1] * COUNT  # another task makes the call; the session continues
    resumed = Training(one.killed if one.what == "kill" else one.directory)
    assert await resumed.run() is None
    assert resumed.counts == [1] * COUNT, (one.at, resumed.counts)
    return True


@pytest.mark.parametrize("what", ["cancel", "error", "stop", "kill"])
# A call whose weights come late waits for no newer version: two awaits are certain.
@pytest.mark.parametrize(("role", "least"), [("call", 2), ("evaluator", 6), ("learner", 12)])
def test_interrupted_at_each_await(tmp_path: Path, role: str, what: str, least: int) -> None:
    at = 1
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        while runner.run(interrupted(Training(tmp_path / str(at), role, at, what))):
            at += 1
    assert at > least
