"""Observers: which spans there are, how they nest, and that observers cannot do harm."""

from __future__ import annotations

import asyncio
import errno
import logging
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import Saver
from asyncmon.errors import AbortedError, ResourceExhaustedError
from asyncmon.hooks import CheckpointSaverHook
from asyncmon.runtime import MonitoredSession, Scaffold, SessionRunHook, Span
from asyncmon.system.files import FileCalls
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession, fail_in
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

parent: ContextVar[Span | None] = ContextVar("parent", default=None)


class Record:
    """Keeps spans, each with the open spans of the same task when it began."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self.spans: list[Span] = []
        self.parents: dict[Span, Span | None] = {}
        self.open: list[Span] = []
        self.tokens: dict[Span, Any] = {}

    def began(self, span: Span) -> None:
        self.open.append(span)
        self.spans.append(span)
        self.parents[span] = parent.get()
        self.tokens[span] = parent.set(span)

    def ended(self, span: Span) -> None:
        self.open.remove(span)
        parent.reset(self.tokens.pop(span))  # fails in another task

    def named(self, kind: str) -> list[str]:
        return [span.name for span in self.spans if span.kind == kind]

    def one(self, kind: str, name: str | None = None) -> Span:
        (span,) = (s for s in self.spans if s.kind == kind and name in (None, s.name))
        return span


class Sleeping(SessionRunHook):
    name = "Sleeping"

    async def before_run(self, run_context: Any) -> None:
        await asyncio.sleep(1)

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        await asyncio.sleep(2)


async def test_a_run_and_its_hooks_have_spans(world: World) -> None:
    record = Record()
    async with world.session([Sleeping()]) as sess:
        remove = sess.observe(record)
        await sess.run(world.train, world.feed())
        remove()
        await sess.run(world.train, world.feed())
    assert [(s.kind, s.name) for s in record.spans] == [
        ("run", "run"), ("hook", "Sleeping.before_run"), ("hook", "Sleeping.after_run"),
    ]  # fmt: skip
    run, before, after = record.spans
    assert record.parents == {run: None, before: run, after: run}
    assert (run.step, run.end_step, run.ended - run.started) == (0, 1, 3)  # type: ignore[operator]  # both have ended
    assert (before.step, before.ended - before.started) == (0, 1)  # type: ignore[operator]  # it has ended
    assert (after.step, after.attributes) == (1, {"hook": "Sleeping", "method": "after_run"})
    assert record.open == []


async def test_the_whole_life_has_spans(world: World) -> None:
    record = Record()
    sess = world.session([RecordingHook("A"), RecordingHook("A")])
    sess.observe(record)
    async with sess:
        await sess.run(world.weight, hooks=False)
        await sess.run_step_fn(lambda step_context: None)
    moments = ["begin", "after_create_session", "end"]
    expected = [f"{name}.{moment}" for moment in moments for name in ("A", "A_1")]
    assert record.named("hook") == [*expected, "A_1.cleanup", "A.cleanup"]
    assert record.named("creation") == ["ChiefSessionCreator"]
    assert record.named("bare run") == ["run_bare"]
    assert record.named("run") == ["run_step_fn"]
    assert record.parents[record.one("hook", "A.begin")] is record.one("opening")
    assert record.parents[record.one("hook", "A.end")] is record.one("closing")
    assert record.open == []


async def test_labels_stay_with_their_hooks() -> None:
    first, second, third = RecordingHook("A"), RecordingHook("A"), RecordingHook("A")
    record = Record()
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [first]) as sess:
        attached = await sess.attach(second)
        await attached.detach()
        await sess.attach(third)
        sess.observe(record)
        await sess.run("a")
    assert record.named("hook")[:2] == ["A.before_run", "A_2.before_run"]


async def test_errors_are_in_the_spans() -> None:
    error = ValueError("no")
    record = Record()
    hook = fail_in("after_run", error)
    hook.on_error = "log"
    async with MonitoredSession(ScriptedCreator(ScriptedSession([1, error])), [hook]) as sess:
        sess.observe(record)
        await sess.run("a")
        with pytest.raises(ValueError, match="no"):
            await sess.run("a")
    assert [s.error for s in record.spans if s.kind == "run"] == [None, error]
    assert record.spans[2].name == "_Fault.after_run"
    assert record.spans[2].error is error


async def test_a_cancelled_run_has_its_cancellation() -> None:
    record = Record()
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [Sleeping()]) as sess:
        sess.observe(record)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await sess.run("a")
    assert isinstance(record.one("run").error, asyncio.CancelledError)
    assert record.open == []


async def test_a_recovery_is_inside_of_its_run() -> None:
    failure = AbortedError("gone")
    raws = [ScriptedSession([1, failure]), ScriptedSession([2])]
    record = Record()
    async with MonitoredSession(ScriptedCreator(*raws), [RecordingHook("A")]) as sess:
        sess.observe(record)
        await sess.run("a")
        await sess.run("a")
    run = record.spans[3]
    recovery, creation = record.one("recovery"), record.one("creation")
    assert (recovery.name, recovery.step, recovery.end_step) == ("AbortedError", 1, 0)
    assert (record.parents[recovery], record.parents[creation]) == (run, recovery)
    assert record.parents[record.one("hook", "A.after_create_session")] is recovery
    assert run.error is None
    assert record.named("hook").count("A.before_run") == 3


async def test_a_failed_recovery_has_its_error() -> None:
    refused = PermissionError("no")
    record = Record()
    creator = ScriptedCreator(ScriptedSession([AbortedError("gone")]), refused)
    async with MonitoredSession(creator) as sess:
        sess.observe(record)
        with pytest.raises(PermissionError):
            await sess.run("a")
    assert record.one("recovery").error is record.one("creation").error is refused


async def test_restores_are_inside_of_the_creation(world: World, tmp_path: Path) -> None:
    for restored in (str(tmp_path), f"{tmp_path}/model.ckpt-1"):
        saver = CheckpointSaverHook(tmp_path, save_secs=600, scaffold=(scaffold := Scaffold()))
        record = Record()
        creator = world.creator(checkpoint_dir=tmp_path, scaffold=scaffold)
        sess = MonitoredSession(creator, [saver])
        sess.observe(record)
        async with sess:
            await sess.run(world.train, world.feed())
        restore = record.one("restore")
        assert restore.name == restored
        assert record.parents[restore] is record.one("creation")


async def test_saves_have_spans_in_the_background_too(world: World, tmp_path: Path) -> None:
    hook = CheckpointSaverHook(tmp_path, save_secs=10, saver=Saver())
    record = Record()
    sess = world.session([hook])
    sess.observe(record)
    async with sess:
        await sess.run(world.train, world.feed())
        await asyncio.sleep(11)
        await sess.run(world.train, world.feed())
    saves = [span for span in record.spans if span.kind == "save"]
    assert [span.name for span in saves] == [f"{tmp_path}/model.ckpt-{n}" for n in range(3)]
    assert all(span.attributes["bytes"] > 0 and span.error is None for span in saves)
    assert record.parents[saves[0]] is record.one("hook", "CheckpointSaverHook.after_create_session")
    assert record.parents[saves[1]] is record.one("background")
    assert record.parents[saves[2]] is record.one("hook", "CheckpointSaverHook.end")
    assert saves[1].started == 10


async def test_a_save_that_outlives_its_session_has_one_span_that_succeeded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The recovery ends the task that waits for the commit, not the save."""
    raws = [ScriptedSession([1, AbortedError("gone")]), ScriptedSession([2])]
    hook = CheckpointSaverHook(tmp_path, save_steps=1, saver=Saver(max_to_keep=None), timeout_secs=0)
    record = Record()
    sess = MonitoredSession(ScriptedCreator(*raws), [hook])
    sess.observe(record)
    with caplog.at_level(logging.INFO, "asyncmon"):
        async with sess:
            await sess.run("a")
            await sess.run("a")
    saves = [span for span in record.spans if span.kind == "save"]
    assert all(isinstance(s.error, asyncio.CancelledError | None) for s in saves)
    logged = [r.args[0] for r in caplog.records if r.msg.startswith("Saved checkpoint")]  # type: ignore[index]  # a tuple
    assert sorted(span.name for span in saves if span.error is None) == sorted(logged)


