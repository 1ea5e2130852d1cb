"""A call between two steps is made when all hooks have seen every committed step, or never."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from asyncmon.hooks import veto_saving
from asyncmon.hooks.hook_support import created_session
from asyncmon.runtime import MonitoredSession, SessionRunHook
from asyncmon.testing import ScriptedCreator, ScriptedSession, wait_all_tasks_blocked

if TYPE_CHECKING:
    from asyncmon.system.snapshot import Snapshot

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Counter(SessionRunHook):
    """Counts the steps that it has seen, each a second after its commit; may refuse one of them."""

    def __init__(self, vetoes: int | None = None) -> None:
        self.seen, self.vetoes = 0, vetoes

    async def after_create_session(self, session: Any, coord: Any) -> None:
        self.coord = coord

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        await asyncio.sleep(1)
        self.seen = run_values.step
        if self.seen == self.vetoes:
            veto_saving(self.coord, "it is bad")


async def slow_step() -> None:
    await asyncio.sleep(10)


def scripted(*hooks: SessionRunHook) -> MonitoredSession:
    return MonitoredSession(ScriptedCreator(ScriptedSession([slow_step] * 9)), hooks)


async def call_at(sess: MonitoredSession, secs: float, hook: Counter) -> tuple[float, int, int] | None:
    """Return when a call that is ordered at a time is made, for which step, and what the hook knows."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(secs)
    assert sess.coord is not None
    created = created_session(sess.coord)

    def note(snapshot: Snapshot | None) -> tuple[float, int, int]:
        step = created.raw.global_step if snapshot is None else snapshot.step
        assert step is not None
        return loop.time(), step, hook.seen

    return await created.boundary.call(note)


@pytest.mark.parametrize(
    ("ordered", "made"),
    [(0, (0, 0, 0)), (5, (5, 0, 0)), (10.5, (11, 1, 1)), (11.5, (11.5, 1, 1)), (25, (25, 2, 2))],
)
async def test_it_waits_for_the_hooks_of_a_committed_step_only(
    ordered: float, made: tuple[float, int, int]
) -> None:
    async with scripted(hook := Counter()) as sess:
        call = asyncio.create_task(call_at(sess, ordered, hook))
        await asyncio.sleep(0)
        for _ in range(2):
            await sess.run("a")
        await asyncio.sleep(5)
        assert await call == made


async def test_a_veto_ends_the_wait_and_all_calls_until_a_new_session() -> None:
    async with scripted(hook := Counter(vetoes=1)) as sess:
        calls = [asyncio.create_task(call_at(sess, secs, hook)) for secs in (5, 10.5, 15)]
        for _ in range(2):
            await sess.run("a")
        assert await asyncio.gather(*calls) == [(5, 0, 0), None, None]


async def test_an_error_goes_to_the_caller_and_a_cancelled_caller_is_skipped() -> None:
    def fail(snapshot: Snapshot | None) -> None:
        raise KeyError("x")

    async with scripted(hook := Counter()) as sess:
        run = asyncio.create_task(sess.run("a"))
        await asyncio.sleep(10.5)
        assert sess.coord is not None
        call = created_session(sess.coord).boundary.call
        failing, cancelled = asyncio.create_task(call(fail)), asyncio.create_task(call(fail))
        await wait_all_tasks_blocked()
        cancelled.cancel()
        with pytest.raises(KeyError):
            await failing
        await run
        assert cancelled.cancelled()
        assert hook.seen == 1
