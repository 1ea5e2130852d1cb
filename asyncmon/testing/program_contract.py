"""The contract of programs: the same cases over any program, with a raw session and a monitored one."""

from __future__ import annotations

import asyncio
import tempfile
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asyncmon import hooks
from asyncmon.checkpoint import latest_checkpoint, load_checkpoint
from asyncmon.data import from_iterable
from asyncmon.errors import AbortedError
from asyncmon.runtime import Supervisor
from asyncmon.system.error_text import add_note
from asyncmon.testing.faults import fail_at_step
from asyncmon.testing.program_case import (
    Course,
    Factory,
    copied,
    error_of,
    expect,
    expect_equal,
    expect_same_state,
    opened,
    scalars_by_step,
    state_of,
    ticks,
)
from asyncmon.testing.recording import RecordingHook


async def check_program(
    factory: Factory, cases: Iterable[str] | None = None, *, checkpoint_dir: Path | str | None = None
) -> None:
    """Check a program against the contract that hooks, checkpoints and recovery rely on.

    Args:
        factory: returns a new and equal ``ProgramCase`` at each call. A case calls it several times.
        cases: names from :data:`PROGRAM_CASES`. Default: all of them.
        checkpoint_dir: each case saves into a directory below it. Default: a temporary one.

    Raises:
        AssertionError: the program violates the contract. A note names the case.
        KeyError: a case is unknown.
        Exception: an unexpected error of a case, with the same note.

    Example::

        @pytest.mark.asyncio
        @pytest.mark.parametrize("case", PROGRAM_CASES)
        async def test_my_program(case, tmp_path):
            await check_program(my_case, [case], checkpoint_dir=tmp_path)
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary if checkpoint_dir is None else checkpoint_dir)
        for name in PROGRAM_CASES if cases is None else cases:
            try:
                await PROGRAM_CASES[name](factory, place / name)
            except Exception as error:
                add_note(error, f"In the case {name!r} of check_program.")
                raise


# -- runs


async def run_is_one_step(factory: Factory, place: Path) -> None:
    """A run counts one global step, and gives the values of that step."""
    async with opened(factory, 3) as (case, course, session):
        expect(session.graph is not None, "session.graph is None; it is the program.")
        expect_equal(session.global_step, 0, "global_step of a new session")
        expect_equal(await case.train(session, 3), course.losses, "losses of a second session")
        expect_equal(session.global_step, 3, "global_step after three runs")
        expect_same_state(await state_of(session), course.states[3], "the state after three runs")
    expect(len(set(course.losses)) == 3, f"the losses of three steps must differ: {course.losses}")
    for before, after in zip(course.states, course.states[1:], strict=False):
        changed = before[case.entry].tolist() != after[case.entry].tolist()
        expect(changed, f"A step left the entry {case.entry!r} as it was.")


class _Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class _Record:
    loss: Any


async def fetches_keep_their_structure(factory: Factory, place: Path) -> None:
    """Nested lists, tuples, dicts, named tuples and dataclasses come back as such."""
    case = factory()
    course = await Course.of(factory(), 1)
    loss = case.loss
    fetches = {
        "list": [loss, (loss,)],
        "pair": _Pair(loss, [loss]),
        "record": _Record(loss),
        "ordered": OrderedDict(b=loss, a=case.step),
        "empty": [],
    }
    async with case.session() as session:
        found = await session.run(fetches, case.feeds(0))
        expect_equal(session.global_step, 1, "global_step after one run of nested fetches")
    expect_equal(list(found), list(fetches), "keys of the result")
    expect(isinstance(found["list"], list), "A list came back as something else.")
    expect(isinstance(found["list"][1], tuple), "A tuple came back as something else.")
    expect(isinstance(found["pair"], _Pair), "A named tuple came back as something else.")
    expect(isinstance(found["record"], _Record), "A dataclass came back as something else.")
    expect_equal(list(found["ordered"]), ["b", "a"], "order of an OrderedDict")
    expect_equal(found["empty"], [], "an empty list")
    values = [
        *found["list"][:1], *found["list"][1], found["pair"].first, *found["pair"].second,
        found["record"].loss, found["ordered"]["b"],
    ]  # fmt: skip
    expect_equal([float(value) for value in values], course.losses * 6, "the loss at each place")


async def wrong_fetches_change_nothing(factory: Factory, place: Path) -> None:
    """An unknown fetch and None are rejected; a step in the same run has no effect."""
    case = factory()
    async with case.session() as session:
        before = await state_of(session)
        unknown: list[Any] = ["no_such_fetch", ["no_such_fetch"], [case.step, "no_such_fetch"]]
        for fetch in unknown:
            error = await error_of(session.run(fetch, case.feeds(0)), f"run({fetch!r})")
            expect("no_such_fetch" in str(error), f"The error does not name the fetch: {error!r}")
        for nothing in (None, [case.step, None]):
            error = await error_of(session.run(nothing, case.feeds(0)), f"run({nothing!r})")
            expect(isinstance(error, TypeError), f"Expected a TypeError for None, found {error!r}")
        expect_same_state(await state_of(session), before, "the state after refused runs")
        expect_equal(session.global_step, 0, "global_step after refused runs")


async def failed_step_changes_nothing(factory: Factory, place: Path) -> None:
    """A step that raises changes no state, and the session stays usable."""
    case = factory()
    if case.bad_feeds is None:
        return
    course = await Course.of(factory(), 2)
    async with case.session() as session:
        await case.train(session, 1)
        for _ in range(2):
            await error_of(session.run(case.step, case.bad_feeds), "A step with bad_feeds")
            expect_same_state(await state_of(session), course.states[1], "the state after an error")
            expect_equal(session.global_step, 1, "global_step after an error")
        expect_equal(await case.train(session, 2), course.losses[1:], "the loss after an error")


async def runs_are_serial(factory: Factory, place: Path) -> None:
    """Concurrent runs have the effect of serial runs in the same order."""
    async with opened(factory, 4) as (case, course, session):
        runs = [session.run([case.step, case.loss], case.feeds(number)) for number in range(4)]
        results = await asyncio.gather(*runs)
        expect_equal([float(r[1]) for r in results], course.losses, "losses of runs of four tasks")
        expect_same_state(await state_of(session), course.states[4], "the state after four tasks")


async def cancelled_run_is_before_or_after(factory: Factory, place: Path) -> None:
    """A cancelled run takes effect completely or not at all."""
    rounds = (0, 1, 2, 3, 4, 6, 9, 14, 30, 100, 300)
    async with opened(factory, len(rounds) + 1) as (case, course, session):
        for count in rounds:
            step = session.global_step
            assert step is not None, "a program of the suite counts steps"
            task = asyncio.ensure_future(session.run(case.step, case.feeds(step)))
            await ticks(count)
            task.cancel()
            await asyncio.wait([task])
            expect(session.global_step in (step, step + 1), "A cancelled run did several steps.")
            if not task.cancelled():
                task.result()
                expect_equal(session.global_step, step + 1, "global_step after a run that returned")
            state = course.states[session.global_step or 0]
            expect_same_state(await state_of(session), state, f"cancelled after {count} iterations")
        step = session.global_step or 0
        losses = await case.train(session, step + 1)
        expect_equal(losses, course.losses[step : step + 1], "the loss after cancelled runs")


# -- snapshot, load, peek


async def snapshot_is_consistent(factory: Factory, place: Path) -> None:
    """A snapshot has the state of the step at which it was requested; later steps do not change it."""
    async with opened(factory, 12) as (case, course, session):
        await case.train(session, 1)
        ordered = session.snapshot()
        await case.train(session, 2)
        first = await ordered
        expect_equal(first.step, 1, "step of a snapshot that was ordered before the second step")
        expect_same_state(first, course.states[1], "a snapshot ordered before a step")
        for count in (0, 1, 2, 5, 20, 100):
            step = session.global_step or 0
            task = asyncio.ensure_future(session.run(case.step, case.feeds(step)))
            await ticks(count)
            with await session.snapshot() as during:
                expect(during.step is not None, "snapshot.step is None.")
                expect_same_state(during, course.states[during.step or 0], "a snapshot beside a step")
            await task
        expect_same_state(first, course.states[1], "a snapshot after six more steps")
        for name, value in first.items():
            expect(not value.flags.writeable, f"The entry {name!r} of a snapshot can be written to.")
        first.release()
        first.release()
        state = course.states[session.global_step or 0]
        expect_same_state(await state_of(session), state, "the state after a release")


async def load_sets_the_state(factory: Factory, place: Path) -> None:
    """A snapshot can be loaded into another session, which continues from it."""
    case, other = factory(), factory()
    course = await Course.of(factory(), 4)
    async with case.session() as session, other.session() as second:
        await other.train(second, 1)
        await session.load(course.states[2])
        expect_equal(session.global_step, 2, "global_step after load()")
        expect_same_state(await state_of(session), course.states[2], "the state after load()")
        expect_equal(await case.train(session, 4), course.losses[2:], "losses after load()")
        expect_same_state(await state_of(session), course.states[4], "the state after load() and run")
        values = {name: np.array(value) for name, value in course.states[3].items()}
        await second.load(values)
        for value in values.values():
            value.fill(value.flat[0]) if value.size else None
        expect_same_state(await state_of(second), course.states[3], "what was loaded, changed later")
        entry = course.states[1][case.entry]
        await second.load({case.entry: entry})
        expected = course.states[3] | {case.entry: entry}
        expect_same_state(await state_of(second), expected, "the state after load() of one entry")


async def wrong_load_changes_nothing(factory: Factory, place: Path) -> None:
    """``load`` lists the entries of a wrong name, shape or dtype, and changes nothing."""
    case = factory()
    async with case.session() as session:
        await case.train(session, 1)
        before = await state_of(session)
        entry = before[case.entry]
        shape = (*entry.shape, 3)
        wrong: dict[str, Any] = {"no_such_entry": np.zeros(2), case.entry: np.zeros(shape, entry.dtype)}
        error = await error_of(session.load(before | wrong), f"load() of {list(wrong)}")
        for part in ("no_such_entry", case.entry, str(entry.shape), str(shape)):
            expect(part in str(error), f"The error of load() does not say {part!r}: {error}")
        values = np.zeros(entry.shape, np.complex64)
        error = await error_of(session.load({case.entry: values}), "load() of another dtype")
        for part in (case.entry, str(entry.dtype), "complex64"):
            expect(part in str(error), f"The error of load() does not say {part!r}: {error}")
        expect_same_state(await state_of(session), before, "the state after a refused load()")


async def peek_changes_nothing(factory: Factory, place: Path) -> None:
    """``peek`` reads the state, also during a step, and rejects fetches that change it."""
    async with opened(factory, 3) as (case, course, session):
        await case.train(session, 1)
        read = case.entry if case.read is None else case.read
        found = np.asarray(await session.peek(read))
        expect_equal(found.tolist(), course.states[1][case.entry].tolist(), "peek() of the entry")
        task = asyncio.ensure_future(session.run(case.step, case.feeds(1)))
        beside = np.asarray(await session.peek(read)).tolist()
        await task
        known = [course.states[step][case.entry].tolist() for step in (1, 2)]
        expect(beside in known, f"peek() beside a step gave {beside}, expected one of {known}.")
        await error_of(session.peek(case.step, case.feeds(2)), "peek() of a step")
        expect_same_state(await state_of(session), course.states[2], "the state after peek()")


# -- the end


async def close_is_final(factory: Factory, place: Path) -> None:
    """``close`` may be called twice, and makes later calls raise."""
    case = factory()
    async with case.session() as session:
        await case.train(session, 1)
        ordered = await session.snapshot()
        values = copied(ordered)
        await session.close()
        await session.close()
        expect_same_state(ordered, values, "a snapshot after close()")
        uses: dict[str, Callable[[], Awaitable[Any]]] = {
            "run": lambda: session.run(case.step, case.feeds(1)),
            "load": lambda: session.load(values),
            "peek": lambda: session.peek(case.entry),
        }
        for name, use in uses.items():
            error = await error_of(use(), f"{name}() after close()")
            expect(isinstance(error, RuntimeError), f"{name}() after close() raised {error!r}")


async def close_completes_when_cancelled(factory: Factory, place: Path) -> None:
    """A cancelled ``close`` still closes; a run in progress ends."""
    for running in (False, True):
        case = factory()
        async with case.session() as session:
            feeds = [case.feeds(0)] * running
            tasks = [asyncio.ensure_future(session.run(case.step, fed)) for fed in feeds]
            await ticks(3)
            closing = asyncio.ensure_future(session.close())
            await ticks(1)
            closing.cancel()
            await asyncio.wait([closing, *tasks])
            for task in tasks:
                expect(task.done(), "A run continues after close().")
                _ = task.cancelled() or task.exception()
            await session.close()
            error = await error_of(session.run(case.step, case.feeds(1)), "run() after close()")
            expect(isinstance(error, RuntimeError), f"run() after a cancelled close(): {error!r}")


# -- monitored sessions: hooks, checkpoints, recovery


async def hooks_see_the_values_of_the_run(factory: Factory, place: Path) -> None:
    """Hooks get their fetches from the same run, and its global step."""
    case = factory()
    course = await Course.of(factory(), 3)
    seen = RecordingHook(fetches={"loss": case.loss})
    logged: list[str] = []

    def note(values: Any) -> str:
        logged.append(f"{float(values['loss'])!r}")
        return ""

    log = hooks.LoggingTensorHook({"loss": case.loss}, every_n_iter=1, formatter=note)
    async with case.training(place, [seen, log, hooks.StopAtStepHook(last_step=3)]) as session:
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
    """A session of a new program continues from the checkpoint, bit for bit."""
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
    """A cancelled session leaves a checkpoint that another session can continue from."""
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
    """After an AbortedError a new session restores the last checkpoint and repeats the run."""
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
    """Summaries are in the event file by tag and step."""
    case = factory()
    course = await Course.of(factory(), 3)
    summaries = hooks.SummarySaverHook(save_steps=1, output_dir=place, summary_op={"loss": case.loss})
    async with case.training(place, [summaries]) as session:
        await case.train(session, 3)
    found = await asyncio.to_thread(scalars_by_step, place, "loss")
    expected = {n + 1: float(np.float32(loss)) for n, loss in enumerate(course.losses)}
    expect_equal(found, expected, "the loss by step in the event file")


async def nan_stops_without_a_checkpoint(factory: Factory, place: Path) -> None:
    """``NanTensorHook`` raises, and the state of that step is not saved."""
    case = factory()
    if case.nan_feeds is None:
        return
    found = None
    try:
        async with case.training(
            place, [hooks.NanTensorHook(case.loss)], save_checkpoint_steps=1
        ) as session:
            await case.train(session, 2)
            await session.run(case.step, case.nan_feeds)
    except hooks.NanLossDuringTrainingError as error:
        found = error
    expect(found is not None, "The loss of nan_feeds did not stop the session.")
    path = await latest_checkpoint(place)
    expect(path is not None and path.endswith("-2"), f"the last checkpoint is {path!r}, expected -2.")


async def data_position_is_restored(factory: Factory, place: Path) -> None:
    """A resumed session continues with the element after that of the last step."""
    course = await Course.of(factory(), 6)
    used: list[int] = []
    for last in (3, 6):
        case = factory()
        stop = hooks.StopAtStepHook(last_step=last)
        async with case.training(place, [stop], save_checkpoint_steps=10) as session:
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


PROGRAM_CASES: dict[str, Callable[[Factory, Path], Awaitable[None]]] = {
    case.__name__: case
    for case in (
        run_is_one_step,
        fetches_keep_their_structure,
        wrong_fetches_change_nothing,
        failed_step_changes_nothing,
        runs_are_serial,
        cancelled_run_is_before_or_after,
        snapshot_is_consistent,
        load_sets_the_state,
        wrong_load_changes_nothing,
        peek_changes_nothing,
        close_is_final,
        close_completes_when_cancelled,
        hooks_see_the_values_of_the_run,
        interrupted_training_resumes_exactly,
        cancelled_training_resumes,
        aborted_run_recovers,
        summaries_are_written,
        nan_stops_without_a_checkpoint,
        data_position_is_restored,
        supervisor_runs_it,
    )
}
"""The cases of :func:`check_program` by name, for ``pytest.mark.parametrize``."""
