"""Preemption: a new session repeats the run, with pauses, bounds, and a log of the lost steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from asyncmon.errors import AbortedError, OutOfRangeError, UnavailableError
from asyncmon.hooks import CheckpointSaverHook
from asyncmon.runtime import MonitoredSession, Recovery, SessionRunArgs, SessionRunHook
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedSession,
    assert_nothing_left_behind,
    fail_at_step,
    fail_in,
    wait_all_tasks_blocked,
)
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def now() -> float:
    return asyncio.get_running_loop().time()


def scripted(*scripts: Any, hooks: Any = None, **kwargs: Any) -> MonitoredSession:
    sessions = [s if isinstance(s, Exception) else ScriptedSession(s) for s in scripts]
    return MonitoredSession(ScriptedCreator(*sessions), hooks, **kwargs)


@pytest.mark.parametrize("error", [AbortedError("gone"), UnavailableError("gone")])
async def test_a_preempted_run_is_repeated_in_a_new_session_wr_1(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    raws = [ScriptedSession([1.0, error]), ScriptedSession([2.0])]
    hook = RecordingHook()
    with caplog.at_level(logging.INFO, "asyncmon"):
        async with MonitoredSession(ScriptedCreator(*raws), [hook]) as sess:
            first = sess.coord
            assert await sess.run("a") == 1.0
            assert await sess.run("a") == 2.0
            assert raws[0].closed
            assert first.joined
            assert sess.coord is hook.coords[1] is not first
    assert hook.sessions == raws
    assert "An error was raised. This may be due to a preemption" in caplog.text


async def test_the_whole_run_is_repeated_with_its_hooks_wr_2_hp_3_hp_4() -> None:
    hook = RecordingHook(fetches="b", feed_dict={"f": 1})
    async with scripted([AbortedError("gone")], [5], hooks=[hook]) as sess:
        assert await sess.run("a", {"g": 2}) == 5
        assert sess.raw_session().feeds == [{"f": 1, "g": 2}]
    assert hook.moments() == [
        "begin", "after_create_session", "before_run",
        "after_create_session", "before_run", "after_run", "end", "cleanup",
    ]  # fmt: skip


async def test_failures_in_a_row_are_followed_by_growing_pauses_wr_3() -> None:
    times: list[float] = []

    class Noting(SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            times.append(now())

    policy = Recovery(first_delay_secs=1, max_delay_secs=3)
    sess = scripted(*[[AbortedError("gone")]] * 6, [1, AbortedError("once")], [2], hooks=[Noting()],
                    recovery=policy)  # fmt: skip
    async with sess:
        assert await sess.run("a") == 1
        assert times == [0, 0, 1, 3, 6, 9, 12]
        assert await sess.run("a") == 2  # a run that succeeded has ended the row
        assert now() == 12


async def test_attempts_can_be_bounded_wr_3() -> None:
    sess = scripted(*[[AbortedError(f"gone {n}")] for n in range(9)],
                    recovery=Recovery(max_attempts=2))  # fmt: skip
    with pytest.raises(AbortedError, match="gone 2") as caught:
        async with sess:
            await sess.run("a")
    assert caught.value.__notes__ == ["Given up after 3 failures in a row, without a step beyond 0."]


@pytest.mark.parametrize("wrong", [{"max_attempts": -1}, {"first_delay_secs": -1}])
async def test_a_wrong_policy_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be 0 or more"):
        Recovery(**wrong)


async def test_the_errors_to_recover_from_can_be_chosen_er_4() -> None:
    async with scripted([OSError("flaky")], [1], recovery=Recovery(errors=(OSError,))) as sess:
        assert await sess.run("a") == 1
    with pytest.raises(AbortedError):
        async with scripted([AbortedError("x")], recovery=Recovery(errors=(OSError,))) as sess:
            await sess.run("a")


async def test_the_step_is_that_of_the_last_checkpoint_and_the_loss_is_said_wr_4(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """WR-4, CR-2, CR-6, KC-17: steps 1 to 5, saved every 2, continue from 4."""
    steps: list[int] = []

    class Seen(SessionRunHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            steps.append(run_values.step)

    creator = world.creator(checkpoint_dir=tmp_path)
    saver = CheckpointSaverHook(tmp_path, save_steps=2, scaffold=creator.scaffold)
    hooks = [saver, Seen(), fail_at_step(6)]
    async with assert_nothing_left_behind(tmp_path), MonitoredSession(creator, hooks) as sess:
        for _ in range(7):
            weight = await sess.run(world.train, world.feed())
        assert weight == sess.global_step == 6
    assert steps == [1, 2, 3, 4, 5, 5, 6]
    assert "training continues from step 4; 1 steps up to step 5 were lost" in caplog.text


async def test_only_own_steps_are_logged_as_lost_where_other_sessions_train(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Others(SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            for _ in range(3 if session.global_step else 0):
                await session.run(world.train, world.feed())

    creator = world.creator(checkpoint_dir=tmp_path)
    saver = CheckpointSaverHook(tmp_path, save_steps=2, scaffold=creator.scaffold)
    async with MonitoredSession(creator, [saver, Others(), fail_at_step(6)]) as sess:
        for _ in range(6):
            await sess.run(world.train, world.feed())
    assert "training continues from step 7; no step up to step 5 was lost" in caplog.text


async def test_a_preempted_creation_is_tried_again_wr_5(caplog: pytest.LogCaptureFixture) -> None:
    hooks = [RecordingHook(), fail_in("after_create_session", UnavailableError("no"), times=2)]
    with caplog.at_level(logging.INFO, "asyncmon"):
        async with scripted(AbortedError("no"), [1], [2], [3], hooks=hooks) as sess:
            assert await sess.run("a") == 3
    assert hooks[0].moments().count("after_create_session") == 3
    assert caplog.text.count("An error was raised while a session was being created.") == 3


async def test_a_creation_may_have_a_time_limit_wr_5() -> None:
    class Slow:
        def __init__(self) -> None:
            self.seconds = [100, 0]

        async def create_session(self) -> Any:
            await asyncio.sleep(self.seconds.pop(0))
            return ScriptedSession()

    async with MonitoredSession(Slow(), recovery=Recovery(create_timeout_secs=5)):  # type: ignore[arg-type]  # as a user writes one
        assert now() == 5


@pytest.mark.parametrize(("moment", "times_run"), [("before_run", 1), ("after_run", 2)])
async def test_a_preemption_in_a_hook_is_recovered_from_wr_6(moment: Any, times_run: int) -> None:
    raws = [ScriptedSession(), ScriptedSession()]
    async with MonitoredSession(ScriptedCreator(*raws), [fail_in(moment, AbortedError("x"))]) as sess:
        await sess.run("a")
    assert len(raws[0].runs) + len(raws[1].runs) == times_run


async def test_a_preemption_while_closing_the_old_session_is_logged_wr_7(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Leaving(SessionRunHook):
        async def background(self, session: Any, coord: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise UnavailableError("peer is gone")

    async with scripted([AbortedError("x")], [1], hooks=[Leaving()]) as sess:
        await wait_all_tasks_blocked()
        assert await sess.run("a") == 1
        assert "An error occurred when attempting to close the session." in caplog.text


async def test_a_preemption_beside_the_steps_is_recovered_from_by_the_next_run_wr_8() -> None:
    hook = RecordingHook()
    async with scripted([1], [2], hooks=[hook]) as sess:
        assert await sess.run("a") == 1
        sess.coord.request_stop(AbortedError("seen by a task"))
        assert not sess.should_stop()
        assert len(hook.sessions) == 1  # should_stop only looks
        assert await sess.run("a") == 2
        assert not sess.should_stop()


async def test_an_ordinary_error_beside_the_steps_leaves_the_next_run_wr_9() -> None:
    async with scripted([1, 2]) as sess:
        sess.coord.request_stop(ValueError("beside"))
        assert sess.should_stop()
        with pytest.raises(ValueError, match="beside"):
            await sess.run("a")


async def test_of_an_ordinary_and_a_preemption_error_the_preemption_is_the_cause_wr_10() -> None:
    async def fails_together() -> None:
        holder[0].coord.request_stop(AbortedError("root cause"))
        raise ValueError("consequence")

    holder: list[Any] = []
    async with scripted([fails_together], [2]) as sess:
        holder.append(sess)
        assert await sess.run("a") == 2


async def test_of_two_ordinary_errors_the_runs_leaves_and_the_other_at_close_wr_10() -> None:
    async def fails_together() -> None:
        holder[0].coord.request_stop(ValueError("beside"))
        raise KeyError("in the run")

    holder: list[Any] = []
    sess = await scripted([fails_together]).start()
    holder.append(sess)
    with pytest.raises(KeyError, match="in the run"):
        await sess.run("a")
    with pytest.raises(ValueError, match="beside"):
        await sess.close()


async def test_an_ordinary_error_beside_explains_a_preemption_of_the_run_wr_12() -> None:
    async def fails_together() -> None:
        holder[0].coord.request_stop(ValueError("root cause"))
        raise AbortedError("consequence")

    holder: list[Any] = []
    async with scripted([fails_together]) as sess:
        holder.append(sess)
        with pytest.raises(ValueError, match="root cause"):
            await sess.run("a")


@pytest.mark.parametrize("error", [OutOfRangeError("end"), ValueError("bad"), KeyError("bad")])
async def test_any_other_error_leaves_run_and_the_session_continues_wr_11(error: Exception) -> None:
    hook = RecordingHook()
    async with scripted([error, 1], hooks=[hook]) as sess:
        with pytest.raises(type(error)) as caught:
            await sess.run("a")
        assert caught.value is error
        assert not sess.should_stop()
        assert not sess.coord.should_stop()
        assert await sess.run("a") == 1
    assert len(hook.sessions) == 1


async def test_stuck_tasks_do_not_hold_a_recovery_wr_14() -> None:
    class Slow(SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            coord.create_task(asyncio.Event().wait)

    async with scripted([AbortedError("x")], [1], hooks=[Slow()], stop_grace_period_secs=5) as sess:
        assert await sess.run("a") == 1
        assert now() == 0


async def test_an_interrupt_is_never_recovered_from_wr_16() -> None:
    for error in (KeyboardInterrupt(), SystemExit(), asyncio.CancelledError()):
        hook = RecordingHook()
        with pytest.raises(type(error)):
            async with scripted([error], hooks=[hook]) as sess:
                await sess.run("a")
        assert len(hook.sessions) == 1


async def test_background_tasks_are_started_again_wr_18() -> None:
    lives: list[Any] = []

    class Background(SessionRunHook):
        async def background(self, session: Any, coord: Any) -> None:
            lives.append(session)
            try:
                await asyncio.Event().wait()
            finally:
                lives.append("cancelled")

    async with scripted([AbortedError("x")], [1], hooks=[Background()]) as sess:
        await wait_all_tasks_blocked()
        await sess.run("a")
        await wait_all_tasks_blocked()
        assert lives == [lives[0], "cancelled", sess.raw_session()]


async def test_a_stop_outlives_a_recovery_ra_17_ra_20() -> None:
    class Stopping(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            run_context.request_stop("enough")

    async with scripted([AbortedError("x")], [1], hooks=[Stopping()]) as sess:
        assert await sess.run("a") == 1  # the interrupted run is repeated and completed
        assert sess.should_stop()
        assert sess.coord.should_stop()
    assert sess.stop_reason == "enough"


async def test_a_stop_of_the_coordinator_outlives_a_recovery_too() -> None:
    async with scripted([AbortedError("x")], [1]) as sess:
        sess.coord.request_stop(reason="by a task")
        assert await sess.run("a") == 1
        assert sess.should_stop()
        assert sess.stop_reason == "by a task"


async def test_a_recovery_is_no_stop_for_the_tasks_beside_it() -> None:
    """WR-8: no stop was requested; a task that waits for data keeps waiting."""

    async def batches() -> AsyncIterator[int]:
        await asyncio.sleep(100)
        yield 1

    async def consume() -> list[int]:
        return [batch async for batch in sess.iterate(batches())]

    class Slow(SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            await asyncio.sleep(10)

    async with scripted([AbortedError("gone")], [1], hooks=[Slow()]) as sess:
        consumer = asyncio.create_task(consume())
        run = asyncio.create_task(sess.run("a"))
        await asyncio.sleep(5)
        assert sess.raw_session() is None  # in the middle of the recovery
        assert not sess.should_stop()
        assert await run == 1
        assert await consumer == [1]


async def test_a_singular_session_does_not_recover_ss_2(world: World) -> None:
    hook = RecordingHook()
    with pytest.raises(AbortedError):
        async with world.singular([hook, fail_at_step(1)]) as sess:
            await sess.run(world.train, world.feed())
    assert hook.moments() == ["begin", "after_create_session", "before_run", "cleanup"]


async def test_should_stop_of_a_singular_session_never_raises_ss_4(world: World) -> None:
    sess = await world.singular().start()
    sess.coord.request_stop(AbortedError("x"))
    assert sess.should_stop()
    with pytest.raises(AbortedError):
        await sess.close()


async def test_a_cancellation_ends_a_pause_at_once_ax_25() -> None:
    policy = Recovery(first_delay_secs=1000, max_delay_secs=1000)
    async with assert_nothing_left_behind():
        sess = scripted([AbortedError("x")], UnavailableError("not yet"), recovery=policy)
        with pytest.raises(TimeoutError):
            async with sess, asyncio.timeout(10):
                await sess.run("a")
        assert now() == 10


async def test_a_run_after_a_cancelled_recovery_tries_again() -> None:
    """AX-7: a timeout around a run leaves a session that can be used."""
    policy = Recovery(first_delay_secs=1000, max_delay_secs=1000)
    sess = scripted([AbortedError("x")], UnavailableError("not yet"), [7], recovery=policy)
    async with sess:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await sess.run("a")
        with pytest.raises(RuntimeError, match="the last recovery did not succeed"):
            await sess.peek("a")
        assert sess.raw_session() is None
        assert await sess.run("a") == 7


async def test_a_stop_ends_a_pause_with_the_error() -> None:
    policy = Recovery(first_delay_secs=1000, max_delay_secs=1000)
    sess = scripted([AbortedError("x")], UnavailableError("not yet"), recovery=policy)
    asyncio.get_running_loop().call_later(10, sess.request_stop, "signal SIGTERM")
    with pytest.raises(UnavailableError, match="not yet") as caught:
        async with sess:
            await sess.run("a")
    assert now() == 10
    assert caught.value.__notes__ == ["Not recovered from: a stop is requested (signal SIGTERM)."]


async def test_closing_ends_a_pause_with_the_error() -> None:
    policy = Recovery(first_delay_secs=1000, max_delay_secs=1000)
    sess = scripted([AbortedError("x")], UnavailableError("not yet"), recovery=policy)
    async with assert_nothing_left_behind():
        await sess.start()
        run = asyncio.create_task(sess.run("a"))
        await asyncio.sleep(10)
        await sess.close()
        assert now() == 10
        with pytest.raises(UnavailableError, match="not yet") as caught:
            await run
        assert caught.value.__notes__ == ["Not recovered from: the session is being closed."]


async def test_a_stop_before_the_start_ends_the_first_pause() -> None:
    policy = Recovery(first_delay_secs=1000, max_delay_secs=1000)
    sess = scripted(UnavailableError("1"), UnavailableError("2"), recovery=policy)
    sess.request_stop("not today")
    with pytest.raises(UnavailableError, match="2") as caught:
        await sess.start()
    assert now() == 0
    assert caught.value.__notes__ == ["Not recovered from: a stop is requested (not today)."]


async def test_a_sample_waits_over_a_recovery() -> None:
    async with scripted([AbortedError("x")], [{"a": 1, "b": 2}]) as sess:
        sample = asyncio.create_task(sess.sample("b"))
        await wait_all_tasks_blocked()
        assert await sess.run("a") == 1
        assert await sample == 2


async def test_a_run_without_hooks_recovers_and_one_beside_it_continues() -> None:
    raws = [ScriptedSession([AbortedError("x"), AbortedError("y")]), ScriptedSession(values={"a": 5})]
    async with MonitoredSession(ScriptedCreator(*raws)) as sess:
        runs = [sess.run("a", hooks=False) for _ in range(3)]
        assert await asyncio.gather(*runs) == [5, 5, 5]


async def test_a_preemption_inside_a_hooks_own_bare_run_belongs_to_the_run() -> None:
    class Bare(SessionRunHook):
        async def before_run(self, run_context: Any) -> Any:
            await holder[0].run("side", hooks=False)
            return SessionRunArgs("b")

    holder: list[Any] = []
    sess = scripted([AbortedError("x")], [1, 2], hooks=[Bare()])
    async with sess:
        holder.append(sess)
        assert await sess.run("a") == 2
