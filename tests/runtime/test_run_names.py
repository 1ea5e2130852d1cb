"""The names of runs in log records, while several sessions are open."""

from __future__ import annotations

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
        a = str(tmp_path / "a%s")
        assert runs[f"[{a}] loss = 1.0"] == a
        [number] = {run for run in runs.values() if run not in (a, None)}
        assert number.startswith("session ")
        assert runs[f"[{number}] loss = 1.0"] == number
        assert runs[f"[{number}] Session ended at step 1: the body ended."] == number
        assert any(line.startswith(f"[{a}] Recovered: training continues") for line in runs)
        caplog.clear()
        await first.run("train")
    assert caplog.messages[-1].startswith("Session ended at step")
    assert not any(hasattr(one, "run") for one in caplog.records)
