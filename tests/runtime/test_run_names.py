"""``record.run``: each log record that concerns a session names its run."""

from __future__ import annotations

import asyncio
import io
import logging
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.errors import AbortedError
from asyncmon.runtime import RunFormatter
from asyncmon.testing import ScriptedCreator, ScriptedSession, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def session(name: str, script: Any = (), **options: Any) -> am.MonitoredSession:
    hooks: list[am.SessionRunHook] = [am.LoggingTensorHook(["loss"], every_n_iter=1)]
    creator = ScriptedCreator(*[ScriptedSession([one]) for one in script or [{"loss": 1.0}]])
    return am.MonitoredSession(creator, hooks, name=name, **options)


def runs(caplog: pytest.LogCaptureFixture) -> dict[str, str | None]:
    return {one.getMessage(): getattr(one, "run", None) for one in caplog.records}


async def test_the_records_of_one_session_name_their_run(caplog: pytest.LogCaptureFixture) -> None:
    async with session("a", [AbortedError("lost"), {"loss": 1.0}]) as sess:
        await sess.run("train")
    assert len(caplog.records) > 3
    assert set(runs(caplog).values()) == {"a"}


async def test_records_name_their_run_whichever_session_was_opened_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with session("a", [AbortedError("lost"), {"loss": 2.0}]) as first:
        async with session("b", [{"loss": 3.0}]) as second:
            await first.run("train")
            await second.run("train")
            assert first.coord is not None
            first.coord.create_task(_say, "from a task of a")
            first.pause("by a request")
            first.resume()
            await wait_all_tasks_blocked()
        await first.run("train")
    found = runs(caplog)
    assert found["loss = 2.0"] == found["from a task of a"] == "a"
    assert found["Paused: by a request."] == found["Resumed."] == "a"
    assert {run for line, run in found.items() if line.startswith("Recovered from ")} == {"a"}
    assert found["loss = 3.0"] == "b"
    ends = [one.run for one in caplog.records if one.getMessage().startswith("Session ended")]  # type: ignore[attr-defined]  # of asyncmon's records
    assert ends == ["b", "a"]


async def _say(text: str) -> None:
    logging.getLogger("asyncmon.test").info(text)


