"""Traces of sessions, as the SDK of OpenTelemetry exports them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import asyncmon as am
from asyncmon import graph, monitor
from asyncmon.errors import AbortedError, OutOfRangeError
from asyncmon.programs import FunctionProgram
from asyncmon.system import clock
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession, fail_in

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Traces:
    """A tracer, and the spans that have ended."""

    def __init__(self) -> None:
        provider = TracerProvider()
        self.exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        spans = self.exporter.get_finished_spans()
        return [span for span in spans if name in (None, span.name)]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def above(self, span: ReadableSpan) -> list[str]:
        """Return the names of the spans around one, the innermost first."""
        by_id = {one.context.span_id: one for one in self.spans()}
        names: list[str] = []
        parent = span.parent
        while parent is not None and parent.span_id in by_id:
            names.append(by_id[parent.span_id].name)
            parent = by_id[parent.span_id].parent
        return names


@pytest.fixture
def traces() -> Traces:
    return Traces()


def scripted(*hooks: Any, raws: Any = None) -> am.MonitoredSession:
    return am.MonitoredSession(ScriptedCreator(*(raws or [ScriptedSession()])), hooks)


class Tracing(am.SessionRunHook):
    """A hook with spans of its own."""

    name = "Own"

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        with self.tracer.start_as_current_span("user"):
            await asyncio.sleep(2)


async def test_spans_are_nested_as_the_work_is(traces: Traces) -> None:
    sess = scripted(Tracing(traces.tracer))
    monitor.trace(sess, traces.tracer)
    async with sess:
        began = clock.wall()
        await sess.run("a")
    run = traces.one("asyncmon.run")
    assert traces.above(traces.one("user")) == ["asyncmon.hook Own.after_run", "asyncmon.run"]
    assert dict(run.attributes) == {
        "asyncmon.step": 0, "asyncmon.end_step": 1, "asyncmon.name": "run",
    }  # fmt: skip
    assert run.start_time == pytest.approx(began * 1e9, abs=1e6)
    assert run.end_time - run.start_time == pytest.approx(2e9, abs=1e6)
    assert traces.above(traces.one("asyncmon.creation")) == ["asyncmon.opening"]
    assert run.parent is None
    hook = dict(traces.one("asyncmon.hook Own.after_run").attributes)
    assert (hook["asyncmon.hook"], hook["asyncmon.method"], hook["asyncmon.step"]) == (
        "Own", "after_run", 1,
    )  # fmt: skip


async def test_the_session_is_below_the_span_that_is_current(traces: Traces) -> None:
    sess = scripted()
    monitor.trace(sess, traces.tracer)
    with traces.tracer.start_as_current_span("job"):
        async with sess:
            await sess.run("a")
    for name in ("asyncmon.opening", "asyncmon.run", "asyncmon.closing"):
        assert traces.above(traces.one(name)) == ["job"]


async def test_spans_of_a_step_are_below_its_run(traces: Traces) -> None:
    def doubled(x: Any) -> Any:  # in a worker thread
        with traces.tracer.start_as_current_span("in a function"):
            return 2 * x

    with graph.Graph().as_default():
        fetch = graph.py_func(doubled, [graph.constant(1.0)], graph.float32)
        async with am.MonitoredSession() as sess:
            monitor.trace(sess, traces.tracer)
            await sess.run(fetch)
    assert traces.above(traces.one("in a function")) == ["asyncmon.run"]


async def test_spans_of_a_function_program_are_below_its_run(traces: Traces) -> None:
    program = FunctionProgram(state={"n": 0})

    @program.step
    async def train(state: Any) -> None:
        with traces.tracer.start_as_current_span("async"):
            state["n"] += 1

    @program.step
    def count(state: Any) -> None:
        with traces.tracer.start_as_current_span("plain"):
            state["n"] += 1

    async with am.MonitoredSession(am.ChiefSessionCreator(program=program)) as sess:
        monitor.trace(sess, traces.tracer)
        await sess.run("train")
        await sess.run("count")
        await sess.run_step_fn(lambda context: context.run_with_hooks("train"))
    assert [traces.above(span) for span in traces.spans("async")] == [["asyncmon.run"]] * 2
    assert traces.above(traces.one("plain")) == ["asyncmon.run"]


async def test_errors_give_the_status(traces: Traces) -> None:
    error = ValueError("no")
    sess = scripted(raws=[ScriptedSession([error, OutOfRangeError("no more data")])])
    async with sess:
        monitor.trace(sess, traces.tracer)
        with pytest.raises(ValueError, match="no"):
            await sess.run("a")
        with pytest.raises(OutOfRangeError):
            await sess.run("a")
    failed, ended = traces.spans("asyncmon.run")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description == "ValueError: no"
    assert [event.name for event in failed.events] == ["exception"]
    assert ended.status.status_code is StatusCode.UNSET
    assert ended.attributes["asyncmon.ended_by"] == "OutOfRangeError: no more data"


async def test_a_tolerated_error_is_that_of_the_hook_alone(traces: Traces) -> None:
    hook = fail_in("before_run", ValueError("no"))
    hook.on_error = "log"
    async with scripted(hook) as sess:
        monitor.trace(sess, traces.tracer)
        await sess.run("a")
    hook_span = traces.one("asyncmon.hook _Fault.before_run")
    assert hook_span.status.status_code is StatusCode.ERROR
    assert traces.one("asyncmon.run").status.status_code is StatusCode.UNSET


async def test_a_cancellation_is_no_failure(traces: Traces) -> None:
    async with scripted(Tracing(traces.tracer)) as sess:
        monitor.trace(sess, traces.tracer)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await sess.run("a")
    run = traces.one("asyncmon.run")
    assert run.status.status_code is StatusCode.UNSET
    assert run.attributes["asyncmon.ended_by"] == "CancelledError"


async def test_a_recovery_is_below_its_run(traces: Traces) -> None:
    raws = [ScriptedSession([1, AbortedError("gone")]), ScriptedSession([2])]
    async with scripted(RecordingHook("A"), raws=raws) as sess:
        monitor.trace(sess, traces.tracer)
        await sess.run("a")
        await sess.run("a")
    recovery = traces.one("asyncmon.recovery")
    assert traces.above(recovery) == ["asyncmon.run"]
    assert recovery.attributes["asyncmon.name"] == "AbortedError"
    assert traces.above(traces.one("asyncmon.creation")) == ["asyncmon.recovery", "asyncmon.run"]


async def test_saves_and_restores(traces: Traces, tmp_path: Path) -> None:
    def session(saver: am.Saver) -> am.MonitoredSession:
        with graph.Graph().as_default() as program:
            graph.assign_add(am.get_or_create_global_step(), 1, name="train")
        scaffold = am.Scaffold(saver=saver, program=program)
        hook = am.CheckpointSaverHook(tmp_path, save_secs=10, scaffold=scaffold)
        creator = am.ChiefSessionCreator(scaffold, checkpoint_dir=tmp_path, program=program)
        return am.MonitoredSession(creator, [hook])

    with traces.tracer.start_as_current_span("job"):
        first = session(am.Saver(defer_build=True))
        monitor.trace(first, traces.tracer)
        async with first:
            await first.run("train")
            await asyncio.sleep(11)  # a save by time
            await first.run("train")
            await first.save()
    began, timed, now = traces.spans("asyncmon.save")
    assert traces.above(began)[0] == "asyncmon.hook CheckpointSaverHook.after_create_session"
    assert traces.above(timed) == ["job"]
    assert [span.attributes["asyncmon.step"] for span in (began, timed, now)] == [0, 1, 2]
    assert timed.attributes["asyncmon.name"] == f"{tmp_path}/model.ckpt-1"
    assert timed.attributes["asyncmon.bytes"] > 0
    second = session(am.Saver(defer_build=True))
    traces.exporter.clear()
    monitor.trace(second, traces.tracer)
    async with second:
        pass
    restore = traces.one("asyncmon.restore")
    assert restore.attributes["asyncmon.name"] == f"{tmp_path}/model.ckpt-2"
    assert traces.above(restore) == ["asyncmon.creation", "asyncmon.opening"]


async def test_the_returned_function_ends_it(traces: Traces) -> None:
    async with scripted() as sess:
        remove = monitor.trace(sess, traces.tracer)
        await sess.run("a")
        remove()
        await sess.run("a")
    assert len(traces.spans()) == 1


async def test_without_an_sdk_nothing_is_recorded() -> None:
    async with scripted() as sess:
        monitor.trace(sess)
        await sess.run("a")
