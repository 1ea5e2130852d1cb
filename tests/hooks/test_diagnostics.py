"""Graphs, event files, lines, traces and progress on disks that fail: the training continues."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph
from asyncmon.summary import FileWriter
from asyncmon.summary.graph_events import write_graph_text
from asyncmon.system.files import FileCalls
from asyncmon.testing import ScriptedCreator, ScriptedSession

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class FullDisk(FileCalls):
    """Has no space left."""

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(params=["file", "full", "system", "removed"])
def bad(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that cannot be written to."""
    if request.param == "full":
        monkeypatch.setattr(FileCalls, "write", FullDisk.write)
        return tmp_path / "full"
    if request.param == "system":
        return type(tmp_path)("/proc/self/nothing")
    (tmp_path / "file").touch()
    if request.param == "removed":
        (tmp_path / "removed").symlink_to(tmp_path / "file" / "gone")
        return tmp_path / "removed"
    return tmp_path / "file" / "logs"


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def run(*hooks: Any, runs: int = 30, session: ScriptedSession | None = None) -> None:
    async with am.MonitoredSession(ScriptedCreator(session or ScriptedSession()), hooks) as sess:
        for _ in range(runs):
            await sess.run("a")
            await asyncio.sleep(1)


async def test_event_files(bad: Path, caplog: pytest.LogCaptureFixture) -> None:
    await run(am.StepCounterHook(every_n_steps=2, output_dir=bad))
    first, lost = errors(caplog)
    assert f"Events cannot be written to '{bad}" in first
    assert " MB free)" in first
    assert "were not written" in lost


async def test_a_given_writer(bad: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = FileWriter(bad)
    await run(am.StepCounterHook(every_n_steps=2, summary_writer=writer))
    with pytest.raises(OSError, match="Events cannot be written"):
        await writer.close()


async def test_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    writer = am.JsonlWriter(tmp_path / "file" / "x.jsonl")
    await run(am.StepCounterHook(every_n_steps=2, summary_writer=writer))
    background, closing = errors(caplog)
    assert "x.jsonl" in background
    assert "JsonlWriter" in closing


async def test_the_graph(bad: Path, caplog: pytest.LogCaptureFixture) -> None:
    await write_graph_text(str(bad), graph.Graph().get_operations())
    (reported,) = errors(caplog)
    assert f"The graph cannot be written to '{bad}/graph.pbtxt'" in reported
    assert " MB free)" in reported


async def test_the_graph_of_a_session(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "graph.pbtxt" / "in the way").mkdir(parents=True)
    with graph.Graph().as_default():
        train = graph.assign_add(am.get_or_create_global_step(), 1)
        async with am.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), signals=None) as sess:
            for _ in range(3):
                await sess.run(train)
                await asyncio.sleep(1)
    (reported,) = errors(caplog)
    assert "graph.pbtxt" in reported


async def test_traces(
    bad: Path, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    if bad.name == "full":  # a trace is no durable file
        request.getfixturevalue("monkeypatch").undo()
        await asyncio.to_thread(_fill, bad)
    await run(am.ProfilerHook(save_steps=5, output_dir=bad), runs=20)
    assert len([text for text in errors(caplog) if "The timeline cannot be written" in text]) == 1


def _fill(directory: Path) -> None:
    directory.mkdir()
    for step in range(100):
        (directory / f"timeline-{step}.json").symlink_to("/dev/full")


@pytest.mark.parametrize("given", [True, False])
async def test_a_supervisor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    with graph.Graph().as_default():
        step = am.get_or_create_global_step()
        train = graph.assign_add(step, 1)
        own: dict[str, Any] = {"summary_writer": FileWriter(tmp_path / "own")} if given else {}
        sv = am.Supervisor(logdir=str(tmp_path), saver=None, save_summaries_secs=1, **own)
        async with sv.managed_session() as sess:
            monkeypatch.setattr(FileCalls, "write", FullDisk.write)
            for _ in range(20):
                await sess.run(train)
                await asyncio.sleep(1)
    assert [text for text in errors(caplog) if "Events cannot be written" in text]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EPIPE])
async def test_progress(caplog: pytest.LogCaptureFixture, code: int) -> None:
    console = pytest.importorskip("rich.console")

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(code, os.strerror(code))

    for terminal in (True, False):
        caplog.clear()
        shown = console.Console(file=Full(), force_terminal=terminal)
        await run(am.ProgressHook(last_step=30, every_secs=5, console=shown))
        (reported,) = errors(caplog)
        assert f"The progress cannot be written to 'the console': {os.strerror(code)}" in reported