async def test_a_failed_save_has_its_error(world: World, tmp_path: Path) -> None:
    class FullDisk(FileCalls):
        def write(self, descriptor: int, data: bytes | memoryview) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    hook = CheckpointSaverHook(tmp_path / "x", save_steps=1, saver=Saver(calls=FullDisk()))
    record = Record()
    sess = world.session([hook])
    sess.observe(record)
    with pytest.raises(ResourceExhaustedError, match="No space left"):
        await sess.start()
    assert record.one("save").error is not None


async def test_an_observer_that_raises_is_logged_once_and_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Record):
        def began(self, span: Span) -> None:
            super().began(span)
            raise ValueError("broken")

    broken, record = Broken(), Record()
    async with MonitoredSession(ScriptedCreator(ScriptedSession())) as sess:
        sess.observe(broken)
        sess.observe(record)
        await sess.run("a")
        await sess.run("a")
    assert len(broken.spans) == 1
    assert record.named("run") == ["run", "run"]
    assert len([r for r in caplog.records if "the observer is removed" in r.message]) == 1


async def test_an_observer_gets_the_ends_of_what_it_saw_begin() -> None:
    record = Record()

    class Removing(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            remove()
            sess.observe(late)

    late = Record()
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [Removing()]) as sess:
        remove = sess.observe(record)
        await sess.run("a")
        assert (record.open, late.spans) == ([], [])
        await sess.run("a")
    assert record.named("run") == ["run"]
    assert late.named("run") == ["run"]


async def test_hooks_may_come_and_go_under_observation() -> None:
    class Leaving(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            await attached.detach()

    record, other = Record(), RecordingHook("B")
    async with MonitoredSession(ScriptedCreator(ScriptedSession())) as sess:
        sess.observe(record)
        attached = await sess.attach(Leaving())
        await sess.attach(other)
        await sess.run("a")
    assert "B.after_run" in record.named("hook")
    assert other.moments().count("after_run") == 1


async def test_what_is_no_observer_is_refused() -> None:
    sess = MonitoredSession(ScriptedCreator(ScriptedSession()))
    with pytest.raises(TypeError, match=r"began\(span\) and ended\(span\), got 3"):
        sess.observe(3)  # type: ignore[arg-type]  # refused
