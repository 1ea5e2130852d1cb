"""Keep the best: a metric is saved with the state that it was computed on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import (
    CheckpointReader,
    KeepBest,
    Saver,
    get_checkpoint_state,
    load_checkpoint,
)
from asyncmon.data import from_iterable
from asyncmon.hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    EvalHook,
    veto_saving,
)
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import ChiefSessionCreator, MonitoredSession, Scaffold, SessionRunHook

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

SCORES = {5: 0.5, 10: 0.9, 15: 0.7, 20: 0.6, 25: 0.95, 30: 0.1}


def program(eval_secs: float) -> FunctionProgram:
    """A step adds one to w in a second; an evaluation gives the score of w, later."""
    made = FunctionProgram(state={"w": 0.0})

    @made.step
    async def train(state: Any) -> None:
        await asyncio.sleep(1)
        state["w"] += 1

    @made.step(read_only=True)
    async def test(state: Any) -> dict[str, float]:
        await asyncio.sleep(eval_secs)
        return {"score": SCORES.get(int(state["w"]), 0.0), "w": float(state["w"])}

    return made


class Counting(SessionRunHook):
    """Counts the runs, as a state in checkpoints."""

    runs = 0

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.runs += 1

    def state_dict(self) -> dict[str, int]:
        return {"runs": self.runs}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.runs = state["runs"]


def by_hook(evaluation: EvalHook) -> Any:
    return evaluation


def by_function(evaluation: EvalHook) -> Any:
    return lambda: evaluation.metrics


async def check(folder: Path) -> dict[int, float]:
    """Return the scores of the kept checkpoints, after a check of each one's metrics and states."""
    state = await get_checkpoint_state(folder)
    assert state is not None
    scores = {}
    for path in state.all_model_checkpoint_paths:
        async with await CheckpointReader.open(path) as reader:
            step, metrics = reader.facts.step, reader.facts.metrics
            assert step == await reader.get_tensor("w") == int(path.rpartition("-")[2])
            if metrics:
                assert metrics == {"score": SCORES.get(step, 0.0), "w": step}
            scores[step] = metrics.get("score", -1.0)
            states = await reader.states()
            assert states["hooks/Counting"]["runs"] == step
            assert step == 0 or states["data"]["step"] == step
    return scores


@pytest.mark.parametrize("metrics", [by_hook, by_function])
@pytest.mark.parametrize("when", [{"every_steps": 5}, {"every_secs": 5}])
@pytest.mark.parametrize("saving", [{"save_steps": 4}, {"save_secs": 3}])
async def test_the_evaluated_state_is_saved_with_its_metrics(
    tmp_path: Path, metrics: Callable[..., Any], when: Any, saving: Any
) -> None:
    """An evaluation of 2.5 s ends after other steps, and after other checkpoints."""
    evaluation = EvalHook("test", **when)
    saver = Saver(max_to_keep=2, keep_best=KeepBest("score", k=2, mode="max"))
    hook = CheckpointSaverHook(tmp_path, saver=saver, metrics=metrics(evaluation), **saving)
    creator = ChiefSessionCreator(program=program(2.5))
    async with MonitoredSession(creator, [evaluation, Counting(), hook]) as sess:
        async for _ in sess.iterate(from_iterable(range(30))):
            await sess.run("train")
    scores = await check(tmp_path)
    best = sorted(scores, key=lambda step: scores[step])[-2:]
    assert 30 in scores
    if "every_steps" in when:
        assert best == [10, 25]
        assert len(scores) == 4
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.model_checkpoint_path.endswith("-30")
    steps = [int(path.rpartition("-")[2]) for path in state.all_model_checkpoint_paths]
    assert steps == sorted(steps)


@pytest.mark.parametrize("metrics", [by_hook, by_function])
async def test_a_resumed_session_saves_what_was_evaluated_before_its_first_save(
    tmp_path: Path, metrics: Callable[..., Any]
) -> None:
    """Step 13, whose evaluation ends after the save of step 14; with the states of hooks and data."""
    for last in (8, 17):
        evaluation = EvalHook("test", every_steps=13)
        saver = Saver(max_to_keep=1, keep_best=KeepBest("score", mode="min"))
        hook = CheckpointSaverHook(tmp_path, save_steps=6, saver=saver, metrics=metrics(evaluation))
        scaffold = Scaffold(saver=saver)
        creator = ChiefSessionCreator(scaffold, program=program(2.5), checkpoint_dir=tmp_path)
        async with MonitoredSession(creator, [evaluation, Counting(), hook]) as sess:
            async for _ in sess.iterate(from_iterable(range(30))):
                await sess.run("train")
                if sess.global_step == last:
                    break
    assert await check(tmp_path) == {13: 0.0, 17: -1}


