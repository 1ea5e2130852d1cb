"""Runs call none of the hooks that idle until the first step that one of them waits for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncmon as am
from asyncmon.graph import RunOptions
from asyncmon.hooks import StopAtStepHook
from asyncmon.runtime import (
    MonitoredSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.testing import ScriptedCreator, ScriptedSession

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Both(SessionRunHook):
    """Idles until each multiple of a period, and fetches a value in each run that calls it."""

    def __init__(self, period: int) -> None:
        self.period = period
        self.idle_until_step: float | None = period
        self.told: list[tuple[int | None, Any]] = []
        self.asked = 0

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        self.asked += 1
        return SessionRunArgs("x")

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self.told.append((run_values.step, run_values.results))
        step = run_values.step or 0
        if self.idle_until_step is not None and step >= self.idle_until_step:
            self.idle_until_step = (step // self.period + 1) * self.period

    @property
    def steps(self) -> list[int | None]:
        assert self.asked == len(self.told)
        return [step for step, _ in self.told]


class AfterOnly(Both):
    before_run = SessionRunHook.before_run

    @property
    def steps(self) -> list[int | None]:
        return [step for step, _ in self.told]


def reaching(*steps: int) -> ScriptedSession:
    """Return a session whose runs reach these global steps."""
    return ScriptedSession([{"global_step": step} for step in steps], values={"x": 1, "y": 2})


async def run_all(session: ScriptedSession, *hooks: Any, runs: int) -> None:
    async with MonitoredSession(ScriptedCreator(session), hooks) as sess:
        for _ in range(runs):
            await sess.run("y")


async def test_hooks_that_idle_are_called_in_the_runs_that_reach_the_first_of_their_steps() -> None:
    session, both, after = ScriptedSession(values={"x": 1}), Both(3), AfterOnly(4)
    await run_all(session, both, after, runs=9)
    assert both.told == [(3, 1), (4, 1), (6, 1), (8, 1), (9, 1)]
    assert after.steps == [3, 4, 6, 8, 9]
    assert session.runs == ["y", "y", *[("y", "x")] * 2, "y", ("y", "x"), "y", *[("y", "x")] * 2]


class Always(SessionRunHook):
    """Fetches another value in every run."""

    def __init__(self) -> None:
        self.told: list[tuple[int | None, Any]] = []

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs("y")

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self.told.append((run_values.step, run_values.results))


async def test_the_others_idle_beside_a_hook_that_every_run_calls() -> None:
    always, both, after = Always(), Both(2), AfterOnly(3)
    session = ScriptedSession(values={"x": 1, "y": 2})
    await run_all(session, both, always, after, runs=7)
    assert always.told == [(step, 2) for step in range(1, 8)]
    assert both.told == [(2, 1), (3, 1), (4, 1), (6, 1)]
    assert after.steps == [2, 3, 4, 6]
    assert session.runs[0] == ("y", "y")
    assert session.runs[1] == ("y", "x", "y")


async def test_a_run_that_wakes_hooks_beside_others_calls_all_in_their_order() -> None:
    always, both, after = Always(), Both(10), AfterOnly(10)
    await run_all(reaching(7, 14, 21, 22, 28, 35), after, always, both, runs=6)
    assert after.told == [(14, None), (21, None), (35, None)]
    assert [step for step, _ in always.told] == [7, 14, 21, 22, 28, 35]
    assert both.told == [(21, 1)]


async def test_a_run_that_advances_further_than_by_one_delays_only_hooks_with_a_before_run() -> None:
    both, after = Both(10), AfterOnly(10)
    await run_all(reaching(7, 14, 21, 22, 28, 35), both, after, runs=6)
    assert after.steps == [14, 21, 35]
    assert both.steps == [21]


async def test_a_stop_comes_at_the_exact_step_for_all_strides() -> None:
    session = reaching(1, 2, 12, 13)
    async with MonitoredSession(ScriptedCreator(session), [StopAtStepHook(last_step=10)]) as sess:
        while not sess.should_stop():
            await sess.run("y")
    assert session.global_step == 12


async def test_a_run_that_does_not_advance_wakes_all_hooks_for_the_next() -> None:
    both, after = Both(10), AfterOnly(10)
    await run_all(reaching(1, 1, 2, 3), both, after, runs=4)
    assert both.steps == after.steps == [2]


async def test_a_step_that_goes_back_wakes_hooks_with_an_after_run_at_once() -> None:
    both, after = Both(1000), AfterOnly(1000)
    await run_all(reaching(51, 52, 20, 21, 22), both, after, runs=5)
    assert after.steps == [20, 21]
    assert both.steps == [21]


@pytest.mark.parametrize("beside", [(), (SessionRunHook(),)])
async def test_a_step_that_went_back_between_runs_wakes_all_hooks(beside: Any) -> None:
    both, after, session = Both(1000), AfterOnly(1000), reaching(51, 52, 20, 21, 22)
    async with MonitoredSession(ScriptedCreator(session), [both, after, *beside]) as sess:
        for i in range(5):
            await sess.run("y", hooks=i != 2)
    assert both.steps == after.steps == [21]


async def test_options_and_samples_join_a_run_with_idle_hooks() -> None:
    both = Both(100)
    session = ScriptedSession(values={"x": 1, "y": 2, "s": 3})
    metadata = am.graph.RunMetadata()
    async with MonitoredSession(ScriptedCreator(session), [both]) as sess:
        await sess.run("y", options=RunOptions(), run_metadata=metadata)
        coord = sess.coord
        assert coord is not None
        sample = coord.create_task(coord.sample, "s", name="sample")
        await am.testing.wait_all_tasks_blocked()
        assert await sess.run("y") == 2
        await sample
        assert session.runs == ["y", ("y", "x", "s")]
    assert both.steps == [2], "a sample wakes all"


async def test_infinity_is_a_step_that_never_comes() -> None:
    never = Both(5)
    never.idle_until_step = math.inf
    await run_all(ScriptedSession(values={"x": 1}), never, runs=6)
    assert never.steps == []


async def test_a_hook_that_stops_idling_is_called_in_each_run() -> None:
    class Waking(AfterOnly):
        async def after_run(self, run_context: SessionRunContext, values: SessionRunValues) -> None:
            await super().after_run(run_context, values)
            self.idle_until_step = None

    await run_all(ScriptedSession(values={"x": 1}), waking := Waking(3), runs=5)
    assert waking.steps == [3, 4, 5]


async def test_a_subclass_that_overrides_a_moment_of_a_step_is_called_in_each_run() -> None:
    steps = []

    class Watching(StopAtStepHook):
        async def after_run(self, run_context: SessionRunContext, values: SessionRunValues) -> None:
            steps.append(values.step)
            await super().after_run(run_context, values)

    await run_all(ScriptedSession(), Watching(last_step=10), StopAtStepHook(last_step=20), runs=3)
    assert steps == [1, 2, 3]


async def test_a_program_without_steps_calls_all_hooks() -> None:
    class Uncounted(ScriptedSession):
        @property
        def global_step(self) -> Any:
            return None

        async def run(self, fetches: Any, *args: Any, **named: Any) -> None:
            assert fetches == "y"

    after = AfterOnly(100)
    await run_all(Uncounted(values={"x": 1}), after, runs=2)
    assert after.steps == [None, None]


async def test_a_raw_session_without_a_global_step_calls_all_hooks() -> None:
    class Bare:
        graph = None

        async def run(self, fetches: Any, *args: Any, **named: Any) -> Any:
            return fetches

        async def close(self) -> None: ...

    class Creator:
        async def create_session(self) -> Any:
            return Bare()

    after = AfterOnly(100)
    async with MonitoredSession(Creator(), [after]) as sess:
        assert [await sess.run("y") for _ in range(2)] == ["y", "y"]
    assert after.steps == [None, None]


async def test_a_wrong_step_is_refused_when_the_hook_is_added() -> None:
    hook = Both(3)
    hook.idle_until_step = "soon"  # type: ignore[assignment]  # refused
    with pytest.raises(ValueError, match=r"Both\.idle_until_step must be .* got 'soon'"):
        MonitoredSession(hooks=[hook])


def due(steps: Iterable[int], period: int) -> list[int]:
    """Return, by hand, after which of some runs a hook is called that wants no fetches."""
    called, until, before, woken = [], period, 0, False
    for step in steps:
        if woken or step >= until or step < before or before + 1 >= until:
            called.append(step)
            if step >= until:
                until = (step // period + 1) * period
        before, woken = step, step <= before
    return called


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(1, 20), st.booleans())
async def test_any_course_of_steps(steps: list[int], period: int, beside: bool) -> None:
    after, always = AfterOnly(period), Always()
    await run_all(reaching(*steps), after, *[always] * beside, runs=len(steps))
    assert after.steps == due(steps, period)
    assert [step for step, _ in always.told] == steps * beside
