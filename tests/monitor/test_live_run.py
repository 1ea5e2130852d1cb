"""A run that is a session of this process."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph
from asyncmon.monitor import LiveRun, create_app
from asyncmon.monitor.live_run import LOOK_SECS
from asyncmon.monitor.run import ActionError, HookRow, Run
from asyncmon.runtime.session_statistics import QueueStatistics, TimerStatistics
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedSession,
    fail_in,
    wait_all_tasks_blocked,
)
from tests.monitor.scripted import client

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Slow(am.SessionRunHook):
    """Takes a second and a half a step."""

    name = "Slow"
    priority = 7

    async def before_run(self, run_context: Any) -> None:
        await asyncio.sleep(1)

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        await asyncio.sleep(0.5)


def scripted(*hooks: Any, raw: ScriptedSession | None = None) -> am.MonitoredSession:
    return am.MonitoredSession(ScriptedCreator(raw or ScriptedSession()), hooks)


async def hook_rows(run: LiveRun) -> dict[str, HookRow]:
    return {hook.id: hook for hook in (await run.details()).hooks}


def tags(run: LiveRun) -> list[str]:
    run.scalars.publish(1)
    return sorted(last.tag for last in run.scalars.tags())


async def test_the_states_of_a_session() -> None:
    sess = scripted(am.StopAtStepHook(last_step=9))
    run = LiveRun("digits", sess)
    checked: Run = run
    assert (checked.name, checked.kind) == ("digits", "live")
    assert (run.status().state, run.status().step, run.status().started) == ("new", None, None)
    async with sess:
        await sess.run("a")
        status = run.status()
        assert (status.state, status.step, status.last_step) == ("open", 1, 9)
        assert status.started is not None
        sess.request_stop("enough")
    status = run.status()
    assert (status.state, status.step, status.stop_reason) == ("closed", 1, "enough")
    assert (status.stop_cause, status.outcome) == ("request", "stopped")
    assert (status.rate, status.eta_secs) == (None, None)


async def test_the_last_error_of_an_open_session() -> None:
    sess = scripted(raw=ScriptedSession([ValueError("bad data"), 1]))
    async with sess:
        with pytest.raises(ValueError, match="bad data"):
            await sess.run("a")
        assert LiveRun("digits", sess).status().last_error == "ValueError: bad data"


async def test_outcome_of_a_closed_session_is_named() -> None:
    async with scripted(am.StopAtStepHook(last_step=1)) as finished:
        assert LiveRun("a", finished).status().outcome is None
        await finished.run("a")
    async with scripted() as preempted:
        preempted.request_stop("the machine goes", preempted=True)
    failed = scripted(raw=ScriptedSession([ValueError("bad data")]))
    with pytest.raises(ValueError, match="bad data"):
        async with failed:
            await failed.run("a")
    found = [LiveRun("a", sess).status() for sess in (finished, preempted, failed)]
    assert [one.outcome for one in found] == ["completed", "preempted", "failed"]
    assert [one.last_error for one in found] == [None, None, "ValueError: bad data"]


async def test_the_rate_and_the_time_left() -> None:
    async with scripted(am.StopAtStepHook(last_step=100)) as sess:
        run = LiveRun("digits", sess)
        run.status()
        for _ in range(30):
            await sess.run("a")
            await asyncio.sleep(0.5)
            status = run.status()
        assert (status.rate, status.eta_secs) == (2.0, 35.0)
        assert status.updated == pytest.approx(run.status().updated)
        sess.pause()
        status = run.status()
        assert (status.paused, status.rate, status.eta_secs) == (True, None, None)


async def test_hooks_are_timed_while_the_page_is_open() -> None:
    async with scripted(Slow(), RecordingHook("Other")) as sess:
        run = LiveRun("digits", sess)
        await sess.run("a")
        assert (await hook_rows(run))["Slow"] == HookRow(id="Slow", name="Slow", priority=7)
        await run.refresh()
        await asyncio.sleep(0)
        for _ in range(4):
            await sess.run("a")
        slow = (await hook_rows(run))["Slow"]
        assert (slow.calls, slow.total_secs, slow.secs_per_step) == (8, 6.0, 1.5)
        await asyncio.sleep(LOOK_SECS)
        await sess.run("a")
        assert (await hook_rows(run))["Slow"] == slow
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("monitor")]


async def test_the_measuring_ends_with_the_session() -> None:
    async with scripted() as sess:
        run = LiveRun("digits", sess)
        await run.refresh()
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await run.refresh()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_failures_of_hooks_are_shown() -> None:
    hook = fail_in("after_run", ValueError("no"))
    hook.on_error = "log"
    async with scripted(hook) as sess:
        run = LiveRun("digits", sess)
        await sess.run("a")
        (found,) = (await hook_rows(run)).values()
        assert (found.failures, found.last_error) == (1, "ValueError: no")


async def test_lag_timers_tasks_and_queues() -> None:
    @am.every(secs=10)
    async def report() -> None:
        """Every ten seconds."""

    with graph.Graph().as_default():
        am.get_or_create_global_step()
        queue = graph.FIFOQueue(5, [graph.float32], shapes=[[]], name="batches")
        put = queue.enqueue(1.0)
        async with am.MonitoredSession(hooks=[report]) as sess:
            assert sess.coord is not None
            sess.coord.channel(8, name="rollouts")
            await sess.run(put)
            run = LiveRun("digits", sess)
            await run.refresh()
            await asyncio.sleep(1)
            details = await run.details()
            assert details.loop_lag is not None
            assert 0 <= details.loop_lag.p50 <= details.loop_lag.max < 1e-9
            (task,) = details.tasks
            assert task.name.endswith("report.background")
            assert task.waits_for is not None
            assert details.timers == (
                TimerStatistics(name=task.name, every_secs=10, next_secs=pytest.approx(9)),
            )
            assert details.queues == (
                QueueStatistics(name="batches", size=1, capacity=5),
                QueueStatistics(name="rollouts", size=0, capacity=8),
            )
            assert details.recoveries == 0


async def test_pipelines_are_those_of_the_session() -> None:
    async def play(element: int) -> int:
        if element == 1:
            raise ValueError("no game")
        return element

    async with scripted() as sess:
        run = LiveRun("digits", sess)
        games = sess.produce(range(8), play, depth=4, max_age=2, on_error="drop", name="games")
        await anext(games.batches(2))
        async with client(create_app(run)) as http:
            [found] = (await http.get("/api/runs/digits")).json()["pipelines"]
        statistics = games.statistics()
        assert found == {**statistics._asdict(), "ages": {"0": 2}}
        assert (found["held"], found["dropped"], found["failures"]) == (2, 1, 1)


async def test_scalars_are_there_before_the_writer_would_write_them(tmp_path: Path) -> None:
    with graph.Graph().as_default() as program:
        step = am.get_or_create_global_step()
        train = graph.assign_add(step, 1)
        am.summary.scalar("loss", graph.cast(step, graph.float32))
    sess = am.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_summaries_steps=1, log_step_count_steps=None,
        program=program, signals=None,
    )  # fmt: skip
    run = LiveRun("digits", sess)
    async with sess:
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            await sess.run(train)
        while "loss" not in tags(run):
            await run.refresh()
        assert asyncio.get_running_loop().time() < began + 1  # the writer's own time is two seconds
        (checkpoint,) = (await run.details()).checkpoints
        assert (checkpoint.step, checkpoint.kept, checkpoint.verified) == (0, True, None)
        assert (await run.act("save", None))["path"] == f"{tmp_path}/model.ckpt-3"
    assert [c.step for c in (await run.details()).checkpoints] == [3, 0]
    assert [c.verified for c in await run.verify()] == [True, True]


async def test_directories_have_prefixes(tmp_path: Path) -> None:
    hooks = [
        am.StepCounterHook(every_n_steps=1, output_dir=tmp_path / folder)
        for folder in ("run", "run/eval", "other")
    ]
    async with scripted(*hooks) as sess:
        run = LiveRun("digits", sess)
        for _ in range(3):
            await sess.run("a")
            await asyncio.sleep(1)
    await run.refresh()
    assert tags(run) == [
        "eval/global_step/sec", "global_step/sec", "other/global_step/sec",
    ]  # fmt: skip


async def test_session_and_its_directories_are_one_row(tmp_path: Path) -> None:
    program = am.programs.FunctionProgram({"n": 0})
    program.step(lambda _: None, name="t")
    app = am.monitor.create_app(str(tmp_path))

    async def rows() -> list[tuple[str, str]]:
        app.state.runs._scan_due = 0.0
        async with client(app) as http:
            found = (await http.get("/api/runs")).json()["runs"]
        return [(row["name"], row["kind"]) for row in found]

    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=tmp_path / "one", signals=None
    ) as sess:
        sess.log("loss", 1.0)
        await sess.run("t")
        assert await rows() == [("one", "directory")]
        app.state.runs.add("digits", sess)
        assert await rows() == [("digits", "live")]
    assert await rows() == [("digits", "live")]
    app.state.runs.remove("digits")
    assert await rows() == [("one", "directory")]


async def test_log_lines_belong_to_their_session() -> None:
    class Says(am.SessionRunHook):
        def __init__(self, text: str) -> None:
            self.text = text

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            logging.getLogger("asyncmon.test").warning(self.text)

    async with scripted(Says("of a")) as a, scripted(Says("of b")) as b:
        app = create_app({"a": a, "b": b})
        await a.run("a")
        await b.run("a")
        other = contextvars.Context()  # of code that is part of no session
        other.run(logging.getLogger("asyncmon.test").warning, "of all")
        async with client(app) as http:
            found = {}
            for run in ("a", "b"):
                answer = (await http.get(f"/api/runs/{run}/log")).json()
                found[run] = [line["text"].split("] ")[-1] for line in answer["lines"]]
    assert found == {"a": ["of a", "of all"], "b": ["of b", "of all"]}


async def test_hooks_that_are_attached_bring_their_directories(tmp_path: Path) -> None:
    async with scripted() as sess:
        run = LiveRun("digits", sess)
        await run.refresh()
        await sess.attach(am.StepCounterHook(every_n_steps=1, output_dir=tmp_path))
        await sess.run("a")
        await asyncio.sleep(1)
        await sess.run("a")
    await run.refresh()
    assert tags(run) == ["global_step/sec"]


async def test_a_save_under_way_is_shown(tmp_path: Path) -> None:
    listening = asyncio.Event()

    class Looking(am.CheckpointSaverListener):
        async def before_save(self, session: Any, global_step_value: int) -> None:
            listening.set()

    hook = am.CheckpointSaverHook(tmp_path, save_secs=60, saver=am.Saver(), listeners=[Looking()])
    async with scripted(hook) as sess:
        run = LiveRun("digits", sess)
        await sess.run("a")
        assert (await run.details()).saving is None
        listening.clear()
        save = asyncio.create_task(sess.save())
        await listening.wait()
        found = []
        while not save.done():
            await asyncio.sleep(0)
            found += [span for span in sess.statistics().open_spans if span.kind == "save"]
        assert {(span.name, span.attributes["step"]) for span in found} == {
            (f"{tmp_path}/model.ckpt-1", 1)
        }


async def test_actions() -> None:
    async with scripted() as sess:
        run = LiveRun("digits", sess)
        assert await run.act("pause", "to look") == {}
        assert sess.paused
        assert await run.act("resume", None) == {}
        assert not sess.paused
        with pytest.raises(ActionError, match="'digits' cannot save: RuntimeError: No hook of this"):
            await run.act("save", None)
        await run.act("stop", None)
        assert sess.stop_reason == "the monitor requested a stop"
        with pytest.raises(ActionError, match="cannot pause: RuntimeError: The session is to stop"):
            await run.act("pause", None)
    with pytest.raises(ActionError, match="'digits' cannot stop: the session is closed"):
        await run.act("stop", None)


async def test_a_session_that_is_being_opened_can_be_stopped() -> None:
    class Waiting(am.SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            await coord.wait_for_stop()

    sess = scripted(Waiting())
    opening = asyncio.create_task(sess.start())
    await wait_all_tasks_blocked()
    await LiveRun("digits", sess).act("stop", "enough")
    with pytest.raises(am.errors.CancelledError, match="enough"):
        await opening


async def test_a_hook_is_detached() -> None:
    failing = fail_in("end", ValueError("no"))
    failing.name = "failing"  # type: ignore[attr-defined]  # a hook may have one
    async with scripted(hook := RecordingHook("A"), failing) as sess:
        run = LiveRun("digits", sess)
        await run.detach("A")
        assert list(await hook_rows(run)) == ["failing"]
        assert hook.moments()[-1] == "cleanup"
        with pytest.raises(KeyError):
            await run.detach("A")
        with pytest.raises(ActionError, match="'failing' failed when it was detached: ValueError: no"):
            await run.detach("failing")


async def test_the_api_operates_a_session(tmp_path: Path) -> None:
    hook = am.CheckpointSaverHook(tmp_path, save_secs=600, saver=am.Saver())
    sess = scripted(hook, RecordingHook("A"), am.StopAtStepHook(last_step=9))
    async with sess, client(create_app({"digits": sess})) as http:
        await sess.run("a")
        row = (await http.get("/api/runs")).json()["runs"][0]
        assert (row["kind"], row["state"], row["step"], row["last_step"]) == ("live", "open", 1, 9)
        saved = await http.post("/api/runs/digits/save")
        assert saved.json() == {"ok": True, "path": f"{tmp_path}/model.ckpt-1"}
        await http.post("/api/runs/digits/pause", json={"reason": "to look"})
        assert (await http.get("/api/runs/digits")).json()["paused"] is True
        assert (await http.post("/api/runs/digits/hooks/A/detach")).status_code == 200
        assert (await http.post("/api/runs/digits/hooks/A/detach")).status_code == 404
        found = (await http.get("/api/runs/digits")).json()
        assert [one["id"] for one in found["hooks"]] == ["StopAtStepHook", "CheckpointSaverHook"]
        assert [one["step"] for one in found["checkpoints"]] == [1, 0]
        await http.post("/api/runs/digits/stop", json={"reason": "enough"})
        assert sess.stop_reason == "enough"
        refused = await http.post("/api/runs/digits/pause")
        assert (refused.status_code, "is to stop" in refused.json()["error"]) == (409, True)
    assert (await http_row(sess))["state"] == "closed"


async def http_row(sess: am.MonitoredSession) -> Any:
    async with client(create_app(sess)) as http:
        return (await http.get("/api/runs")).json()["runs"][0]


async def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(TypeError, match="A session, a run, or the path of a log directory"):
        LiveRun("digits", 3)  # type: ignore[arg-type]  # refused


async def test_the_end_of_the_application_ends_what_is_measured() -> None:
    async with scripted() as sess:
        app = create_app(sess)
        async with app.router.lifespan_context(app), client(app) as http:
            await http.get("/api/runs/session")
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_while_measuring_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(observer: Any) -> Any:
        raise ValueError("no observers")

    async with scripted() as sess:
        sess.observe = refuse  # type: ignore[method-assign]  # the error
        run = LiveRun("digits", sess)
        await run.refresh()
        await asyncio.sleep(1)
        assert "no observers" in caplog.text
        await run.close()
