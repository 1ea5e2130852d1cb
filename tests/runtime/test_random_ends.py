"""Random ends of trainings: stops, errors, groups, sources that fail or hang. None loses its state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.errors import OutOfRangeError
from asyncmon.programs import FunctionProgram
from asyncmon.testing import RecordingHook, assert_nothing_left_behind

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

GRACE = 20.0
LIMIT = 200.0
LATER = ["request", "preempted", "signal", "cancel", "task"]
MOMENTS = ["before_run", "after_run", "background", "end", "cleanup"]


class Trouble(Exception):
    """The kinds of injected events."""


class Ending:
    """The cause of one end of a training, drawn at random, its moment, and the clean-up."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.at = dice.randrange(1, 12)
        self.by = dice.choice([*LATER, "hook", "body", "data", "break", "moment"])
        errors = [
            Trouble("injected"),
            OutOfRangeError("no more"),
            StopAsyncIteration(),
            GeneratorExit(),
        ]
        self.error: BaseException | None = dice.choice([None, *errors])
        if dice.random() < 0.3 and isinstance(self.error, Exception):
            self.error = ExceptionGroup("several", [self.error])
        self.moment = dice.choice(MOMENTS)
        self.clean_up = dice.choice(["none", "none", "fails", "hangs", "group"])
        self.step = dice.choice(["quick", "slow", "hangs", "stubborn"])
        self.policy = dice.choice(["raise", "raise", "log", "detach"])

    def __str__(self) -> str:
        return (
            f"{self.by} at {self.at} with {self.error!r} in {self.moment}, the source {self.clean_up}, "
            f"the step {self.step}, {self.policy}"
        )

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error

    async def items(self) -> AsyncIterator[int]:
        """Yield numbers, from inside of what the clean-up has to leave."""
        try:
            if self.clean_up == "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(1000))
                    for i in range(100):
                        yield i
            for i in range(100):
                if self.by == "data" and i == self.at:
                    self.raise_error()
                    return
                yield i
        finally:
            if self.clean_up == "fails":
                raise Trouble("in the clean-up")
            if self.clean_up == "hangs":
                await asyncio.Event().wait()


class Injecting(am.SessionRunHook):
    """Raises in one moment, and requests stops."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        self.on_error = ending.policy
        self.fails = ending.by == "moment"

    async def _reach(self, moment: str, step: int | None) -> None:
        if self.fails and moment == self.ending.moment and (step is None or step >= self.ending.at):
            self.ending.raise_error()

    async def before_run(self, run_context: Any) -> None:
        await self._reach("before_run", run_context.session.global_step)

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        await self._reach("after_run", run_values.step)
        if self.ending.by == "hook" and run_values.step >= self.ending.at:
            run_context.request_stop("enough")

    async def background(self, session: Any, coord: Any) -> None:
        async for _ in coord.every(0.1):
            await self._reach("background", session.global_step)

    async def end(self, session: Any) -> None:
        await self._reach("end", None)

    async def cleanup(self, error: BaseException | None) -> None:
        await self._reach("cleanup", None)


def program(ending: Ending) -> FunctionProgram:
    made = FunctionProgram({"n": 0})

    @made.step
    async def train(state: Any) -> None:
        if state["n"] + 1 > ending.at and ending.step == "hangs":
            await asyncio.Event().wait()
        while state["n"] + 1 > ending.at and ending.step == "stubborn":
            with contextlib.suppress(BaseException):
                await asyncio.Event().wait()
        if ending.step == "slow":
            await asyncio.sleep(3)
        state["n"] += 1

    return made


async def act(ending: Ending, sess: am.MonitoredSession, body: asyncio.Task[Any]) -> None:
    """Do what ends the training, beside it or in a task of the session."""
    match ending.by:
        case "request":
            sess.request_stop("enough")
        case "preempted":
            sess.request_stop("enough", preempted=True)
        case "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        case "cancel":
            body.cancel()
        case "task":
            ending.raise_error()


async def train(ending: Ending, directory: Path, hooks: list[Any], ended: list[float]) -> None:
    """Train until the end, or until a stop after 200 s, as where a step hangs and nothing stops it."""
    sess = am.MonitoredTrainingSession(
        program=program(ending), checkpoint_dir=directory, hooks=hooks, stop_grace_period_secs=GRACE,
        save_checkpoint_steps=1000, save_summaries_steps=0, log_step_count_steps=0,
    )  # fmt: skip
    body = asyncio.current_task()
    assert body is not None
    loop = asyncio.get_running_loop()
    loop.call_later(LIMIT, sess.request_stop, "the test ends")

    async def later() -> None:
        assert sess.coord is not None
        async for _ in sess.coord.every(0.05):
            if (sess.global_step or 0) >= ending.at:
                ended.append(loop.time())
                await act(ending, sess, body)
                return

    async with sess:
        assert sess.coord is not None
        if ending.by in LATER:
            sess.coord.create_task(later, cancel_on_stop=ending.by != "cancel")
        async for _ in sess.iterate(ending.items()):
            await sess.run("train")
            if ending.by in ("break", "body") and (sess.global_step or 0) >= ending.at:
                ended.append(loop.time())
                if ending.by == "break":
                    break
                ending.raise_error()
            await asyncio.sleep(0.2)
        if not ended:
            ended.append(loop.time())


@pytest.mark.campaign("ends", short=24)
async def test_random_ends_lose_no_complete_state_and_none_hangs(tmp_path: Path, seed: int) -> None:
    ending = Ending(random.Random(seed))
    before, after = RecordingHook("before"), RecordingHook("after")
    hooks, ended = [before, Injecting(ending), after], list[float]()
    error: BaseException | None = None
    loop = asyncio.get_running_loop()
    async with assert_nothing_left_behind(tmp_path):
        training = asyncio.create_task(train(ending, tmp_path, hooks, ended))
        try:
            await training
        except BaseException as raised:
            error = raised
            raised.__traceback__ = None
        del training
    told = f"seed {seed}: {ending}; raised {error!r}"
    began = ended[0] if ended else LIMIT
    is_deaf = ending.by == "cancel" and ending.step == "stubborn"
    if is_deaf or (ending.by in ("task", "body") and ending.error is None):
        began = LIMIT  # nothing ends it before the stop: a step must obey a cancellation of its caller
    # The run, the clean-up of the data and the close have a period each where no signal came.
    assert loop.time() <= began + 3 * GRACE + 1, told
    assert before.moments().count("cleanup") == after.moments().count("cleanup") == 1, told
    steps = before.steps("after_run")
    latest = await am.latest_checkpoint(tmp_path) or ""
    if "end" in after.moments() and ending.by != "moment":
        assert latest.endswith(f"-{max(steps, default=0)}"), told
    if ending.by == "signal" and loop.time() > began:
        assert loop.time() <= began + GRACE + 1, told
        assert "end" in after.moments(), told
