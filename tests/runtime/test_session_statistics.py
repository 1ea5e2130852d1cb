"""Operating a session: pauses, saves at once, and its parts."""

from __future__ import annotations

import asyncio
import itertools
import logging
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import Saver, latest_checkpoint
from asyncmon.errors import AbortedError
from asyncmon.hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    NanTensorHook,
    StopAtStepHook,
    every,
)
from asyncmon.runtime import LooperTask, MonitoredSession, SessionRunHook, SessionState
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedSession,
    fail_in,
    wait_all_tasks_blocked,
)
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def scripted(*hooks: Any, raw: ScriptedSession | None = None, **kwargs: Any) -> MonitoredSession:
    return MonitoredSession(ScriptedCreator(raw or ScriptedSession()), hooks, **kwargs)


async def steps(sess: MonitoredSession) -> None:
    while not sess.should_stop():
        await sess.run("a")
        await asyncio.sleep(1)


# -- pauses


async def test_a_pause_lets_the_next_run_wait(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "asyncmon"):
        async with scripted() as sess:
            training = asyncio.create_task(steps(sess))
            await asyncio.sleep(2.5)
            sess.pause("to look at it")
            await asyncio.sleep(100)
            assert (sess.paused, sess.global_step) == (True, 3)
            sess.resume()
            await asyncio.sleep(2)
            assert (sess.paused, sess.global_step) == (False, 5)
            sess.request_stop()
            await training
    assert "Paused: to look at it." in caplog.text
    assert "Resumed." in caplog.text


async def test_step_functions_wait_and_bare_runs_do_not() -> None:
    async with scripted() as sess:
        sess.pause()
        await sess.run("a", hooks=False)
        call = asyncio.create_task(sess.run_step_fn(lambda context: 3))
        await wait_all_tasks_blocked()
        assert not call.done()
        sess.resume()
        assert await call == 3


async def test_waiting_runs_continue_in_their_order() -> None:
    done: list[int] = []

    async def run(number: int) -> None:
        await sess.run("a")
        done.append(number)

    async with scripted() as sess:
        sess.pause()
        runs = [asyncio.create_task(run(number)) for number in range(3)]
        await wait_all_tasks_blocked()
        sess.pause()  # a second one changes nothing
        sess.resume()
        await asyncio.gather(*runs)
    assert done == [0, 1, 2]


async def test_runs_that_wait_for_another_one_wait_for_the_pause_too() -> None:
    done: list[str] = []

    async def run(name: str) -> None:
        call = sess.run_step_fn(lambda context: 3) if name == "function" else sess.run("a")
        await call
        done.append(name)

    async with scripted(raw=ScriptedSession(itertools.repeat(lambda: asyncio.sleep(1)))) as sess:
        runs = [asyncio.create_task(run(name)) for name in ("first", "second", "function")]
        await wait_all_tasks_blocked()
        sess.pause()
        runs.append(asyncio.create_task(run("late")))
        await asyncio.sleep(100)
        assert (done, sess.global_step) == (["first"], 1)
        handle = await sess.attach(RecordingHook())
        sess.resume()
        await asyncio.gather(*runs)
        await handle.detach()
    assert done == ["first", "second", "function", "late"]


