"""LoopLagHook: the lag of the loop, and the code that holds it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from asyncmon.hooks import LoopLagHook
from asyncmon.hooks.loop_lag import lag_percentiles, running_code
from asyncmon.runtime.hook import SessionRunHook
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.summary import FileWriter, summary_iterator
from asyncmon.testing import ScriptedCreator, ScriptedSession, assert_nothing_left_behind
from asyncmon.testing.pytest_plugin import VirtualTime
from tests.hooks.conftest import Train

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_percentiles_are_those_of_all_lags() -> None:
    assert lag_percentiles(range(1001)) == {"p50": 500, "p95": 950, "p99": 990, "max": 1000}


async def test_percentiles_are_logged_and_written(
    train: Train, tmp_path: Path, virtual_time: VirtualTime, lines: Callable[[str], list[str]]
) -> None:
    """Each run holds the loop for 30 ms, once for 200 ms."""

    async def step(secs: float) -> None:
        virtual_time.spend(secs)
        await asyncio.sleep(0.02)

    script: Iterable[Any] = [lambda n=n: step(0.2 if n == 50 else 0.03) for n in range(210)]
    hook = LoopLagHook(every_secs=10, output_dir=tmp_path)
    await train(hook, runs=205, session=ScriptedSession(script))
    assert set(hook.percentiles) == {"p50", "p95", "p99", "max"}
    assert 0 <= hook.percentiles["p50"] <= hook.percentiles["p95"] <= 0.05
    assert hook.percentiles["max"] == pytest.approx(0.18, abs=0.05)
    [line] = lines("loop_lag")
    assert line.startswith("The event loop was late by p50 ")
    [name] = os.listdir(tmp_path)
    written = {
        value.tag: value.simple_value
        async for event in summary_iterator(tmp_path / name)
        for value in event.summary.value
    }
    assert written == pytest.approx({f"loop_lag/{key}": secs for key, secs in hook.percentiles.items()})


async def test_an_error_is_not_the_last_report_if_so_configured(
    train: Train,
    lasting: Callable[..., Iterable[Any]],
    lines: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    class Full(FileWriter):
        def add_scalar(self, tag: str, value: Any, global_step: int | None = None) -> None:
            raise OSError("No space left on device")

    async with Full(tmp_path) as writer:
        hook = LoopLagHook(every_secs=10, summary_writer=writer)
        hook.on_error = "log"
        await train(hook, runs=1, session=ScriptedSession(lasting(35)))
    assert len(lines("loop_lag")) == 3


@pytest.mark.parametrize("name", ["every_secs", "warn_secs", "interval_secs"])
async def test_arguments_are_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"invalid {name}=0"):
        LoopLagHook(**{name: 0})


class Holding(SessionRunHook):
    """Holds the loop until the hook has seen it."""

    def __init__(self) -> None:
        self.seen = threading.Event()

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.seen.wait(10)


async def test_code_that_holds_the_loop_is_named_with_task_hook_and_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    holding = Holding()

    class Notice(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            holding.seen.set()

    handler = Notice(logging.WARNING)
    logging.getLogger("asyncmon.hooks.loop_lag").addHandler(handler)
    try:
        async with assert_nothing_left_behind():
            hooks = [LoopLagHook(warn_secs=0.01, interval_secs=0.01), holding]
            async with MonitoredSession(ScriptedCreator(ScriptedSession()), hooks) as sess:
                asyncio.current_task().set_name("the trainer")  # type: ignore[union-attr]  # in a task
                await asyncio.sleep(1)
                await sess.run("train")
    finally:
        logging.getLogger("asyncmon.hooks.loop_lag").removeHandler(handler)
    assert holding.seen.is_set()
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith(
        "The event loop was held for over 0.01 s by task 'the trainer', hook Holding, at"
    )
    assert "in Event.wait" in warning or "in Condition.wait" in warning


async def test_what_runs_is_seen_from_another_thread() -> None:
    loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()
    seen: list[str | None] = []
    thread = threading.Thread(target=lambda: seen.append(running_code(loop, loop_thread)))
    thread.start()
    thread.join()
    assert seen[0] is not None
    assert seen[0].startswith("task '")
    assert running_code(loop, -1) is None, "no such thread"
