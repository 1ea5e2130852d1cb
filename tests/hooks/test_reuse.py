"""Each standard hook does the same in a second session as in a first one."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import Saver
from asyncmon.hooks import (
    CheckpointSaverHook,
    EvalHook,
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggersHook,
    LoggingTensorHook,
    ModelSummaryHook,
    MovingAverageHook,
    NanTensorHook,
    ProfilerHook,
    ProgressHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
    TrainingMetricsHook,
    every,
    stop_if,
)
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.session_creators import ChiefSessionCreator

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

FIRST_STEP = 4  # of each session, so that a count of the first one would show


def program() -> FunctionProgram:
    made = FunctionProgram(state={"n": 0.0, "global_step": FIRST_STEP})

    @made.step
    def train(state: Any) -> dict[str, Any]:
        state["n"] += 1
        state["global_step"] += 1
        return {"loss": 8 / float(state["n"]), "summary": b""}

    @made.step(read_only=True)
    def test(state: Any) -> dict[str, float]:
        return {"score": float(state["n"]) % 3}

    return made


@every(steps=3)
async def log_step(session: Any) -> None:
    logging.getLogger("asyncmon.test").info("every at %d", session.global_step)


def evaluation(**how: Any) -> list[Any]:
    hook = EvalHook("test", every_steps=2, concurrent=False, **how)
    return [hook, stop_if(hook, "score", no_increase_in=2)]


def training_metrics() -> list[Any]:
    hook = TrainingMetricsHook({"loss": "loss"}, every_steps=3)
    return [hook, stop_if(hook, "loss", below=1.5)]


def taken_from(directory: Path) -> list[str]:
    """Remove the files of a directory, and return their names without times."""
    paths = list(directory.iterdir())
    for path in paths:
        path.unlink()
    return sorted(re.sub(r"\d{6,}.*", "", path.name) for path in paths)


@pytest.mark.parametrize(
    "make",
    [
        lambda _: [StopAtStepHook(num_steps=3)],
        lambda _: [StopAtStepHook(last_step=9)],
        lambda _: [LoggingTensorHook(["n"], every_n_iter=3, at_end=True)],
        lambda _: [StepCounterHook(every_n_steps=3)],
        lambda _: [NanTensorHook("loss", fail_on_nan_loss=False)],
        lambda _: evaluation(at_start=True, at_end=True),
        lambda _: training_metrics(),
        lambda _: [MovingAverageHook(0.9), *evaluation()],
        lambda _: [FinalOpsHook("n")],
        lambda _: [GlobalStepWaiterHook(0)],
        lambda _: [ModelSummaryHook()],
        lambda _: [ProgressHook(8)],
        lambda _: [FeedFnHook(dict)],
        lambda _: [log_step],
        lambda path: [CheckpointSaverHook(path, save_steps=3, saver=Saver())],
        lambda path: [SummarySaverHook(3, output_dir=path, summary_op="summary")],
        lambda path: [ProfilerHook(3, output_dir=path)],
        lambda path: [LoggersHook([])],
    ],
)
async def test_a_hook_starts_afresh_in_a_second_session(
    tmp_path: Path, make: Callable[[Path], list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """The log, the steps and the files of two sessions with one hook are those of a new hook."""
    caplog.set_level(logging.INFO, "asyncmon")

    async def train(hooks: list[Any]) -> tuple[int, str | None, list[str], list[str]]:
        caplog.clear()
        async with MonitoredSession(ChiefSessionCreator(program=program()), hooks) as sess:
            for _ in range(8):
                if sess.should_stop():
                    break
                await sess.run("train")
            step = sess.global_step
        lines = [re.sub(r"[\d.]+ (ms|s|sec)\b", "TIME", line) for line in caplog.messages]
        return step, sess.stop_reason, lines, taken_from(tmp_path)

    hooks = make(tmp_path)
    first, second = await train(hooks), await train(hooks)
    assert second == first
