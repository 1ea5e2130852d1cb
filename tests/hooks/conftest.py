"""A training loop in virtual time, over a scripted session, for the tests of single hooks."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import pytest

from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.testing import ScriptedCreator, ScriptedSession


class Train(Protocol):
    async def __call__(
        self,
        *hooks: Any,
        runs: int | None = None,
        session: ScriptedSession | None = None,
    ) -> ScriptedSession: ...


@pytest.fixture
def train() -> Train:
    """Train until a stop is requested, or for some runs; return the raw session."""

    async def train(
        *hooks: Any, runs: int | None = None, session: ScriptedSession | None = None
    ) -> ScriptedSession:
        session = session or ScriptedSession()
        async with MonitoredSession(ScriptedCreator(session), hooks) as sess:
            for _ in itertools.count() if runs is None else range(runs):
                if sess.should_stop():
                    break
                await sess.run("train")
        return session

    return train


@pytest.fixture
def lasting() -> Callable[..., Iterable[Any]]:
    """Make a script of outcomes that each take some seconds."""

    def lasting(secs: float, outcomes: Iterable[Any] | None = None) -> Iterable[Any]:
        def outcome(value: Any) -> Callable[[], Any]:
            return lambda: asyncio.sleep(secs, value)

        return (outcome(value) for value in (itertools.repeat(None) if outcomes is None else outcomes))

    return lasting


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """Return the log lines of some of the hooks' modules."""
    caplog.set_level(logging.INFO, "asyncmon")

    def lines(*modules: str) -> list[str]:
        rooms = ("hooks", "runtime")
        names = [f"asyncmon.{room}.{module}" for room in rooms for module in modules]
        return [record.getMessage() for record in caplog.records if record.name in names]

    return lines
