"""The service of examples/job_service.py: real processes, real requests, signals and kills."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra web is not installed")
pytest.importorskip("starlette", reason="the extra web is not installed")

EXAMPLE = Path(__file__).parents[1] / "examples" / "job_service.py"
SECS = 60


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
    return port


class Service:
    def __init__(self, directory: Path, executor: str) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), "--port", str(self.port), "--executor", executor],
            cwd=directory, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.log = ""

    def wait_ready(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line
            if "Uvicorn running" in line:
                return
        raise AssertionError(self.log)

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        url = f"http://127.0.0.1:{self.port}/jobs{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=SECS) as answer:
            return json.load(answer)

    def wait(self, name: str, *states: str, step: int = 0) -> Any:
        end = time.monotonic() + SECS
        while True:
            job = self.ask(f"/{name}")
            if job["state"] in states and (job["step"] or 0) >= step:
                return job
            assert time.monotonic() < end, job
            time.sleep(0.05)

    def stop(self) -> float:
        """Send SIGTERM, wait for the end, and return the seconds."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.log += self.process.communicate(timeout=SECS)[1]
        return time.monotonic() - start


@contextlib.contextmanager
def service(directory: Path, executor: str) -> Iterator[Service]:
    started = Service(directory, executor)
    try:
        started.wait_ready()
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def follow(running: Service, name: str, found: list[str]) -> threading.Thread:
    """Read the events of a job until the server ends them."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.port}/jobs/{name}/events", headers={"accept": "text/event-stream"}
    )
    stream = urllib.request.urlopen(request, timeout=SECS)

    def read() -> None:
        with stream:
            found.extend(line.decode() for line in stream)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_signal_with_open_streams_preempts_within_the_grace_period_and_the_next_start_continues(
    tmp_path: Path, executor: str
) -> None:
    lines: list[str] = []
    with service(tmp_path, executor) as first:
        body = {"kind": "digits", "params": {"steps": 1_000_000}, "name": "long"}
        assert first.ask("/", body)["state"] == "queued"
        first.wait("long", "running")
        following = follow(first, "long", lines)
        time.sleep(0.5)  # real steps of a real process
        assert first.stop() < 10
        following.join(SECS)
        assert "Traceback" not in first.log, first.log
    assert any(line.startswith("id: ") for line in lines)
    with service(tmp_path, executor) as second:
        job = second.wait("long", "running", step=1)
        assert job["attempt"] == 2
        events = second.ask("/long/events?limit=1000")["data"]
        states = [one["data"]["state"] for one in events if one["type"] == "state"]
        assert states == ["queued", "opening", "running", "preempted", "opening", "running"]
        assert second.ask("/long/cancel", {}, "POST")["request"] == "cancel"
        second.wait("long", "cancelled")
        second.stop()


def test_digits_are_learned_and_shown_as_runs(tmp_path: Path) -> None:
    with service(tmp_path, "inline") as running:
        names = [f"rate-{rate}" for rate in (0.1, 0.5)]
        for name in names:
            params = {"rate": float(name[5:]), "steps": 600}
            running.ask("/", {"kind": "digits", "params": params, "name": name})
        jobs = [running.wait(name, "completed") for name in names]
        assert [job["step"] for job in jobs] == [600, 600]
        assert all(job["metrics"]["accuracy"] > 0.8 for job in jobs), jobs
        with urllib.request.urlopen(f"http://127.0.0.1:{running.port}/train/api/runs") as answer:
            shown = {run["name"] for run in json.load(answer)["runs"]}
        assert set(names) <= shown
        with pytest.raises(urllib.error.HTTPError, match="422"):
            running.ask("/", {"kind": "other"})
        running.stop()
