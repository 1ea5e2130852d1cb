"""The part of the contract of programs that takes a monitored session: hooks, checkpoints, recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from asyncmon.checkpoint import latest_checkpoint, load_checkpoint
from asyncmon.data import from_iterable
from asyncmon.errors import AbortedError
from asyncmon.hooks import (
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    StopAtStepHook,
    SummarySaverHook,
)
from asyncmon.runtime import Supervisor
from asyncmon.summary import summary_iterator
from asyncmon.testing.faults import fail_at_step
from asyncmon.testing.program_case import (
    Course,
    ProgramCase,
    expect,
    expect_equal,
    expect_same_state,
    state_of,
)
from asyncmon.testing.recording import RecordingHook

Factory = Callable[[], ProgramCase]


async def hooks_see_the_values_of_the_run(factory: Factory, place: Path) -> None:
    """Hooks fetch values of the same run, and the step's number."""
    case = factory()
    course = await Course.of(factory(), 3)
    seen = RecordingHook(fetches={"loss": case.loss})
    logged: list[str] = []

    def note(values: Any) -> str:
        logged.append(f"{float(values['loss'])!r}")
        return ""

    log = LoggingTensorHook({"loss": case.loss}, every_n_iter=1, formatter=note)
    async with case.training(place, [seen, log, StopAtStepHook(last_step=3)]) as session:
        sample = asyncio.ensure_future(session.sample(case.loss))
        await asyncio.sleep(0)
        while not session.should_stop():
            await session.run(case.step, case.feeds(session.global_step or 0))
        expect_equal(float(await sample), course.losses[0], "sample() of the first run")
    losses = [float(values.results["loss"]) for values in seen.values]
    expect_equal(losses, course.losses, "what a hook fetched")
    expect_equal([values.step for values in seen.values], [1, 2, 3], "the steps that a hook saw")
    expect_equal(logged, [repr(loss) for loss in course.losses], "what LoggingTensorHook saw")


async def interrupted_training_resumes_exactly(factory: Factory, place: Path) -> None:
    """Another session of another program goes on from the checkpoint, bit for bit."""
    course = await Course.of(factory(), 8)
    losses: list[float] = []
    for steps in (3, 4, 8):
        case = factory()
        async with case.training(place) as session:
            expect_equal(session.global_step, len(losses), "global_step of a resumed session")
            losses += await case.train(session, steps)
            state = await state_of(session.raw_session())
            expect_same_state(state, course.states[steps], f"the state of step {steps}, resumed")
    expect_equal(losses, course.losses, "losses of three sessions")
    path = await latest_checkpoint(place)
    expect(path is not None and path.endswith("-8"), f"the last checkpoint is {path!r}, expected -8.")
    reader = await load_checkpoint(str(path))
    saved = {name: await reader.get_tensor(name) for name in course.states[8]}
    expect_same_state(saved, course.states[8], "the state in the last checkpoint")


async def cancelled_training_resumes(factory: Factory, place: Path) -> None:
    """A cancelled session leaves a checkpoint from which another one goes on."""
    case = factory()
    course = await Course.of(factory(), 6)

    async def train() -> None:
        async with case.training(place) as session:
            while True:
                await session.run(case.step, case.feeds(session.global_step or 0))
                if session.global_step == 4:
                    reached.set()

    reached = asyncio.Event()
    task = asyncio.ensure_future(train())
    waiter = asyncio.ensure_future(reached.wait())
    await asyncio.wait([task, waiter], return_when="FIRST_COMPLETED")
    waiter.cancel()
    task.cancel()
    await asyncio.wait([task])
    expect(task.cancelled(), "The cancelled session ended otherwise.")
    case = factory()
    async with case.training(place) as session:
        first = session.global_step or 0
        expect(first >= 2, f"The cancelled session left no checkpoint beyond step {first}.")
        losses = await case.train(session, first + 2)
        if first <= 4:
            expect_equal(losses, course.losses[first : first + 2], "losses after a cancelled session")


