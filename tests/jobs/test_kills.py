"""Two services on one queue, killed at random moments: each job ends once, at its step."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra web is not installed")
pytest.importorskip("starlette", reason="the extra web is not installed")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FINAL = {"completed", "stopped", "cancelled", "failed"}


class Service:
    """One of the processes, started again after each kill."""

    def __init__(self, directory: Path, executor: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as bound:
            self.port = bound.getsockname()[1]
        self._command = [
            sys.executable, str(HERE / "killed_service.py"), str(directory), str(self.port), executor
        ]  # fmt: skip
        self._log = (directory.parent / f"{self.port}.log").open("ab")
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(self._command, stderr=self._log, cwd=ROOT, env=environment)

    def kill(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(60)

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self._log.close()

    def submit(self, name: str, params: Any) -> None:
        body = json.dumps({"kind": "work", "params": params, "name": name}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/jobs/", body, headers)
        for _ in range(300):
            try:
                with urllib.request.urlopen(request, timeout=10):
                    return
            except (urllib.error.URLError, ConnectionError):  # it starts, or has just been killed
                time.sleep(0.1)
        raise AssertionError("the service does not answer")


@contextlib.contextmanager
def services(directory: Path, executor: str) -> Iterator[list[Service]]:
    directory.mkdir()
    found = [Service(directory, executor) for _ in range(2)]
    try:
        yield found
    finally:
        for service in found:
            service.close()


def states(directory: Path) -> Counter[str]:
    with contextlib.closing(sqlite3.connect(directory / "jobs.sqlite3", timeout=30)) as db:
        return Counter(dict(db.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall()))


def check_jobs(directory: Path, jobs: int, steps: int) -> Counter[str]:
    """Assert that each job has ended once, and return what there was of attempts."""
    found: Counter[str] = Counter()
    with contextlib.closing(sqlite3.connect(directory / "jobs.sqlite3")) as db:
        rows = db.execute("SELECT id, name, state, step, attempt, error FROM jobs").fetchall()
        assert len(rows) == jobs
        for job, name, state, step, attempt, error in rows:
            assert (state, step) == ("completed", steps), (name, state, step, error)
            ends = db.execute(
                'SELECT count(*) FROM events WHERE job = ? AND data LIKE \'%"state":"completed"%\'',
                (job,),
            ).fetchone()
            assert ends == (1,), name
            place = directory / "runs" / name
            assert not (place / "overlap.txt").exists(), name
            began = [int(line) for line in (place / "began.txt").read_text().split()]
            assert began == sorted(began), (name, began)  # no saved step is done again
            after = (place / "after.txt").read_text().split()
            assert after, name
            found += Counter(attempts=attempt, after_twice=len(after) - 1)
            found["most"] = max(found["most"], attempt)
    return found


@pytest.mark.campaign("jobs", short=1)
@pytest.mark.parametrize("executor", ["inline", "process"])
def test_each_job_ends_once_however_often_its_services_are_killed(
    seed: int, executor: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    is_long = pytestconfig.getoption("--seeds") is not None
    jobs, steps, pause, kills = (20, 70, 0.1, 40) if is_long else (5, 40, 0.05, 6)
    directory, chance = tmp_path / "jobs", random.Random(seed)
    done: Counter[str] = Counter()
    start = time.monotonic()
    with services(directory, executor) as running:
        for number in range(jobs):
            running[number % 2].submit(f"job-{number}", {"steps": steps, "pause": pause})
        for _ in range(kills):
            time.sleep(chance.uniform(0.3, 1.6))
            one, how = chance.choice(running), chance.choice([signal.SIGKILL, signal.SIGTERM])
            present = states(directory)
            assert present["opening"] + present["running"] <= 3
            done[how.name if sum(present[state] for state in FINAL) < jobs else "late"] += 1
            one.kill(how)
            one.start()
        end = time.monotonic() + 200
        while sum(present[state] for state in FINAL) < jobs:
            present = states(directory)
            assert present["opening"] + present["running"] <= 3
            assert time.monotonic() < end, present
            time.sleep(0.1)
    found = check_jobs(directory, jobs, steps)
    print(f"{executor}: {dict(done)} {dict(found)} {time.monotonic() - start:.0f} s")  # noqa: T201 -- of a campaign
