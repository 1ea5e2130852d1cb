"""A program as the contract suite gets it, and the comparisons that the suite makes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asyncmon.runtime import ChiefSessionCreator, MonitoredSession, Session
from asyncmon.training import MonitoredTrainingSession

State = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCase:
    """What a factory gives :func:`~asyncmon.testing.check_program`: a program and the names in it.

    The factory builds everything anew at each call, as a new process would, and the same each time: the
    results of a step depend on the state and the feeds alone, bit for bit.

    Args:
        program: a ``Graph`` or another program.
        step: the fetch that does one training step.
        loss: the fetch of a number that the step computes; it differs from step to step.
        entry: the name in snapshots of an array of floats, of one element or more, that each step
            changes.
        feeds: the feeds of the step of a number, counted from 0.
        read: the fetch of that entry, which ``peek`` may compute. Default: its name.
        nan_feeds: feeds with which the loss is NaN. None leaves the cases with it out.
        bad_feeds: feeds with which the step raises after it began to compute. None leaves the cases
            with it out.
        master: where sessions run.
        config: for the sessions.
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
        """Open an initialised raw session, and close it."""
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


@dataclass(frozen=True, slots=True)
class Course:
    """The undisturbed course of a program: the states by global step, and the losses of the steps."""

    states: list[State]
    losses: list[float]

    @classmethod
    async def of(cls, case: ProgramCase, steps: int) -> Course:
        """Run so many steps in a raw session."""
        states, losses = [], []
        async with case.session() as session:
            states.append(await state_of(session))
            for number in range(1, steps + 1):
                losses += await case.train(session, number)
                states.append(await state_of(session))
        return cls(states, losses)


async def state_of(session: Any) -> State:
    """Return copies of the state, without what belongs to one session only (``__...``)."""
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
    """Return the error that an awaitable raises; it is an AssertionError that it raises none."""
    try:
        result = await awaitable
    except Exception as error:
        return error
    raise AssertionError(f"{what} did not raise, but returned {result!r}.")


async def ticks(count: int) -> None:
    """Let the event loop go round so many times."""
    for _ in range(count):
        await asyncio.sleep(0)