async def test_lines_of_a_request_handler_name_the_run_that_it_calls(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    requests: asyncio.Queue[Any] = asyncio.Queue()

    async def handler() -> None:
        while True:
            call = await requests.get()
            result = call()
            if asyncio.iscoroutine(result):
                await result
            requests.task_done()

    server = asyncio.create_task(handler())  # before any session
    saves = am.CheckpointSaverHook(tmp_path, save_steps=1000)
    creator = ScriptedCreator(ScriptedSession([{"loss": 1.0}] * 9))
    sess = am.MonitoredSession(creator, [saves], name="a", stop_grace_period_secs=5)
    async with session("b"), sess:
        caplog.clear()
        for call in (
            lambda: sess.run("train"), lambda: sess.pause("for a while"), sess.resume, sess.save,
            lambda: sess.request_stop("by a request"),
        ):  # fmt: skip
            requests.put_nowait(call)
        await requests.join()
    found = runs(caplog)
    assert {run for line, run in found.items() if "checkpoint" in line} == {"a"}
    assert found["Paused: for a while."] == found["Resumed."] == "a"
    server.cancel()


async def test_a_run_that_another_task_makes_names_the_run_when_it_is_interrupted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs_of_b: list[asyncio.Task[Any]] = []

    class Hangs(am.SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            await asyncio.sleep(1e6)

    async with (
        am.MonitoredSession(
            ScriptedCreator(ScriptedSession([1])), [Hangs()], name="b", stop_grace_period_secs=1
        ) as sess,
        session("a"),
    ):
        runs_of_b.append(asyncio.create_task(sess.run("train")))
        await wait_all_tasks_blocked()
        sess.request_stop("enough")
        await asyncio.wait(runs_of_b)
    [line] = [one for one in caplog.records if "did not finish within the grace" in one.getMessage()]
    assert line.run == "b"  # type: ignore[attr-defined]  # of asyncmon's records


async def test_loggers_made_while_a_session_is_open_name_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Those of the user's code, too."""
    name = "of_a_user.test_of_run_names"
    logging.Logger.manager.loggerDict.pop(name, None)

    class Logging(am.SessionRunHook):
        async def after_run(self, run_context: object, run_values: object) -> None:
            logging.getLogger(name).info("ran")

    async with am.MonitoredSession(
        ScriptedCreator(ScriptedSession([1])), [Logging()], name="a"
    ) as sess:
        await sess.run("train")
        logging.getLogger(name).info("in the body")
    logging.getLogger(name).info("after the body")
    found = runs(caplog)
    assert (found["ran"], found["in the body"], found["after the body"]) == ("a", "a", None)


async def test_a_forgotten_session_names_its_last_line(caplog: pytest.LogCaptureFixture) -> None:
    async with session("only"):
        forgotten = [await session("forgotten").start()]
        with pytest.warns(ResourceWarning, match="not closed"):
            forgotten.clear()
        [line] = [one for one in caplog.records if "it was not closed" in one.getMessage()]
        assert line.run == "forgotten"  # type: ignore[attr-defined]  # of asyncmon's records


@pytest.mark.parametrize("inline_ms", [0, 1000])
async def test_a_step_without_hooks_names_the_run_for_any_caller(
    caplog: pytest.LogCaptureFixture, inline_ms: float
) -> None:
    """In the loop, and in a thread of its session."""

    def made(name: str) -> am.MonitoredSession:
        program = am.programs.FunctionProgram({"n": 0})

        @program.step
        def train(state: Any) -> None:
            logging.getLogger("of_a_user").info("step of %s", name)

        config = am.SessionConfig(inline_ms=inline_ms)
        creator = am.ChiefSessionCreator(program=program, config=config)
        return am.MonitoredSession(creator, name=name)

    async with made("a") as first, made("b") as second:
        await first.run("train")
        await asyncio.gather(second.run("train"), first.run("train"))
    found = runs(caplog)
    assert (found["step of a"], found["step of b"]) == ("a", "b")


async def test_a_thread_that_writes_for_a_session_names_its_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full:
        blocking = True

        def write(self, step: int | None, wall_time: float, values: object) -> None:
            raise OSError("no space")

        def write_config(self, config: object) -> None:
            pass

        def flush(self) -> None:
            pass

        def close(self, error: BaseException | None) -> None:
            pass

    hooks = [am.LoggersHook([Full()])]
    raw = ScriptedCreator(ScriptedSession([1]))
    async with session("b"), am.MonitoredSession(raw, hooks, name="a") as sess, session("c"):
        sess.log("loss", 1.0)
        await asyncio.sleep(10)
    [line] = [one for one in caplog.records if "drops values" in one.getMessage()]
    assert line.run == "a"  # type: ignore[attr-defined]  # of asyncmon's records


# -- names


def by(directory: Path | None) -> am.MonitoredSession:
    hooks = [] if directory is None else [am.StepCounterHook(every_n_secs=10, output_dir=directory)]
    return am.MonitoredSession(ScriptedCreator(ScriptedSession([1])), hooks)


async def test_a_run_is_named_by_its_argument_or_by_its_directory(tmp_path: Path) -> None:
    """The name stays after the close, and is free again for the next session."""
    names = []
    for _ in range(2):
        by_directory, number = by(tmp_path / "digits"), by(None)
        given = am.MonitoredSession(ScriptedCreator(ScriptedSession([1])), name="digits")
        assert (by_directory.name, given.name, number.name) == ("digits", "digits", "session")
        async with by_directory, given, number:
            names.append((by_directory.name, given.name))
            assert number.name.startswith("session ")
        assert (by_directory.name, given.name) == names[-1]
    assert names == [("digits", "digits-2")] * 2


async def test_checkpoints_name_a_run_before_event_files(tmp_path: Path) -> None:
    sess = am.MonitoredTrainingSession(
        checkpoint_dir=tmp_path / "digits", summary_dir=tmp_path / "logs", program=am.graph.Graph()
    )
    assert sess.name == "digits"
    assert am.MonitoredTrainingSession(checkpoint_dir="s3://bucket/run/").name == "run"
    assert am.MonitoredTrainingSession(name="mine", checkpoint_dir=tmp_path).name == "mine"
    with pytest.raises(TypeError, match="name must be a text or None, got 3"):
        am.MonitoredTrainingSession(name=3)  # type: ignore[arg-type]  # refused


# -- formatter and handler


def formatted(form: str | None = None) -> tuple[logging.Handler, io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(RunFormatter(form))
    return handler, stream


async def test_the_formatter_puts_the_name_before_the_message_while_several_sessions_are_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler, stream = formatted()
    logging.getLogger("asyncmon").addHandler(handler)
    try:
        async with session("100%", [{"loss": 2.0}]) as first, session("b"):
            await first.run("train")
    finally:
        logging.getLogger("asyncmon").removeHandler(handler)
    lines = stream.getvalue().splitlines()
    assert "[100%] loss = 2.0" in lines
    assert "[b] Session ended at step 0: the body ended." in lines
    assert lines[-1] == "Session ended at step 1: the body ended."
    assert not [
        line for line in caplog.messages if line.startswith("[")
    ]  # the records are as they were


async def test_a_format_may_have_the_name_of_the_run() -> None:
    handler, stream = formatted("%(run)s|%(message)s")
    logging.getLogger("asyncmon").addHandler(handler)
    try:
        async with session("a"):
            pass
        logging.getLogger("asyncmon.test").warning("beside")
    finally:
        logging.getLogger("asyncmon").removeHandler(handler)
    assert stream.getvalue().splitlines()[-2:] == [
        "a|Session ended at step 0: the body ended.", "|beside",
    ]  # fmt: skip


async def test_a_handler_gets_the_records_of_one_run_alone() -> None:
    handler, stream = formatted()
    sess = session("a", [{"loss": 1.0}])
    with am.logging_handler(sess, handler):
        async with session("b", [{"loss": 2.0}]) as other, sess:
            await sess.run("train")
            await other.run("train")
    lines = stream.getvalue().splitlines()
    assert lines[-1] == "[a] Session ended at step 1: the body ended."
    assert "[a] loss = 1.0" in lines
    assert not [line for line in lines if "loss = 2.0" in line]
    assert handler not in logging.getLogger().handlers


async def test_a_signal_handler_of_a_run_is_called_after_other_runs_have_ended() -> None:
    handler, stream = formatted()
    with am.logging_handler("a", handler):
        async with session("a") as sess:
            async with session("b"):
                pass
            await sess.run("train")
    assert "loss = 1.0" in stream.getvalue()


async def test_a_handler_follows_the_name_that_the_opening_gives() -> None:
    handler, stream = formatted()
    second = session("a", [{"loss": 2.0}])
    added = am.logging_handler(second, handler)
    async with session("a") as first, second:
        assert second.name == "a-2"
        await first.run("train")
        await second.run("train")
    added.close()
    added.close()
    assert "loss = 2.0" in stream.getvalue()
    assert "loss = 1.0" not in stream.getvalue()


@pytest.mark.parametrize(
    ("run", "handler", "problem"),
    [(3, logging.NullHandler(), "run must be"), ("a", print, "handler must be")],
)
async def test_a_handler_of_another_signal_is_refused(run: Any, handler: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        am.logging_handler(run, handler)
