"""Sessions find their job: state, step, values, stops, and no signals."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from tests.jobs.kinds import count, counting, until

pytestmark = [pytest.mark.asyncio]


async def has_step(job: am.jobs.Job) -> bool:
    return bool((await job.refresh()).step)


async def ended(root: Path, kind: Any, params: Any = None) -> am.jobs.Job:
    queue = am.jobs.JobQueue(root)
    queue.kind("kind")(kind)
    async with queue:
        return await (await queue.submit("kind", params, name="x")).wait()


async def test_a_job_runs_with_its_session_and_has_its_step(root: Path) -> None:
    queue = am.jobs.JobQueue(root)
    queue.kind("count")(count)
    async with queue:
        job = await (await queue.submit("count", {"steps": 5}, name="x")).wait()
        states = [event.data["state"] async for event in job.events() if event.type == "state"]
    assert states == ["queued", "opening", "running", "completed"]
    assert (job.step, job.state) == (5, "completed")
    assert (root / "runs" / "x" / "after.txt").read_text() == "1\n"


@pytest.mark.parametrize("what", ["cancel", "pause", "shutdown"])
async def test_code_after_a_session_that_its_job_stops_does_not_run(root: Path, what: str) -> None:
    queue = am.jobs.JobQueue(root)
    queue.kind("count")(count)
    async with queue:
        job = await queue.submit("count", {"steps": 10_000, "pause": 0.001}, name="x")
        await job.wait("running")
        await until(lambda: has_step(job))
        if what != "shutdown":
            await getattr(job, what)()
            await job.wait("paused", "cancelled")
    async with am.jobs.JobQueue(root) as queue:  # without the kind
        job = await queue.get("x")
    assert job.state == {"cancel": "cancelled", "pause": "paused", "shutdown": "preempted"}[what]
    assert not (root / "runs" / "x" / "after.txt").exists()
    saved = await am.latest_checkpoint(root / "runs" / "x")
    assert saved is not None
    assert saved.endswith(f"-{job.step}")  # the last step is saved


async def test_a_resumed_job_continues_from_its_checkpoint(root: Path) -> None:
    queue = am.jobs.JobQueue(root)
    queue.kind("count")(count)
    async with queue:
        job = await queue.submit("count", {"steps": 30, "pause": 0.002}, name="x")
        await job.wait("running")
        await job.pause()
        await job.wait("paused")
        await job.resume()
        await job.wait()
        began = [
            event.data["step"] async for event in job.events() if event.data.get("state") == "running"
        ]
    assert (job.state, job.step, began) == ("completed", 30, [0, began[1]])
    assert (root / "runs" / "x" / "after.txt").read_text() == "2\n"


async def test_a_stop_that_is_not_of_the_queue_ends_as_stopped(root: Path) -> None:
    async def stops(job: Any) -> None:
        async with counting(job, 1_000) as sess:
            while not sess.should_stop():
                await sess.run("count")
                if sess.global_step == 3:
                    sess.request_stop("others are better")

    job = await ended(root, stops)
    assert job.outcome is not None
    assert (job.state, job.step, job.outcome.cause) == ("stopped", 3, "others are better")


async def test_values_of_the_session_and_reports_are_events(root: Path) -> None:
    async def logs(job: Any) -> None:
        async with counting(job, 2) as sess:
            while not sess.should_stop():
                await sess.run("count")
                sess.log({"loss": float("nan"), "text": "no number"})
                job.report(np.int64(sess.global_step), accuracy=np.float32(0.5))

    job = await ended(root, logs)
    assert job.outcome is not None
    assert job.outcome.metrics == {"loss": "NaN", "accuracy": 0.5}


async def test_a_thread_may_report_also_when_the_job_has_ended(root: Path) -> None:
    jobs: list[Any] = []

    async def reports(job: Any) -> None:
        jobs.append(job)
        await asyncio.to_thread(job.report, 1, loss=2.0)

    job = await ended(root, reports)
    assert job.outcome is not None
    assert job.outcome.metrics == {"loss": 2.0}
    await asyncio.to_thread(jobs[0].report, 2, loss=3.0)  # dropped


async def test_a_wrong_report_is_refused(root: Path) -> None:
    async def reports(job: Any) -> None:
        with pytest.raises(TypeError, match=r"step must be a whole number, got 1\.5"):
            job.report(1.5)
        with pytest.raises(TypeError, match="the metric 'loss' must be a number, got 'x'"):
            job.report(1, loss="x")

    assert (await ended(root, reports)).state == "completed"


async def test_the_first_session_that_saves_is_the_one_of_the_job(root: Path) -> None:
    async def two(job: Any) -> None:
        async with counting(job, 3) as sess:
            while not sess.should_stop():
                await sess.run("count")
        program = am.programs.FunctionProgram({"n": 0}, {"evaluate": lambda state: 1})
        async with am.MonitoredSession(am.ChiefSessionCreator(program=program)) as evaluation:
            for _ in range(10):
                await evaluation.run("evaluate")

    assert (await ended(root, two)).step == 3


async def test_sessions_of_jobs_own_no_signals(root: Path) -> None:
    handlers: list[Any] = []

    async def looks(job: Any) -> None:
        async with counting(job, 1, signals="auto"):
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    assert (await ended(root, looks)).state == "completed"
    assert handlers == [before]


async def test_a_session_without_its_own_saves_has_its_last_step(root: Path) -> None:
    async def unsaved(job: Any) -> None:
        program = am.programs.FunctionProgram({"n": 0}, {"step": lambda state: 1})
        async with am.MonitoredSession(am.ChiefSessionCreator(program=program)) as sess:
            for _ in range(4):
                await sess.run("step")

    assert (await ended(root, unsaved)).step == 4


async def test_many_stops_at_random_moments_run_the_rest_exactly_for_completed_jobs(root: Path) -> None:
    queue = am.jobs.JobQueue(root, max_running=4)
    queue.kind("count")(count)
    async with queue:
        jobs = [await queue.submit("count", {"steps": 2 + n % 3}, name=f"x-{n}") for n in range(40)]

        async def stop(number: int, job: am.jobs.Job) -> None:
            await job.wait("opening", "running", "completed")
            await asyncio.sleep(0.002 * (number % 12))
            try:
                await job.cancel()
            except am.jobs.StateError:
                assert job.state != "cancelled"

        await asyncio.gather(*[stop(n, job) for n, job in enumerate(jobs)])
        for job in jobs:
            await job.wait()
            after = root / "runs" / job.name / "after.txt"
            assert after.exists() == (job.state == "completed"), job
        assert {job.state for job in jobs} <= {am.jobs.State.COMPLETED, am.jobs.State.CANCELLED}