@pytest.mark.parametrize("inline", ["its own program", "another program"])
async def test_with_a_pause_each_evaluated_step_is_saved(tmp_path: Path, inline: str) -> None:
    made = program(2.5)
    other = program(0.5) if inline == "another program" else None
    evaluation = EvalHook("test", every_steps=5, concurrent=False, program=other)
    saver = Saver(max_to_keep=1, keep_best=KeepBest("score", mode="max"))
    hook = CheckpointSaverHook(tmp_path, save_steps=7, saver=saver, metrics=evaluation)
    creator = ChiefSessionCreator(program=made)
    async with MonitoredSession(creator, [evaluation, Counting(), hook]) as sess:
        async for _ in sess.iterate(from_iterable(range(30))):
            await sess.run("train")
    assert await check(tmp_path) == {25: 0.95, 30: 0.1}


async def test_the_metrics_of_the_last_state_are_saved_with_it(tmp_path: Path) -> None:
    """Also where its step is saved already."""
    evaluation = EvalHook("test", every_steps=100, at_end=True)
    saver = Saver(keep_best=KeepBest("score", mode="max"))
    hook = CheckpointSaverHook(tmp_path, save_steps=5, saver=saver, metrics=evaluation)
    creator = ChiefSessionCreator(program=program(2.5))
    async with MonitoredSession(creator, [evaluation, Counting(), hook]) as sess:
        async for _ in sess.iterate(from_iterable(range(10))):
            await sess.run("train")
    assert await check(tmp_path) == {0: -1, 5: -1, 10: 0.9}


async def test_without_keep_best_only_the_saves_by_interval_remain(tmp_path: Path) -> None:
    evaluation = EvalHook("test", every_steps=5)
    hook = CheckpointSaverHook(
        tmp_path, save_steps=8, saver=Saver(max_to_keep=None), metrics=lambda: evaluation.metrics
    )
    creator = ChiefSessionCreator(program=program(2.5))
    async with MonitoredSession(creator, [evaluation, Counting(), hook]) as sess:
        async for _ in sess.iterate(from_iterable(range(20))):
            await sess.run("train")
    assert await check(tmp_path) == {0: -1, 8: -1, 16: -1, 20: 0.6}


async def test_listeners_are_called_for_evaluated_states_that_are_kept(tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []

    class Listener(CheckpointSaverListener):
        async def before_save(self, session: Any, global_step_value: int) -> None:
            calls.append(("before", global_step_value))

        async def after_save(self, session: Any, global_step_value: int) -> None:
            calls.append(("after", global_step_value))

    evaluation = EvalHook("test", every_steps=5)
    saver = Saver(max_to_keep=1, keep_best=KeepBest("score", mode="max"))
    hook = CheckpointSaverHook(
        tmp_path, save_steps=100, saver=saver, metrics=evaluation, listeners=[Listener()]
    )
    creator = ChiefSessionCreator(program=program(2.5))
    async with MonitoredSession(creator, [evaluation, hook]) as sess:
        for _ in range(12):
            await sess.run("train")
    assert [step for what, step in calls if what == "after"] == [0, 5, 10, 12]


async def test_nothing_is_saved_after_a_veto(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Veto(SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            self.coord = coord

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_values.step == 6:
                veto_saving(self.coord, "w is wrong")

    caplog.set_level(logging.INFO)
    evaluation = EvalHook("test", every_steps=5)
    saver = Saver(keep_best=KeepBest("score", mode="max"))
    hook = CheckpointSaverHook(tmp_path, save_steps=100, saver=saver, metrics=evaluation)
    creator = ChiefSessionCreator(program=program(2.5))
    async with MonitoredSession(creator, [Veto(), evaluation, hook]) as sess:
        for _ in range(12):
            await sess.run("train")
    assert [path.rpartition("-")[2] for path in saver.last_checkpoints] == ["0"]
    reader = await load_checkpoint(tmp_path)
    assert reader.facts.step == 0


async def test_the_last_state_is_saved_once_if_it_is_evaluated_at_the_end(tmp_path: Path) -> None:
    saved: list[int] = []

    class Saved(CheckpointSaverListener):
        async def after_save(self, session: Any, global_step_value: int) -> None:
            saved.append(global_step_value)

    evaluation = EvalHook("test", every_steps=5)
    saver = Saver(keep_best=KeepBest("score", k=2, mode="max"))
    hook = CheckpointSaverHook(
        tmp_path, saver=saver, metrics=evaluation, save_steps=100, listeners=[Saved()]
    )
    creator = ChiefSessionCreator(program=program(2.5), checkpoint_dir=tmp_path)
    async with MonitoredSession(creator, [evaluation, hook]) as sess:
        for _ in range(10):
            await sess.run("train")
    assert saved == [0, 5, 10]
    async with await load_checkpoint(str(tmp_path)) as reader:
        states = await reader.states()
    [state] = [state for state in states.values() if "is_owed" in state]
    assert state == {"is_owed": False, "step": 10}
