"""Jobs in child processes: messages, stops, deaths, and parents that die."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.jobs.kinds import uses_torch
from tests.jobs import kinds

ROOT = Path(__file__).parents[2]


def queue_of(root: Path, *names: str, **options: Any) -> am.jobs.JobQueue:
    queue = am.jobs.JobQueue(root, executor="process", **options)
    for name in names:
        queue.kind(name)(getattr(kinds, name))
    return queue


@pytest.mark.asyncio
async def test_a_child_runs_a_job_and_reports_all_that_an_inline_one_does(root: Path) -> None:
    async with queue_of(root, "count") as queue:
        job = await (await queue.submit("count", {"steps": 4, "report": [2]}, name="x")).wait()
        events = [event async for event in job.events()]
    assert (job.state, job.step) == ("completed", 4)
    states = [event.data["state"] for event in events if event.type == "state"]
    assert states == ["queued", "opening", "running", "completed"]
    assert [event.data["metrics"] for event in events if event.type == "metrics"] == [{"loss": 1.0}]
    log = (root / "runs" / "x" / "job.log").read_text()
    assert "Session ended at step 4" in log
    assert not list((root / "leases").iterdir())


@pytest.mark.asyncio
async def test_a_child_is_paused_resumed_and_cancelled_in_order(root: Path) -> None:
    async with queue_of(root, "count") as queue:
        job = await queue.submit("count", {"steps": 10_000, "pause": 0.001}, name="x")
        await job.wait("running")
        await job.pause()
        step = (await job.wait("paused")).step
        await job.resume()
        await job.wait("running")
        await job.cancel()
        assert (await job.wait()).state == "cancelled"
        running = [event async for event in job.events() if event.data.get("state") == "running"]
    assert [event.data["step"] for event in running] == [0, step]
    assert not (root / "runs" / "x" / "after.txt").exists()


@pytest.mark.asyncio
async def test_a_kind_forks_processes_beside_the_thread_that_waits_for_stops(root: Path) -> None:
    async with queue_of(root, "fork") as queue:
        job = await (await queue.submit("fork")).wait()
    assert job.state == "completed", job.outcome


@pytest.mark.asyncio
async def test_a_job_that_spins_holds_up_no_other_one(root: Path) -> None:
    async with queue_of(root, "spin") as queue:
        job = await queue.submit("spin", {"secs": 1.0})
        await job.wait("opening")
        worst = 0.0
        while (await job.refresh()).state == "opening":
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            worst = max(worst, time.perf_counter() - start)
    assert job.state == "completed"
    assert worst < 0.5  # inline it is the whole second


@pytest.mark.asyncio
async def test_a_child_ignores_ctrl_c_and_takes_sigterm_for_a_shutdown(root: Path) -> None:
    async with queue_of(root, "count") as queue:
        job = await queue.submit("count", {"steps": 100_000, "pause": 0.01}, name="x")
        await job.wait("running")
        assert queue._worker is not None
        child = queue._worker.mine[job.id].runner._process.pid  # type: ignore[attr-defined]  # a process's runner
        os.kill(child, signal.SIGINT)
        await asyncio.sleep(0.5)
        assert ((await job.refresh()).state, job.attempt) == ("running", 1)
        os.kill(child, signal.SIGTERM)
        while (await job.refresh()).attempt == 1:  # noqa: ASYNC110 - it is claimed again
            await asyncio.sleep(0.02)
        await job.cancel()
        await job.wait()
        states = [event.data["state"] async for event in job.events() if event.type == "state"]
    assert states[3:5] == ["preempted", "opening"]


@pytest.mark.asyncio
async def test_a_child_that_ignores_the_stop_is_killed_after_the_grace_period(root: Path) -> None:
    async with queue_of(root, "spin", grace=0.2) as queue:
        job = await queue.submit("spin", {"secs": 1_000}, name="x")
        await job.wait("opening")
        await asyncio.sleep(2)  # it spins
        start = time.monotonic()
        await job.cancel()
        await job.wait()
    assert job.state == "cancelled"
    assert time.monotonic() - start < 30


@pytest.mark.asyncio
async def test_a_job_that_kills_its_process_fails_after_five_deaths_and_others_end(root: Path) -> None:
    async with queue_of(root, "die", "count", max_running=2) as queue:
        poison = await queue.submit("die", name="poison")
        others = [await queue.submit("count", {"steps": 2}) for _ in range(3)]
        for job in others:
            assert (await job.wait()).state == "completed"
        await poison.wait()
        outcome = poison.outcome
        assert outcome is not None
        assert (outcome.state, poison.attempt) == ("failed", 5)
        assert (
            outcome.error == "Its process died 5 times at step 0 (its process was killed by SIGKILL)."
        )


@pytest.mark.asyncio
async def test_a_kind_that_cannot_be_imported_fails_with_the_reason(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "gone_kind.py").write_text("async def train(job):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    gone_kind = importlib.import_module("gone_kind")
    queue = am.jobs.JobQueue(root)
    queue.kind("gone", executor="process")(gone_kind.train)
    (tmp_path / "gone_kind.py").write_text("raise OSError('no weights')\n")
    async with queue:
        job = await (await queue.submit("gone")).wait()
    assert job.outcome is not None
    assert job.outcome.error == "The kind cannot be imported: OSError('no weights')"
    log = root / "runs" / job.name / "job.log"
    assert f"failed: {job.outcome.error}. Its log: {log}." in caplog.text


@pytest.mark.parametrize("how", ["closure", "lambda"])
def test_a_kind_that_a_child_cannot_import_is_refused(root: Path, how: str) -> None:
    async def inside(job: Any) -> None:
        pass

    queue = am.jobs.JobQueue(root)
    with pytest.raises(ValueError, match="is inside of a function, and a child process cannot"):
        queue.kind("x", executor="process")(inside)
    queue.kind("x", executor="inline")(inside)
    with pytest.raises(ValueError, match="The kind 'x' is registered already"):
        queue.kind("x")
    with pytest.raises(TypeError, match="A kind is an `async def` function of one argument"):
        queue.kind("y")(lambda job: None)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch", True),
        ("from torch import nn", True),
        ("import torch.nn.functional as F", True),
        ("from torch.nn import Linear", True),
        ("import numpy as np; torch_like = 1", False),
    ],
)
def test_kinds_of_modules_with_torch_run_in_processes(source: str, found: bool) -> None:
    if found:
        pytest.importorskip("torch", reason="the extra torch is not installed")
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    assert uses_torch(namespace) is found


def test_the_executor_is_that_of_the_kind_or_of_the_queue_or_as_the_module_needs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="the extra torch is not installed")
    (tmp_path / "torch_kind.py").write_text("import torch\nasync def train(job):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    torch_kind = importlib.import_module("torch_kind")
    found = {}
    for of_queue in (None, "inline", "process"):
        queue = am.jobs.JobQueue(root, executor=of_queue)
        queue.kind("torch")(torch_kind.train)
        queue.kind("plain")(kinds.count)
        queue.kind("own", executor="inline")(torch_kind.train)
        found[of_queue] = [queue._kinds[name].executor for name in ("torch", "plain", "own")]
    assert found == {
        None: ["process", "inline", "inline"],
        "inline": ["inline", "inline", "inline"],
        "process": ["process", "process", "inline"],
    }


SERVICE = """
import asyncio, sys
import asyncmon as am
from tests.jobs import kinds

