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

from asyncmon.system.error_text import add_note
from asyncmon.testing.program_case import (
    Course,
    ProgramCase,
    copied,
    error_of,
    expect,
    expect_equal,
    expect_same_state,
    state_of,
    ticks,
)
from asyncmon.testing.program_training import TRAINING_CASES

Factory = Callable[[], ProgramCase]


async def check_program(
    factory: Factory, cases: Iterable[str] | None = None, *, checkpoint_dir: Path | str | None = None
) -> None:
    """Check a program against the contract that hooks, checkpoints and recovery rely on.

    Args:
        factory: returns a new :class:`ProgramCase`, the same each time. Called several times a case.
        cases: names from :data:`PROGRAM_CASES`. Default: all of them.
        checkpoint_dir: each case saves into a directory below it. Default: a temporary one.

    Raises:
        AssertionError: the program does not keep the contract. A note names the case.
        KeyError: a case is unknown.
        Exception: what a case did not expect, with the same note.

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
    case = factory()
    course = await Course.of(factory(), 3)
    async with case.session() as session:
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
    """An unknown fetch and None are refused, also beside a step, whose effect is not kept."""
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
    """A step that raises leaves the state as it was, and the session usable."""
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
    """Runs of several tasks have the effect of the same runs one after another."""
    case = factory()
    course = await Course.of(factory(), 4)
    async with case.session() as session:
        runs = [session.run([case.step, case.loss], case.feeds(number)) for number in range(4)]
        results = await asyncio.gather(*runs)
        expect_equal([float(r[1]) for r in results], course.losses, "losses of runs of four tasks")
        expect_same_state(await state_of(session), course.states[4], "the state after four tasks")


async def cancelled_run_is_before_or_after(factory: Factory, place: Path) -> None:
    """A cancelled run is done or not; never in part."""
    case = factory()
    rounds = (0, 1, 2, 3, 4, 6, 9, 14, 30, 100, 300)
    course = await Course.of(factory(), len(rounds) + 1)
    async with case.session() as session:
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
    """A snapshot is the state of one step, of its order, and stays as it was while steps go on."""
    case = factory()
    course = await Course.of(factory(), 12)
    async with case.session() as session:
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
        expect_same_state(
            await state_of(session), course.states[session.global_step or 0], "after a release"
        )


async def load_sets_the_state(factory: Factory, place: Path) -> None:
    """What a snapshot gave can be loaded into another session, which goes on from there."""
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
    """``load`` names each entry that does not fit, with both shapes or dtypes, and changes nothing."""
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
    """``peek`` reads the state, also beside a step, and refuses what changes it."""
    case = factory()
    course = await Course.of(factory(), 3)
    async with case.session() as session:
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
    """``close`` may be called twice, and refuses every use afterwards."""
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
    """A cancelled ``close`` closes, also while a run is under way, which ends."""
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
                expect(task.done(), "A run goes on after close().")
                _ = task.cancelled() or task.exception()
            await session.close()
            error = await error_of(session.run(case.step, case.feeds(1)), "run() after close()")
            expect(isinstance(error, RuntimeError), f"run() after a cancelled close(): {error!r}")


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
        *TRAINING_CASES,
    )
}
"""The cases of :func:`check_program` by name, for ``pytest.mark.parametrize``."""