async def aborted_run_recovers(factory: Factory, place: Path) -> None:
    """After an AbortedError the last checkpoint is restored in a new session; the run is repeated."""
    course = await Course.of(factory(), 4)
    for moment in ("before_run", "after_run"):
        case, seen = factory(), RecordingHook()
        fault: Any = fail_at_step(5, AbortedError("injected"), moment=moment)
        async with case.training(place / moment, [seen, fault]) as session:
            await case.train(session, 8)
            state = await state_of(session.raw_session())
        expect_equal(len(seen.sessions), 2, "sessions that were created")
        expect(seen.sessions[0] is not seen.sessions[1], "A recovery kept the session.")
        restored = seen.steps("after_create_session")[1] or 0
        expect(restored in (2, 4), f"A recovery restored step {restored}, expected 2 or 4.")
        async with (again := factory()).session() as session_again:
            await session_again.load(course.states[restored])
            await session_again.run(again.step, again.feeds(4))
            await again.train(session_again, 8)
            expected = await state_of(session_again)
        expect_same_state(state, expected, "the state after a recovery")


async def summaries_are_written(factory: Factory, place: Path) -> None:
    """Values of steps go to the event file by tag."""
    case = factory()
    course = await Course.of(factory(), 3)
    summaries = SummarySaverHook(save_steps=1, output_dir=place, summary_op={"loss": case.loss})
    async with case.training(place, [summaries]) as session:
        await case.train(session, 3)
    found = await asyncio.to_thread(_written, place, "loss")
    expected = {n + 1: float(np.float32(loss)) for n, loss in enumerate(course.losses)}
    expect_equal(found, expected, "the loss by step in the event file")


def _written(place: Path, tag: str) -> dict[int, float]:
    """Return the values of a tag by step, of all event files of a directory."""
    return {
        event.step: value.simple_value
        for path in place.glob("events.out.tfevents.*")
        for event in summary_iterator(path)
        for value in event.summary.value
        if value.tag == tag
    }


async def nan_stops_without_a_checkpoint(factory: Factory, place: Path) -> None:
    """``NanTensorHook`` raises, and the state of that step is not saved."""
    case = factory()
    if case.nan_feeds is None:
        return
    found = None
    try:
        async with case.training(place, [NanTensorHook(case.loss)], save_checkpoint_steps=1) as session:
            await case.train(session, 2)
            await session.run(case.step, case.nan_feeds)
    except NanLossDuringTrainingError as error:
        found = error
    expect(found is not None, "The loss of nan_feeds did not stop the session.")
    path = await latest_checkpoint(place)
    expect(path is not None and path.endswith("-2"), f"the last checkpoint is {path!r}, expected -2.")


async def data_position_is_restored(factory: Factory, place: Path) -> None:
    """A resumed session goes on with the element after the last step's."""
    course = await Course.of(factory(), 6)
    used: list[int] = []
    for last in (3, 6):
        case = factory()
        hooks = [StopAtStepHook(last_step=last)]
        async with case.training(place, hooks, save_checkpoint_steps=10) as session:
            async for number in session.iterate(from_iterable(range(6))):
                used.append(number)
                await session.run(case.step, case.feeds(number))
            state = await state_of(session.raw_session())
    expect_equal(used, list(range(6)), "elements that two sessions used")
    expect_same_state(state, course.states[6], "the state after two sessions over the data")


async def supervisor_runs_it(factory: Factory, place: Path) -> None:
    """The Supervisor restores, runs and saves the program."""
    course = await Course.of(factory(), 3)
    for first, last in ((0, 2), (2, 3)):
        case = factory()
        supervisor = Supervisor(
            graph=case.program, logdir=place, save_model_secs=0, summary_op=None, save_at_end=True
        )
        async with supervisor.managed_session(case.master, config=case.config) as session:
            expect_equal(session.global_step, first, "global_step of a session of the Supervisor")
            await case.train(session, last)
            state = await state_of(session)
    expect_same_state(state, course.states[3], "the state after two sessions of the Supervisor")


TRAINING_CASES = (
    hooks_see_the_values_of_the_run,
    interrupted_training_resumes_exactly,
    cancelled_training_resumes,
    aborted_run_recovers,
    summaries_are_written,
    nan_stops_without_a_checkpoint,
    data_position_is_restored,
    supervisor_runs_it,
)
