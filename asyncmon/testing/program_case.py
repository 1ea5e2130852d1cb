"""The input of the contract suite, and its assertions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asyncmon.runtime import ChiefSessionCreator, MonitoredSession, Session
from asyncmon.summary import summary_iterator
from asyncmon.training import MonitoredTrainingSession

State = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCase:
    """A program for :func:`~asyncmon.testing.check_program`, and its fetches and feeds.

    The factory builds a new program at each call, as a new process would. Programs are equal: the
    results of a step depend only on the state and the feeds, bit for bit.

    Args:
        program: a ``Graph`` or another program.
        step: the fetch that runs one training step.
        loss: the fetch of a number that the step computes; a different one at each step.
        entry: the name of a state entry that each step changes, a non-empty array of floats.
        feeds: returns the feeds of a step, counted from 0.
        read: the fetch of that entry for ``peek``. Default: its name.
        nan_feeds: feeds that make the loss NaN. None skips the cases that need them.
        bad_feeds: feeds that make the step raise after it began to compute. None skips the cases that
            need them.
        master: the target of the sessions.
        config: the configuration of the sessions.
    """

    program: Any
    step: Any
    loss: Any
    entry: str
    feeds: Callable[[int], Mapping[Any, Any]]
    read: Any = None
    nan_feeds: Mapping[Any, Any] | None = None
    bad_feeds: Mapping[Any, Any] | None = None
    master: str = ""
    config: Any = None

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Open an initialised raw session for the block."""
        creator = ChiefSessionCreator(
            program=self.program, master=self.master, config=self.config, checkpoint_dir=None
        )
        session = await creator.create_session()
        try:
            yield session
        finally:
            await session.close()

    def training(self, checkpoint_dir: Path, hooks: Any = (), **kwargs: Any) -> MonitoredSession:
        """Return a monitored session that saves every 2 steps, without other default hooks."""
        arguments: dict[str, Any] = {
            "save_checkpoint_steps": 2, "save_summaries_steps": 0, "log_step_count_steps": None,
            "save_graph_def": False, "signals": None,
        }  # fmt: skip
        return MonitoredTrainingSession(
            self.master, checkpoint_dir=checkpoint_dir, hooks=hooks, program=self.program,
            config=self.config, **(arguments | kwargs),
        )  # fmt: skip

    async def train(self, session: Any, steps: int) -> list[float]:
        """Run a session up to a global step; return the losses."""
        losses = []
        while session.global_step < steps:
            feeds = self.feeds(session.global_step)
            losses.append(float((await session.run([self.step, self.loss], feeds))[1]))
        return losses


Factory = Callable[[], ProgramCase]


@dataclass(frozen=True, slots=True)
class Course:
    """The reference results of a program: states by global step, and the losses of the steps."""

    states: list[State]
    losses: list[float]

    @classmethod
    async def of(cls, case: ProgramCase, steps: int) -> Course:
        """Compute the results of the first ``steps`` steps in a raw session."""
        states, losses = [], []
        async with case.session() as session:
            states.append(await state_of(session))
            for number in range(1, steps + 1):
                losses += await case.train(session, number)
                states.append(await state_of(session))
        return cls(states, losses)


@asynccontextmanager
async def opened(factory: Factory, steps: int) -> AsyncIterator[tuple[ProgramCase, Course, Session]]:
    """Open a raw session of one program, and compute the first steps of another one."""
    case = factory()
    course = await Course.of(factory(), steps)
    async with case.session() as session:
        yield case, course, session


async def state_of(session: Any) -> State:
    """Return copies of the state, without entries of a single session (``__...``)."""
    with await session.snapshot() as snapshot:
        return copied(snapshot)


def copied(snapshot: Mapping[str, Any]) -> State:
    """Return copies of the entries of a snapshot."""
    return {name: np.array(v) for name, v in snapshot.items() if not name.startswith("__")}


def expect(condition: Any, message: str) -> None:
    """Raise AssertionError unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def expect_equal(found: Any, expected: Any, what: str) -> None:
    """Raise AssertionError unless two values are equal."""
    expect(found == expected, f"{what}: expected {expected!r}, found {found!r}.")


def expect_same_state(found: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    """Raise AssertionError unless two states are equal in names, dtypes, shapes and each bit."""
    found, expected = copied(found), copied(expected)
    expect_equal(sorted(found), sorted(expected), f"{what}, names of the state")
    for name, value in expected.items():
        other = found[name]
        expect_equal((other.dtype, other.shape), (value.dtype, value.shape), f"{what}, entry {name!r}")
        same = (
            other.tolist() == value.tolist() if value.dtype == object else _bits(other) == _bits(value)
        )
        expect(same, f"{what}, entry {name!r}: expected {value!r}, found {other!r}.")


def _bits(array: Any) -> bytes:
    return bytes(array.tobytes())


async def error_of(awaitable: Any, what: str) -> Exception:
    """Return the error that an awaitable raises. AssertionError if it returned instead."""
    try:
        result = await awaitable
    except Exception as error:
        return error
    raise AssertionError(f"{what} did not raise, but returned {result!r}.")


async def ticks(count: int) -> None:
    """Let the event loop run ``count`` iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


def scalars_by_step(logdir: Path, tag: str) -> dict[int, float]:
    """Return the values of a tag by step, from all event files of a directory. Blocking."""
    return {
        event.step: value.simple_value
        for path in logdir.glob("events.out.tfevents.*")
        for event in summary_iterator(path)
        for value in event.summary.value
        if value.tag == tag
    }
