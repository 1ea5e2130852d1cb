"""The names of runs in log records, while several sessions are open."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING

import pytest

import asyncmon as am
from asyncmon.errors import AbortedError
from asyncmon.testing import ScriptedCreator, ScriptedSession

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def session(directory: Path | None, script: list[object]) -> am.MonitoredSession:
    hooks: list[am.SessionRunHook] = [am.LoggingTensorHook(["loss"], every_n_iter=1)]
    if directory is not None:
        hooks.append(am.StepCounterHook(every_n_secs=10, output_dir=directory))
    return am.MonitoredSession(ScriptedCreator(*[ScriptedSession([one]) for one in script]), hooks)


async def test_records_name_their_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In runs, recoveries and the end, whichever session was opened last."""
    caplog.set_level(logging.INFO, logger="asyncmon")
    values = {"loss": 1.0}
    async with session(tmp_path / "a%s", [AbortedError("lost"), values]) as first:
        async with session(None, [values]) as second:
            await first.run("train")
            await second.run("train")
        runs = {
            line: getattr(one, "run", None)
            for line, one in zip(caplog.messages, caplog.records, strict=True)
        }
        a = "a%s"
        assert runs[f"[{a}] loss = 1.0"] == a
        [number] = {run for run in runs.values() if run not in (a, None)}
        assert number.startswith("session ")
        assert runs[f"[{number}] loss = 1.0"] == number
        assert runs[f"[{number}] Session ended at step 1: the body ended."] == number
        assert any(line.startswith(f"[{a}] Recovered from ") for line in runs)
        caplog.clear()
        await first.run("train")
    assert caplog.messages[-1].startswith("Session ended at step")
    assert not any(hasattr(one, "run") for one in caplog.records)


async def test_a_run_is_named_by_its_argument_or_by_its_directory(tmp_path: Path) -> None:
    """The name stays after the close, and is free again for the next session."""
    names = []
    for _ in range(2):
        by_directory, number = session(tmp_path / "digits", [1]), session(None, [1])
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
        am.MonitoredTrainingSession(name=3)  # type: ignore[arg-type]


async def test_loggers_made_between_later_openings_name_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Modules are imported, and make their loggers, while sessions are open."""
    caplog.set_level(logging.INFO, logger="asyncmon")
    name = "asyncmon.test_of_run_names"
    logging.Logger.manager.loggerDict.pop(name, None)

    class Logging(am.SessionRunHook):
        async def after_run(self, run_context: object, run_values: object) -> None:
            logging.getLogger(name).info("ran")

    async with session(None, [1]), session(None, [1]):
        late = logging.getLogger(name)
        hooks = [Logging()]
        async with am.MonitoredSession(ScriptedCreator(ScriptedSession([1, 2])), hooks) as third:
            await third.run("train")
    [line] = [line for line in caplog.messages if line.endswith("ran")]
    assert line.startswith("[session ")
    assert late.filters == []


async def test_the_only_open_session_names_nothing_after_another_was_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="asyncmon")
    async with session(None, [{"loss": 1.0}]) as only:
        forgotten = [await session(None, [1]).start()]
        with pytest.warns(ResourceWarning, match="not closed"):
            forgotten.clear()
        gc.collect()
        await only.run("train")
    assert "loss = 1.0" in caplog.messages
