"""One grace budget, from a signal on, for everything that a session still does."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from asyncmon.errors import CancelledError, DeadlineExceededError
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import ChiefSessionCreator, MonitoredSession, SessionRunHook
from asyncmon.runtime.stop.deadline import SessionShutdown, Stage
from asyncmon.runtime.stop.process_end import process_shutdown
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession, assert_nothing_left_behind

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def now() -> float:
    return asyncio.get_running_loop().time()


def terminate(secs: float) -> None:
    """Send SIGTERM to this process after some seconds."""
    asyncio.get_running_loop().call_later(secs, signal.raise_signal, signal.SIGTERM)


def counting(*hooks: Any, grace: float = 20) -> MonitoredSession:
    """A session with steps that count, hang, and take five seconds."""
    program = FunctionProgram(state={"weight": 0})

    @program.step
    async def train(state: dict[str, Any]) -> None:
        state["weight"] += 1

    @program.step
    async def slow(state: dict[str, Any]) -> None:
        state["weight"] += 1
        await asyncio.sleep(5)

    @program.step
    async def hang(state: dict[str, Any]) -> None:
        state["weight"] += 100
        await forever()

    creator = ChiefSessionCreator(program=program)
    return MonitoredSession(creator, hooks, grace, signals="auto")


async def forever() -> None:
    await asyncio.Event().wait()


class Saves(SessionRunHook):
    """Saves at its end, which takes some seconds."""

    priority = 100

    def __init__(self, secs: float = 3, expected: float | None = None) -> None:
        self.secs, self.expected = secs, secs + 0.5 if expected is None else expected
        self.saved: Any = None

    async def after_create_session(self, session: Any, coord: Any) -> None:
        self.saves = coord.saves
        self.saves.expect(self.expected)

    async def end(self, session: Any) -> None:
        self.began = now()
        state = await session.snapshot()
        await asyncio.sleep(self.secs)
        self.saved = state["weight"]
        self.saves.committed(session, session.global_step, self.secs)


class HangsAt(RecordingHook):
    """Waits for ever in some of its methods."""

    def __init__(self, *moments: str) -> None:
        super().__init__("HangsAt")
        for moment in moments:
            setattr(self, moment, self._hang(getattr(self, moment)))

    def _hang(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def hang(*args: Any, **kwargs: Any) -> None:
            await method(*args, **kwargs)
            await forever()

        return hang


async def test_body_that_waits_outside_of_runs_is_cancelled_in_time_for_the_save(
    caplog: pytest.LogCaptureFixture,
) -> None:
    saves = Saves(secs=3)
    async with assert_nothing_left_behind():
        async with counting(saves) as sess:
            await sess.run("train")
            terminate(5)
            await forever()
        assert now() == pytest.approx(25 - 5 * 0.8 - 0.5 + 0.4)
    assert (saves.saved, sess.stop_reason) == (1, "signal SIGTERM")
    assert "did not end within the grace period, and is cancelled: it waits in" in caplog.text
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_body_that_catches_this_cancellation_ends_the_session() -> None:
    async with counting() as sess:
        terminate(5)
        with contextlib.suppress(asyncio.CancelledError):
            await forever()
        await sess.run("train")
    assert (sess.stop_reason, sess.outcome.state) == ("signal SIGTERM", "preempted")


async def test_other_cancellation_of_such_a_body_is_raised() -> None:
    async def train() -> None:
        async with counting():
            terminate(5)
            await forever()

    async def cancelled_before() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await forever()
        await train()

    task = asyncio.create_task(cancelled_before())
    await task
    assert task.cancelling() == 1


async def test_bodies_of_one_task_are_cancelled_one_after_another() -> None:
    outer, inner = Saves(secs=1), Saves(secs=1)
    async with counting(outer) as one:
        await one.run("train")
        async with counting(inner) as other:
            await other.run("train")
            terminate(5)
            await forever()
        await forever()
    assert (outer.saved, inner.saved) == (1, 1)
    assert {one.stop_reason, other.stop_reason} == {"signal SIGTERM"}


async def test_a_run_that_does_not_end_is_abandoned_in_time_for_the_save() -> None:
    saves = Saves(secs=3)
    async with assert_nothing_left_behind():
        async with counting(saves) as sess:
            await sess.run("train")
            terminate(5)
            with pytest.raises(DeadlineExceededError, match=r"of 20 s, of which .* needs a part"):
                await sess.run("hang")
            assert now() == pytest.approx(25 - 5 * 0.8 - 3.5)
        assert now() == pytest.approx(25 - 5 * 0.8 - 0.5)
    assert (saves.saved, sess.stop_reason) == (1, "signal SIGTERM")


async def test_the_error_of_the_abandoned_run_ends_the_session_in_order() -> None:
    hook, saves = RecordingHook(), Saves()
    async with counting(hook, saves) as sess:
        terminate(5)
        await sess.run("hang")
    assert hook.moments()[-2:] == ["end", "cleanup"]
    assert hook.error is None
    assert saves.saved == 0


async def test_so_does_that_of_a_run_in_a_group_of_tasks() -> None:
    saves = Saves()
    async with counting(saves) as sess:
        terminate(5)
        async with asyncio.TaskGroup() as group:
            group.create_task(sess.run("hang"))
    assert saves.saved == 0


async def test_an_error_of_the_body_stays_one() -> None:
    saves = Saves()

    async def fail() -> None:
        async with counting(saves) as sess:
            terminate(1)
            await sess.coord.wait_for_stop()
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert saves.saved is None


async def test_a_run_that_ends_in_time_completes() -> None:
    saves = Saves()
    async with counting(saves) as sess:
        terminate(1)
        await sess.run("slow")
        assert sess.should_stop()
    assert saves.saved == 1
    assert now() == 5 + 3


async def test_an_earlier_stop_gives_no_run_more_time_than_the_signal() -> None:
    async with counting(Saves(secs=1)) as sess:
        asyncio.get_running_loop().call_later(5, sess.request_stop, "enough")
        terminate(5)
        with pytest.raises(DeadlineExceededError):
            await sess.run("hang")
        assert now() == pytest.approx(25 - 5 * 0.8 - 1.5)
        assert sess.stop_reason == "enough"


async def test_a_cancelled_body_is_saved_after_a_signal() -> None:
    saves, sessions = Saves(), list[MonitoredSession]()

    async def train() -> None:
        async with counting(saves) as sess:
            sessions.append(sess)
            await sess.run("train")
            await forever()

    task = asyncio.create_task(train())
    terminate(1)
    asyncio.get_running_loop().call_later(2, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert saves.saved == 1
    assert [sess.stop_reason for sess in sessions] == ["signal SIGTERM"]


async def test_a_hook_that_hangs_at_the_end_leaves_the_saver_its_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    saves = Saves(secs=4)
    async with counting(HangsAt("end"), saves) as sess:
        terminate(0)
        await sess.coord.wait_for_stop()
    assert saves.began == pytest.approx(20 - 4 * 0.8 - 4.5)
    assert saves.saved == 0
    assert "HangsAt.end was cancelled" in caplog.text


async def test_an_end_that_ignores_its_deadline_costs_no_other_hook_its_save() -> None:
    class Stubborn(SessionRunHook):
        async def end(self, session: Any) -> None:
            while now() < 60:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60 - now())

    saves = Saves()
    async with counting(Stubborn(), saves) as sess:
        terminate(5)
        await sess.run("train")
        await sess.coord.wait_for_stop()
    assert saves.saved == 1
    assert saves.began == pytest.approx(25 - 5 * 0.8 - 3 + 0.2 + 0.3, abs=0.5), "left behind in time"


async def test_a_save_that_takes_too_long_is_an_error() -> None:
    sess = await counting(Saves(secs=100, expected=1)).start()
    terminate(0)
    await sess.coord.wait_for_stop()
    with pytest.raises(DeadlineExceededError, match=r"Saves.end did not finish within the grace"):
        await sess.close()
    assert now() == pytest.approx(20 - 4 * 0.8)


async def test_a_save_of_unknown_length_has_half_of_the_period() -> None:
    saves = Saves(secs=1, expected=math.inf)
    async with counting(saves) as sess:
        terminate(0)
        await sess.run("hang")
    assert saves.began == pytest.approx(10 - 5 * 0.8)


@pytest.mark.parametrize("moment", ["background", "cleanup"])
async def test_tasks_and_cleanup_share_the_period(moment: str) -> None:
    hook = HangsAt("cleanup") if moment == "cleanup" else RecordingHook()
    async with counting(hook, Saves(secs=1)) as sess:
        if moment == "background":
            sess.coord.create_task(forever)
        terminate(5)
        await sess.run("slow")
    assert now() == pytest.approx(25 - (1 if moment == "cleanup" else 3) * 0.8)


async def test_a_task_that_ignores_its_cancellation_holds_no_cleanup() -> None:
    async def stubborn() -> None:
        for _ in range(100):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    hook = RecordingHook()
    async with counting(hook) as sess:
        task = sess.coord.create_task(stubborn)
        terminate(0)
        await sess.coord.wait_for_stop()
    assert now() == pytest.approx(20 - 2 * 0.8)
    assert hook.moments()[-1] == "cleanup"
    await task


async def test_a_signal_while_the_session_closes_limits_the_rest() -> None:
    saves = Saves(secs=1)
    with pytest.raises(DeadlineExceededError, match=r"HangsAt.end did not finish"):
        async with counting(HangsAt("end"), saves):
            terminate(5)
    assert saves.began == pytest.approx(25 - 4 * 0.8 - 1.5)
    assert saves.saved == 0


async def test_a_session_that_was_done_before_the_signal_says_so() -> None:
    async with counting(Saves(secs=5)) as sess:
        terminate(1)
    assert sess.stop_reason == "the body ended"


@pytest.mark.parametrize("moment", ["begin", "after_create_session"])
async def test_an_opening_ends_at_once(moment: str) -> None:
    hook = HangsAt(moment)
    terminate(5)
    with pytest.raises(CancelledError, match=r"The session was not .*: a stop came, 'signal SIGTERM'"):
        await counting(hook).start()
    assert now() == 5
    assert hook.moments()[-1] == "cleanup"


async def test_waiting_for_data_ends_at_once() -> None:
    async def source() -> AsyncIterator[int]:
        await forever()
        yield 1

    async with counting() as sess:
        terminate(5)
        async for _ in sess.iterate(source()):
            pass
    assert now() == 5


async def test_without_end_the_grace_period_has_no_budget() -> None:
    async with counting(Saves(secs=1e4), grace=math.inf) as sess:
        terminate(1)
        await sess.run("slow")
    assert now() == 1e4 + 5


async def test_the_second_signal_cuts_everything_short(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(signal, "default_int_handler", lambda number, frame: seen.append(number))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hook, saves, loop = HangsAt("end"), Saves(), asyncio.get_running_loop()
    try:
        sess = await counting(hook, saves).start()
        loop.call_later(1, signal.raise_signal, signal.SIGINT)
        loop.call_later(3, signal.raise_signal, signal.SIGINT)
        with pytest.raises(DeadlineExceededError):
            await sess.close()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (now(), seen, saves.saved) == (3, [signal.SIGINT], None)
    assert hook.moments()[-1] == "cleanup"


async def test_the_parts_of_a_short_period_are_in_order() -> None:
    shutdown = SessionShutdown(0.3, process_shutdown.get())
    shutdown.start(100 - 0.3, 50)
    times = [shutdown.until(stage) for stage in Stage]
    assert times == sorted(times)
    assert times[0] >= 100 - 0.3
    assert times[-1] == 100


async def test_scripted_sessions_have_the_budget_too() -> None:
    async def stuck() -> None:
        await forever()

    session = MonitoredSession(ScriptedCreator(ScriptedSession([stuck])), None, 10, signals="auto")
    async with session as sess:
        terminate(0)
        await sess.run("x")
    assert now() == pytest.approx(10 - 5 * 0.4 - 1)
