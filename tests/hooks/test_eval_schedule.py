"""The schedule of EvalHook over restarts: by steps, by epochs, and what a kill leaves behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from asyncmon import MonitoredTrainingSession
from asyncmon.hooks import EvalHook, StopAtStepHook
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.session_creators import ChiefSessionCreator
from asyncmon.system import clock

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def listen(hook: EvalHook) -> list[tuple[int, float]]:
    """Return the list to which the step and the time of each result are added."""
    results: list[tuple[int, float]] = []
    hook.add_listener(lambda step, _: results.append((step, clock.monotonic())))
    return results


def evaluated_program() -> FunctionProgram:
    made = FunctionProgram(state={"n": 0})

    @made.step
    async def train(state: Any) -> None:
        state["n"] += 1
        await asyncio.sleep(1)

    @made.step(read_only=True)
    async def test(state: Any) -> dict[str, float]:
        await asyncio.sleep(0.5)
        return {"n": float(state["n"])}

    return made


async def steps_of(directory: Path, hook: EvalHook, last_step: int, epochs: int = 9) -> list[int]:
    """Train over epochs of 4 elements, and return the evaluated steps."""
    results = listen(hook)
    hooks = [hook, StopAtStepHook(last_step=last_step)]
    sess = MonitoredTrainingSession(checkpoint_dir=directory, program=evaluated_program(), hooks=hooks)
    async with sess:
        async for epoch in sess.epochs(range(4), epochs):
            async for _ in epoch:
                await sess.run("train")
    return [step for step, _ in results]


async def test_by_steps_the_multiples_are_the_same_over_restarts(tmp_path: Path) -> None:
    """Preempted every 8 steps."""
    seen = [
        await steps_of(tmp_path, EvalHook("test", every_steps=10), last_step)
        for last_step in (8, 16, 24, 32)
    ]
    assert seen == [[], [10], [20], [30]]


@pytest.mark.parametrize("concurrent", [True, False])
async def test_by_epochs_each_end_of_an_epoch_is_evaluated_once_over_restarts(
    tmp_path: Path, concurrent: bool
) -> None:
    """Stopped in an epoch, at its end, and when all are done; the last state of each is evaluated."""
    seen = [
        await steps_of(tmp_path, EvalHook("test", every_epochs=1, concurrent=concurrent), last_step, 5)
        for last_step in (6, 12, 99, 99)
    ]
    assert seen == [[4, 6], [8, 12], [16, 20], []]


async def test_by_epochs_every_second_one_and_not_the_last_state_if_so_configured(
    tmp_path: Path,
) -> None:
    seen = [
        await steps_of(tmp_path, EvalHook("test", every_epochs=2, at_end=False), last_step, 5)
        for last_step in (10, 99)
    ]
    assert seen == [[8], [16]]


async def test_by_epochs_with_a_pause_the_next_epoch_begins_after_the_evaluation() -> None:
    hook = EvalHook("test", every_epochs=1, concurrent=False)
    results = listen(hook)
    creator = ChiefSessionCreator(program=evaluated_program())
    async with MonitoredSession(creator, [hook]) as sess:
        async for epoch in sess.epochs(range(2), 3):
            assert len(results) == epoch.number
            async for _ in epoch:
                await sess.run("train")
    assert [*results] == [(2, 2.5), (4, 5), (6, 7.5)]


async def test_by_epochs_with_a_pause_a_stop_ends_the_wait() -> None:
    """The session itself waits for the evaluation, as at each successful end."""
    made = evaluated_program()

    @made.step(read_only=True)
    async def slow(state: Any) -> dict[str, float]:
        await asyncio.sleep(100)
        return {}

    hook = EvalHook("slow", every_epochs=1, concurrent=False)
    async with MonitoredSession(ChiefSessionCreator(program=made), [hook], 10) as sess:
        asyncio.get_running_loop().call_later(5, sess.request_stop, "enough")
        async for epoch in sess.epochs(range(2), 3):
            async for _ in epoch:
                await sess.run("train")
        assert clock.monotonic() == 5
    assert clock.monotonic() == 102


@pytest.mark.parametrize(
    ("schedule", "evaluated"),
    [
        ({"every_steps": 4}, 6),
        ({"every_secs": 4.5}, 6),
        ({"every_epochs": 1}, 6),
        ({"every_steps": 4, "concurrent": False}, 4),
        ({"every_epochs": 1, "concurrent": False}, 4),
    ],
)
async def test_an_evaluation_that_a_kill_ended_is_made_of_the_restored_state(
    tmp_path: Path, schedule: dict[str, Any], evaluated: int
) -> None:
    """It is due at step 4 and never ends. The session is left at step 6, which is saved."""

    seen: list[tuple[int, float]] = []

    async def train(metrics: str, steps: int) -> None:
        made = evaluated_program()

        @made.step(read_only=True)
        async def hangs(state: Any) -> dict[str, float]:
            await asyncio.sleep(1e9)
            return {}

        hook = EvalHook(metrics, **schedule)
        hook.add_listener(lambda step, _: seen.append((step, clock.monotonic())))
        sess = MonitoredTrainingSession(
            checkpoint_dir=tmp_path, program=made, hooks=[hook], save_checkpoint_steps=1
        )
        async with sess:
            async for epoch in sess.epochs(range(4), 9):
                async for _ in epoch:
                    await sess.run("train")
                    if sess.global_step == steps:
                        await asyncio.sleep(1e9)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(train("hangs", 6), 60)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(train("test", 7), 60)
    assert seen[0][0] == evaluated