async def main():
    queue = am.jobs.JobQueue(sys.argv[1], executor=sys.argv[2], grace=float(sys.argv[3]))
    queue.kind("count")(kinds.count)
    async with queue:
        print("open", flush=True)
        await asyncio.sleep(100)

am.run(main)
"""


def service(root: Path, executor: str, grace: float = 10.0) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(root), executor, str(grace)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


async def has_step(job: am.jobs.Job) -> bool:
    return bool((await job.refresh()).step)


async def submitted(root: Path, steps: int = 100_000) -> am.jobs.Job:
    """Queue a job in a process that does not run it, and wait until another one does."""
    queue = am.jobs.JobQueue(root)
    queue.kind("count")(kinds.count)
    queue.max_running = 0
    async with queue:
        job = await queue.submit("count", {"steps": steps, "pause": 0.01}, name="x")
        await job.wait("running")
        await kinds.until(lambda: has_step(job))
        return job


async def seen(root: Path, until: Callable[[am.jobs.Job], bool]) -> am.jobs.Job:
    async with am.jobs.JobQueue(root) as queue:
        job = await queue.get("x")

        async def is_seen() -> bool:
            return until(await job.refresh())

        await kinds.until(is_seen)
        return job


@pytest.mark.asyncio
@pytest.mark.parametrize("executor", ["inline", "process"])
async def test_a_signal_preempts_and_the_exit_status_says_to_start_again(
    root: Path, executor: str
) -> None:
    with service(root, executor) as process:
        await submitted(root)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 75, process.communicate()
    job = await seen(root, lambda job: True)
    assert (job.state, job.attempt) == ("preempted", 1)


def stop_outside_of_a_transaction(process: subprocess.Popen[str], root: Path) -> None:
    """Stop a process that does not hold SQLite's lock, which would hold up all others."""
    while True:
        process.send_signal(signal.SIGSTOP)
        with contextlib.closing(sqlite3.connect(root / "jobs.sqlite3", timeout=0.1)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
            else:
                return


@pytest.mark.asyncio
async def test_the_job_of_a_dead_process_is_lost_and_of_a_stopped_one_is_not(root: Path) -> None:
    with service(root, "inline") as process:
        await submitted(root)
        stop_outside_of_a_transaction(process, root)
        async with am.jobs.JobQueue(root) as queue:
            await asyncio.sleep(1.5)
            assert (await queue.get("x")).state == "running"
            process.kill()
            process.wait()
            assert (await queue.get("x")).state == "lost"  # at once, also before it is written
    job = await seen(root, lambda job: job.owner is None)
    assert (job.state, job._row["lost"]) == ("lost", 1)


@pytest.mark.asyncio
async def test_a_child_whose_parent_died_saves_ends_and_is_preempted(root: Path) -> None:
    with service(root, "process", grace=5.0) as process:
        job = await submitted(root)
        process.kill()
    found = await seen(root, lambda job: job.owner is None)
    assert (found.state, found._row["lost"]) == ("preempted", 0)
    record = await am.run_record(root / "runs" / "x")
    assert record is not None
    assert (record.state, record.job) == (
        "preempted",
        {"id": found.id, "name": "x", "kind": "count", "attempt": 1},
    )
    assert found.step == record.saved >= (job.step or 0)  # type: ignore[operator]  # both are known


PAUSES = """
import asyncio, sys
import asyncmon as am
from tests.jobs import kinds

async def main():
    queue = am.jobs.JobQueue(sys.argv[1])
    queue.kind("count")(kinds.count)
    async with queue:
        job = await queue.submit("count", {"steps": 10_000, "pause": 0.01})
        await job.wait("running")
        await job.pause()
        await job.wait("paused")

am.run(main)
"""


def test_a_paused_job_is_no_preemption_of_the_program(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PAUSES, str(root)], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
