"""Retries in place, and the end of recoveries that make no progress."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import weakref
from pathlib import Path
from typing import Any

import pytest

from asyncmon import MonitoredTrainingSession
from asyncmon.errors import UnavailableError
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import ChiefSessionCreator, MonitoredSession, Recovery
from asyncmon.system import clock
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession, fail_at_step

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_an_error_that_comes_back_at_one_step_ends_as_itself(tmp_path: Path) -> None:
    """Good steps on the way there are no progress."""
    program, failures = FunctionProgram({"n": 0}), 0

    @program.step
    async def train(state: Any) -> None:
        nonlocal failures
        if state["n"] == 6:
            failures += 1
            raise UnavailableError("the service refuses item 7")
        state["n"] += 1

    sess = MonitoredTrainingSession(
        checkpoint_dir=tmp_path, program=program, save_checkpoint_steps=4,
        recovery=Recovery(max_attempts=3),
    )  # fmt: skip

    async def train_on() -> None:
        async with sess:
            while True:
                await sess.run("train")

    with pytest.raises(UnavailableError, match="refuses item 7") as caught:
        await train_on()
    assert failures == 4
    assert "Given up after 4 failures in a row, without a step beyond 6." in caught.value.__notes__


async def test_pauses_grow_while_no_new_step_is_reached(tmp_path: Path) -> None:
    program, at = FunctionProgram({"n": 0}), list[float]()

    @program.step
    async def train(state: Any) -> None:
        if state["n"] == 2 and len(at) < 5:
            at.append(clock.monotonic())
            raise UnavailableError("late")
        state["n"] += 1

    sess = MonitoredTrainingSession(checkpoint_dir=tmp_path, program=program)
    async with sess:
        while sess.global_step != 3:
            await sess.run("train")
    assert [round(b - a, 3) for a, b in itertools.pairwise(at)] == [0.0, 0.1, 0.2, 0.4]


async def test_an_error_that_was_recovered_from_keeps_no_frames() -> None:
    """Else the data of its callers would live as long as the session, which keeps the error."""

    class Data:
        pass

    async def step(sess: MonitoredSession) -> weakref.ref[Data]:
        data = Data()
        await sess.run("train")
        return weakref.ref(data)

    hook = fail_at_step(1, moment="after_run")
    gc.disable()
    try:
        creator = ScriptedCreator(ScriptedSession(), ScriptedSession())
        async with MonitoredSession(creator, [hook]) as sess:
            data = await step(sess)
            assert sess.statistics().recoveries == 1
            assert data() is None
    finally:
        gc.enable()


class TestRetries:
    def flaky(self, failures: int) -> tuple[FunctionProgram, list[float]]:
        """Return a program that fails in place of its second step, and the times of all calls."""
        program, calls = FunctionProgram({"n": 0}), list[float]()

        @program.step
        async def train(state: Any, item: int = 0) -> int:
            calls.append(clock.monotonic())
            state["n"] += 1
            if 1 < len(calls) <= 1 + failures:
                raise UnavailableError("503")
            return item

        return program, calls

    async def test_a_failed_step_is_repeated_in_place_without_its_hooks(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        program, calls = self.flaky(2)
        hook = RecordingHook(fetches="train")
        creator = ChiefSessionCreator(program=program)
        async with MonitoredSession(creator, [hook], recovery=Recovery(retries=3)) as sess:
            for item in range(3):
                assert await sess.run("train", {"item": item}) == item
            assert sess.statistics().recoveries == 0
        assert len(calls) == 5
        assert hook.moments().count("before_run") == hook.moments().count("after_run") == 3
        first, second = calls[2] - calls[1], calls[3] - calls[2]
        assert 0.05 <= first <= 0.1 <= second <= 0.2
        lines = [line for line in caplog.messages if "repeated in place" in line]
        assert [line.rpartition(", ")[2] for line in lines] == [
            "attempt 1 of 3: UnavailableError: 503", "attempt 2 of 3: UnavailableError: 503",
        ]  # fmt: skip

    async def test_after_the_retries_the_session_recovers(self, tmp_path: Path) -> None:
        program, calls = self.flaky(2)
        sess = MonitoredTrainingSession(
            checkpoint_dir=tmp_path, program=program, recovery=Recovery(retries=1)
        )
        async with sess:
            for _ in range(3):
                await sess.run("train")
            assert (sess.global_step, sess.statistics().recoveries) == (2, 1)
        assert len(calls) == 5

    async def test_another_error_is_not_repeated(self) -> None:
        program, calls = FunctionProgram({"n": 0}), list[int]()

        @program.step
        def train(state: Any) -> None:
            calls.append(1)
            raise ZeroDivisionError

        creator = ChiefSessionCreator(program=program)
        with pytest.raises(ZeroDivisionError):
            async with MonitoredSession(creator, recovery=Recovery(retries=3)) as sess:
                await sess.run("train")
        assert calls == [1]

    async def test_a_session_that_may_have_changed_half_way_recovers_at_once(self) -> None:
        sessions = ScriptedSession([UnavailableError("gone")]), ScriptedSession()
        creator = ScriptedCreator(*sessions)
        async with MonitoredSession(creator, recovery=Recovery(retries=3)) as sess:
            await sess.run("train")
            assert sess.statistics().recoveries == 1

    async def test_a_stop_ends_the_pause_and_the_error_is_raised(self) -> None:
        program, _ = self.flaky(9)
        recovery = Recovery(retries=9, first_delay_secs=1000, max_delay_secs=1000)
        sess = MonitoredSession(ChiefSessionCreator(program=program), recovery=recovery)

        async def train() -> None:
            async with sess:
                asyncio.get_running_loop().call_later(5, sess.request_stop, "enough")
                await sess.run("train")
                await sess.run("train")

        with pytest.raises(UnavailableError):
            await train()
        assert clock.monotonic() < 10

    async def test_a_service_that_fails_now_and_then_costs_little(self, tmp_path: Path) -> None:
        """200 steps with 5 % of failing calls."""
        program, calls, failures, rng = FunctionProgram({"n": 0}), 0, 0, random.Random(1)

        @program.step
        async def load(state: Any, item: int) -> None:
            nonlocal calls, failures
            calls += 1
            if rng.random() < 0.05:
                failures += 1
                raise UnavailableError("503")
            state["n"] += 1

        sess = MonitoredTrainingSession(
            checkpoint_dir=tmp_path, program=program, recovery=Recovery(retries=3, max_attempts=5)
        )
        async with sess:
            async for item in sess.iterate(range(200)):
                await sess.run("load", {"item": item})
            assert sess.global_step == 200
        assert calls == 200 + failures

    @pytest.mark.parametrize("retries", [-1, 1.5, None])
    async def test_a_number_of_retries_is_whole(self, retries: Any) -> None:
        with pytest.raises(ValueError, match="retries must be a whole number, 0 or more"):
            Recovery(retries=retries)
