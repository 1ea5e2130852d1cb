"""``@every``: a hook from one async function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from asyncmon.errors import AbortedError
from asyncmon.hooks import every
from asyncmon.runtime.hook import overrides
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.recovery import Recovery
from asyncmon.system import clock
from asyncmon.testing import ScriptedCreator, ScriptedSession
from tests.hooks.conftest import Train

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_by_steps_it_is_called_at_each_multiple(train: Train) -> None:
    seen: list[int] = []

    @every(steps=3)
    async def note(session: Any) -> None:
        seen.append(session.global_step)

    await train(note, runs=8, session=ScriptedSession(state={"global_step": 4}))
    assert seen == [6, 9, 12]


async def test_by_steps_a_jump_over_a_multiple_calls_once(train: Train) -> None:
    seen: list[int] = []

    @every(steps=3)
    async def note(session: Any) -> None:
        seen.append(session.global_step)

    await train(note, runs=4, session=ScriptedSession(steps_per_run=7))
    assert seen == [7, 14, 21, 28]


async def test_by_steps_a_recovery_counts_from_the_restored_step() -> None:
    seen: list[int] = []

    @every(steps=2)
    async def note(session: Any) -> None:
        seen.append(session.global_step)

    sessions = (
        ScriptedSession([None] * 5 + [AbortedError("gone")]),
        ScriptedSession(state={"global_step": 3}),
    )
    async with MonitoredSession(ScriptedCreator(*sessions), [note]) as sess:
        for _ in range(7):
            await sess.run("train")
    assert seen == [2, 4, 4]


async def test_by_seconds_calls_keep_their_phase_over_recoveries(
    lasting: Callable[..., Iterable[Any]],
) -> None:
    """Each session is gone after 7 s; the third creation takes from 14 to 24 s, over a call."""
    seen: list[float] = []

    @every(secs=10)
    async def note() -> None:
        seen.append(clock.monotonic())

    class Creator(ScriptedCreator):
        async def create_session(self) -> Any:
            if clock.monotonic() == 14:
                await asyncio.sleep(10)
            return await super().create_session()

    failing = [None] * 6 + [AbortedError("gone")]
    sessions = [ScriptedSession(lasting(1, script)) for script in (failing, failing, [None] * 9)]
    at_once = Recovery(first_delay_secs=0)
    async with MonitoredSession(Creator(*sessions), [note], recovery=at_once) as sess:
        for _ in range(6 + 6 + 8):
            await sess.run("train")
    assert seen == [10, 24, 30]


async def test_by_seconds_it_is_called_beside_the_steps(
    train: Train, lasting: Callable[..., Iterable[Any]]
) -> None:
    """AX-10: in the middle of a long step, without drift; AX-13: missed ticks are skipped."""
    seen: list[float] = []

    @every(secs=10)
    async def note() -> None:
        seen.append(clock.monotonic())
        await asyncio.sleep(4 if len(seen) != 2 else 25)

    await train(note, runs=1, session=ScriptedSession(lasting(75)))
    assert seen == [10, 20, 50, 60, 70]


async def test_the_other_way_costs_nothing() -> None:
    async def fn() -> None: ...

    assert not overrides(every(secs=1)(fn), "after_run")
    assert not overrides(every(steps=1)(fn), "background")


async def test_the_function_can_be_called_itself() -> None:
    @every(steps=1)
    async def double(session: Any) -> Any:
        return 2 * session

    assert await double(21) == 42
    assert double.name.endswith("double")


async def test_an_error_leaves_the_run(train: Train) -> None:
    @every(steps=2)
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await train(fail)


async def test_by_seconds_an_error_is_not_the_last_call_if_so_configured(
    train: Train, lasting: Callable[..., Iterable[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[float] = []

    @every(secs=10)
    async def report() -> None:
        seen.append(clock.monotonic())
        if len(seen) == 2:
            raise OSError("the server is down for a moment")

    report.on_error = "log"
    await train(report, runs=1, session=ScriptedSession(lasting(45)))
    assert seen == [10, 20, 30, 40]
    assert "report: a call failed; on_error='log'." in caplog.text


@pytest.mark.parametrize("arguments", [{}, {"steps": 1, "secs": 1}, {"steps": 0}, {"secs": 0}])
async def test_one_positive_period_is_needed(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"steps|secs"):

        @every(**arguments)
        async def fn() -> None: ...


async def test_wrong_functions_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match="takes an `async def` function"):
        every(steps=1)(lambda: None)  # type: ignore[arg-type,return-value]  # refused

    async def wrong(a: int, b: int) -> None: ...

    with pytest.raises(TypeError, match="must take the session, or nothing"):
        every(steps=1)(wrong)
