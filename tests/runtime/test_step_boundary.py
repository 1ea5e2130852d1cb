"""A call between two steps is made when all hooks have seen every committed step, or never."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from asyncmon.checkpoint import Saver
from asyncmon.hooks import CheckpointSaverHook, veto_saving
from asyncmon.hooks.hook_support import created_session
from asyncmon.runtime import MonitoredSession, SessionRunHook
from asyncmon.system.snapshot import Snapshot
from asyncmon.testing import ScriptedCreator, ScriptedSession

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

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


async def slow_step() -> None:
    await asyncio.sleep(10)


def scripted(*hooks: SessionRunHook) -> MonitoredSession:
    return MonitoredSession(ScriptedCreator(ScriptedSession([slow_step] * 9)), hooks)


async def capture_at(sess: MonitoredSession, secs: float, hook: Counter) -> tuple[float, int, int]:
    """Return when a state that is captured at a time is complete, its step, and what the hook knew."""
    await asyncio.sleep(secs)
    state = Saver().capture(sess)
    snapshot = cast("Snapshot", await state.snapshot(pull=False))
    assert snapshot.step is not None
    return asyncio.get_running_loop().time(), snapshot.step, state.states["hooks/Counter"]["seen"]


@pytest.mark.parametrize(
    ("ordered", "made"),
    [(0, (0, 0, 0)), (5, (5, 0, 0)), (10.5, (11, 1, 1)), (11.5, (11.5, 1, 1)), (25, (25, 2, 2))],
)
async def test_it_waits_for_the_hooks_of_a_committed_step_only(
    ordered: float, made: tuple[float, int, int]
) -> None:
    async with scripted(hook := Counter()) as sess:
        call = asyncio.create_task(capture_at(sess, ordered, hook))
        await asyncio.sleep(0)
        for _ in range(2):
            await sess.run("a")
        await asyncio.sleep(5)
        assert await call == made


async def test_the_next_run_begins_after_the_states_are_taken() -> None:
    """Also where the body does not give way between two runs."""
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook := Counter()]) as sess:
        run = asyncio.create_task(sess.run("a"))
        again = asyncio.create_task(sess.run("a"))
        call = asyncio.create_task(capture_at(sess, 0.5, hook))
        assert await call == (1, 1, 1)
        await run
        await again


@pytest.mark.parametrize("vetoes", [1, None])
async def test_a_save_inside_a_run_does_not_wait_for_its_end(
    tmp_path: Path, vetoes: int | None
) -> None:
    """In a hook, with the states that the hooks have then."""

    class Saving(SessionRunHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            await Saver().save(run_context.session, tmp_path / "m", run_values.step)

    async with scripted(Counter(vetoes), Saving()) as sess:
        await sess.run("a")
        await Saver().save(sess, tmp_path / "n", 1)
    assert (tmp_path / "m-1.json").exists()
    assert (tmp_path / "n-1.json").exists()


async def test_a_veto_prevents_saves_by_time_until_a_new_session(tmp_path: Path) -> None:
    saver = Saver()
    saves = CheckpointSaverHook(tmp_path, save_secs=3, saver=saver)
    async with scripted(Counter(vetoes=3), saves) as sess:
        for _ in range(4):
            await sess.run("a")
    assert [path.rpartition("-")[2] for path in saver.last_checkpoints] == ["0", "2"]


async def test_an_error_goes_to_the_caller_and_a_cancelled_caller_is_skipped() -> None:
    def fail() -> None:
        raise KeyError("x")

    async with scripted(hook := Counter()) as sess:
        run = asyncio.create_task(sess.run("a"))
        await asyncio.sleep(10.5)
        assert sess.coord is not None
        call = created_session(sess.coord).boundary.call_after_run
        failing, cancelled = call(fail), call(fail)
        cancelled.cancel()
        with pytest.raises(KeyError):
            await failing
        await run
        assert hook.seen == 1