async def test_a_run_inside_of_a_run_is_refused_in_a_pause_too() -> None:
    class Nesting(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            sess.pause()
            with pytest.raises(RuntimeError, match="inside a run"):
                await sess.run("a")

    async with scripted(Nesting()) as sess:
        await sess.run("a")


async def test_a_stop_ends_the_pause() -> None:
    async with scripted() as sess:
        sess.pause()
        run = asyncio.create_task(sess.run("a"))
        await wait_all_tasks_blocked()
        sess.request_stop("enough")
        await run
        assert not sess.paused
        await sess.run("a")
        with pytest.raises(RuntimeError, match=r"is to stop \(enough\), so that it cannot be paused"):
            sess.pause()


async def test_the_close_ends_the_pause() -> None:
    sess = await scripted().start()
    sess.pause()
    run = asyncio.create_task(sess.run("a"))
    await wait_all_tasks_blocked()
    await sess.close()
    with pytest.raises(RuntimeError, match="closed"):
        await run
    assert not sess.paused


async def test_an_error_of_a_task_ends_the_pause() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("task")

    sess = await scripted().start()
    sess.pause()
    sess.coord.create_task(fail)  # type: ignore[union-attr]  # it is open
    with pytest.raises(ValueError, match="task"):
        await sess.run("a")
    await sess.close()


async def test_a_cancelled_run_leaves_the_pause() -> None:
    async with scripted() as sess:
        sess.pause()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await sess.run("a")
        assert sess.paused
        sess.resume()
        await sess.run("a")


async def test_a_pause_outlives_a_recovery() -> None:
    raws = [ScriptedSession([AbortedError("gone")]), ScriptedSession([2, 3])]

    class Pausing(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            sess.pause()

    async with MonitoredSession(ScriptedCreator(*raws), [Pausing()]) as sess:
        assert await sess.run("a") == 2
        assert sess.paused
        run = asyncio.create_task(sess.run("a"))
        await wait_all_tasks_blocked()
        assert not run.done()
        sess.resume()
        assert await run == 3


async def test_a_session_that_is_not_open_cannot_be_paused() -> None:
    with pytest.raises(RuntimeError, match="not open yet"):
        scripted().pause()


async def test_saves_by_time_continue_in_a_pause(tmp_path: Path, world: World) -> None:
    saved = asyncio.Event()

    class Listener(CheckpointSaverListener):
        async def after_save(self, session: Any, global_step_value: int) -> None:
            if global_step_value == 1:
                saved.set()

    hook = CheckpointSaverHook(tmp_path, save_secs=10, saver=Saver(), listeners=[Listener()])
    async with world.session([hook]) as sess:
        await sess.run(world.train, world.feed())
        sess.pause()
        await asyncio.wait_for(saved.wait(), 11)


# -- saves


async def test_save_saves_now(tmp_path: Path, world: World) -> None:
    hook = CheckpointSaverHook(tmp_path, save_secs=600, saver=Saver())
    async with world.session([hook]) as sess:
        assert await sess.save() == f"{tmp_path}/model.ckpt-0"  # of the start
        await sess.run(world.train, world.feed())
        assert await sess.save() == await latest_checkpoint(tmp_path) == f"{tmp_path}/model.ckpt-1"
        assert await sess.save() == f"{tmp_path}/model.ckpt-1"
        sess.pause()
        assert await sess.save() == f"{tmp_path}/model.ckpt-1"


async def test_save_after_a_restore_gives_what_was_restored(tmp_path: Path, world: World) -> None:
    for _ in range(2):
        saver = Saver(allow_empty=True)
        hook = CheckpointSaverHook(tmp_path, save_secs=600, saver=saver)
        async with world.session([hook]) as sess:
            await saver.restore(sess.raw_session(), await sess.save())


async def test_save_waits_for_the_step_under_way(tmp_path: Path) -> None:
    class Slow(SessionRunHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            await asyncio.sleep(5)

    hook = CheckpointSaverHook(tmp_path, save_secs=600, saver=Saver())
    async with scripted(Slow(), hook) as sess:
        run = asyncio.create_task(sess.run("a"))
        await asyncio.sleep(1)
        assert await sess.save() == f"{tmp_path}/model.ckpt-1"
        assert run.done()


async def test_save_calls_listeners_and_moves_the_schedule(tmp_path: Path) -> None:
    saved: list[int] = []

    class Listener(CheckpointSaverListener):
        async def after_save(self, session: Any, global_step_value: int) -> None:
            saved.append(global_step_value)

    hook = CheckpointSaverHook(tmp_path, save_steps=3, saver=Saver(), listeners=[Listener()])
    async with scripted(hook) as sess:
        for step in range(1, 7):
            await sess.run("a")
            if step == 2:
                await sess.save()
    assert saved == [0, 2, 5, 6]


async def test_save_saves_where_the_saver_skips_saves_that_come_too_soon(tmp_path: Path) -> None:
    hook = CheckpointSaverHook(tmp_path, save_steps=1, saver=Saver(when_busy="skip"), timeout_secs=0)
    async with scripted(hook) as sess:
        for step in range(1, 4):
            await sess.run("a")
            await sess.run("a")
            assert await sess.save() == f"{tmp_path}/model.ckpt-{2 * step}"


async def test_save_needs_a_hook_that_saves() -> None:
    async with scripted() as sess:
        with pytest.raises(RuntimeError, match="Pass a CheckpointSaverHook in hooks"):
            await sess.save()
    with pytest.raises(RuntimeError, match="closed"):
        await sess.save()


async def test_save_is_refused_inside_of_a_run(tmp_path: Path) -> None:
    class Saving(SessionRunHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            with pytest.raises(RuntimeError, match="called from inside a run"):
                await sess.save()

    hook = CheckpointSaverHook(tmp_path, save_secs=600, saver=Saver())
    async with scripted(Saving(), hook) as sess:
        await sess.run("a")


async def test_save_is_refused_after_a_veto(tmp_path: Path) -> None:
    hook = CheckpointSaverHook(tmp_path, save_secs=600, saver=Saver())
    guard = NanTensorHook("a", fail_on_nan_loss=False)
    async with scripted(guard, hook, raw=ScriptedSession([float("nan")])) as sess:
        await sess.run("a")
        with pytest.raises(RuntimeError, match="The state is not to be saved: "):
            await sess.save()


async def test_a_failed_save_can_be_tried_again(tmp_path: Path) -> None:
    hook = CheckpointSaverHook(tmp_path / "x", save_secs=600, saver=Saver())
    hook.on_error = "log"
    async with scripted(hook) as sess:
        await sess.run("a")
        (tmp_path / "x").rename(tmp_path / "y")
        (tmp_path / "x").write_text("a file")
        with pytest.raises(Exception, match="x"):
            await sess.save()
        (tmp_path / "x").unlink()
        (tmp_path / "y").rename(tmp_path / "x")
        assert await sess.save() == f"{tmp_path}/x/model.ckpt-1"


# -- statistics


async def test_statistics_in_every_state() -> None:
    hook = RecordingHook("A")
    sess = scripted(hook, StopAtStepHook(last_step=7), StopAtStepHook(num_steps=3))
    found = sess.statistics()
    assert (found.state, found.step, found.last_step) == (SessionState.NEW, None, 7)
    async with sess:
        await sess.run("a")
        found = sess.statistics()
        assert (found.state, found.step, found.last_step, found.paused) == (
            SessionState.OPEN,
            1,
            3,
            False,
        )
        assert [one.label for one in found.hooks] == ["A", "StopAtStepHook", "StopAtStepHook_1"]
        assert found.hooks[0].hook is hook
        assert (sess.state, sess.last_step) == (SessionState.OPEN, 3)
    found = sess.statistics()
    assert (found.state, found.stop) == (SessionState.CLOSED, Stop(Cause.BODY, "the body ended"))
    assert [one.label for one in found.hooks] == ["A", "StopAtStepHook", "StopAtStepHook_1"]
    assert found.tasks == found.timers == ()


async def test_a_notebook_shows_the_state_the_steps_and_the_reason_of_the_stop() -> None:
    sess = scripted(StopAtStepHook(last_step=7))
    async with sess:
        await sess.run("a")
        bar = '<progress value="1" max="7"></progress>'
        assert f"<div>{bar} open at step 1 of 7</div>" in sess._repr_html_()
        sess.pause()
        assert f"<div>{bar} paused at step 1 of 7</div>" in sess._repr_html_()
    assert f"<div>{bar} closed at step 1 of 7: the body ended</div>" in sess._repr_html_()
    async with scripted() as sess:
        assert "<div>open at step 0</div>" in sess._repr_html_()


async def test_tasks_timers_and_channels() -> None:
    class Every(SessionRunHook):
        async def background(self, session: Any, coord: Any) -> None:
            async for _ in coord.every(10):
                await asyncio.sleep(15)

    async def looping() -> None:
        """Called every 4 s."""

    async with scripted(Every()) as sess:
        coord = sess.coord
        assert coord is not None
        LooperTask.loop(coord, 4, looping)
        coord.channel(5, name="batches").send_nowait(1)
        await asyncio.sleep(11)
        found = sess.statistics()
        name = "test_tasks_timers_and_channels.<locals>.looping"
        assert [task.name for task in found.tasks] == ["Every.background", f"LooperTask-{name}"]
        assert "Every.background (" in found.tasks[0].waits_for
        assert [tuple(timer) for timer in found.timers] == [
            ("Every.background", 10.0, 9.0), (f"LooperTask-{name}", 4.0, 1.0),
        ]  # fmt: skip
        assert [tuple(queue) for queue in await sess.queues()] == [("batches", 1, 5)]
        sess.request_stop()
        await asyncio.sleep(1)
        assert sess.statistics().timers == ()


async def test_errors_of_hooks_are_counted() -> None:
    tolerated, fatal = ValueError("tolerated"), ValueError("fatal")
    logging_hook, raising = fail_in("after_run", tolerated, times=2), fail_in("before_run", fatal)
    logging_hook.on_error = "log"
    logging_hook.name, raising.name = "log", "raise"  # type: ignore[attr-defined]  # a hook may have one
    async with scripted(logging_hook, raising, RecordingHook("fine")) as sess:
        with pytest.raises(ValueError, match="fatal"):
            await sess.run("a")
        await sess.run("a")
        await sess.run("a")
        assert [(h.label, h.failures, h.last_error) for h in sess.statistics().hooks] == [
            ("log", 2, "ValueError: tolerated"), ("raise", 1, "ValueError: fatal"), ("fine", 0, None),
        ]  # fmt: skip


async def test_errors_in_the_background_are_counted() -> None:
    @every(secs=10)
    async def report() -> None:
        raise ValueError("no")

    report.on_error = "log"
    async with scripted(report) as sess:
        await asyncio.sleep(25)
        (found,) = sess.statistics().hooks
    assert (found.failures, found.last_error) == (2, "ValueError: no")


async def test_what_is_under_way_and_recoveries() -> None:
    raws = [ScriptedSession([1, AbortedError("gone")]), ScriptedSession([2])]
    seen: list[list[str]] = []

    class Looking(SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            seen.append([span.kind for span in sess.statistics().open_spans])

    sess = MonitoredSession(ScriptedCreator(*raws), [Looking()])
    async with sess:
        await sess.run("a")
        await sess.run("a")
        assert sess.statistics().recoveries == 1
    assert seen == [["opening"], ["recovery"]]


async def test_hooks_can_be_detached_by_the_object() -> None:
    hook = RecordingHook("A")
    async with scripted(hook) as sess:
        await sess.detach(hook)
        assert sess.statistics().hooks == ()
        await sess.detach(hook)
    assert hook.moments() == ["begin", "after_create_session", "end", "cleanup"]
