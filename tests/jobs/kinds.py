"""Kinds for tests: a session that counts, saved at each step."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncmon as am


async def _count(state: dict[str, Any]) -> int:
    state["done"] += 1
    return int(state["done"])


def counting(job: am.jobs.RunningJob, last_step: int = 10, **options: Any) -> am.MonitoredSession:
    """Return a session that saves each step into the job's directory."""

    program = am.programs.FunctionProgram({"done": 0}, {"count": _count})
    hooks = [am.StopAtStepHook(last_step=last_step), *options.pop("hooks", ())]
    options = {"save_checkpoint_steps": 1, "log_step_count_steps": None, **options}
    return am.MonitoredTrainingSession(
        checkpoint_dir=job.directory, program=program, hooks=hooks, save_summaries_steps=0, **options
    )


async def count(job: am.jobs.RunningJob) -> None:
    """Count to ``params["steps"]``, with a pause in each step."""
    async with counting(job, job.params.get("steps", 10)) as sess:
        while not sess.should_stop():
            await sess.run("count")
            await asyncio.sleep(job.params.get("pause", 0.0))
            if sess.global_step in job.params.get("report", ()):
                job.report(sess.global_step, loss=job.params.get("loss", 1.0))
    note(job, "after.txt")


def note(job: am.jobs.RunningJob, name: str) -> None:
    with open(job.directory / name, "a") as file:
        file.write(f"{job.attempt}\n")


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    """Wait for what no event of this process says."""
    while not await condition():  # noqa: ASYNC110 - another process changes it
        await asyncio.sleep(0.02)


async def die(job: am.jobs.RunningJob) -> None:
    """Kill the process that runs this."""
    os.kill(os.getpid(), signal.SIGKILL)


async def spin(job: am.jobs.RunningJob) -> None:
    """Hold the loop of its process."""
    end = time.monotonic() + job.params["secs"]
    while time.monotonic() < end:
        pass


async def fork(job: am.jobs.RunningJob) -> None:
    """Run a forked process, as a ``DataLoader`` with workers does."""
    process = multiprocessing.get_context("fork").Process(target=os.getpid)
    process.start()
    await asyncio.to_thread(process.join, 20)
    process.kill()
    assert process.exitcode == 0, process.exitcode
