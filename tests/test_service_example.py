"""The service of examples/service: real processes, real requests over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked

pytest.importorskip("uvicorn", reason="the extra web is not installed")
pytest.importorskip("starlette", reason="the extra web is not installed")

EXAMPLE = Path(__file__).parents[1] / "examples" / "service"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Client = example("http_client").Client


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
    return port


class Service:
    """The service in a child process; ``log`` is its output so far."""

    def __init__(self, directory: Path, port: int, *options: str) -> None:
        given = ["--port", str(port), "--dir", str(directory), *options]
        self.process = forked.Process(EXAMPLE / "main.py", *given, cwd=directory)
        self.log = ""

    def wait_ready(self) -> None:
        for line in self.process.stderr:
            self.log += line
            if "Uvicorn running" in line:
                return
        raise AssertionError(self.log)

    def stop(self) -> None:
        """Send SIGTERM, and wait for the end."""
        self.process.terminate()
        self.log += self.process.communicate(timeout=60)[1]


@contextlib.contextmanager
def service(directory: Path, port: int, *options: str) -> Iterator[Service]:
    started = Service(directory, port, *options)
    try:
        started.wait_ready()
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def ask(port: int, path: str, body: Any) -> tuple[int, bytes]:
    client = Client(port)
    (answer,) = asyncio.run(client.load(path, [json.dumps(body).encode()], 1, 1))
    ((status, _),) = client.counts.items()
    return status, answer


def step_of(port: int) -> int:
    return json.loads(ask(port, "/predict", {"row": [0.0] * 64})[1])["step"]


def wait_for_step(port: int, step: int) -> None:
    while step_of(port) < step:  # it trains on the taught rows
        time.sleep(0.05)  # requests take the time of the training


def send_digits(port: int, *options: str) -> Any:
    given = ["--port", str(port), "--rate", "200", "--secs", "0.5", *options]
    done = forked.run(EXAMPLE / "client.py", *given, options=("-W", "error"), check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("master", ["", "local"])
def test_it_learns_from_its_traffic_saves_and_continues(tmp_path: Path, master: str) -> None:
    port = free_port()
    with service(tmp_path, port, "--master", master) as first:
        taught = send_digits(port, "--teach", "1600")
        assert (taught["predict"], taught["learn"]) == ({"200": 100}, {"202": 800})
        wait_for_step(port, 250)
        assert send_digits(port, "--teach", "0")["right_at_last"] >= 0.8 > taught["right_at_first"]
        step = step_of(port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/train/api/runs") as answer:
            (shown,) = json.load(answer)["runs"]
        assert (shown["name"], shown["state"], shown["step"] >= step) == ("service", "open", True)
        first.stop()
    saved = re.findall(r"Session ended at step (\d+): the service stops\.", first.log)
    assert len(saved) == 1, first.log
    assert int(saved[0]) >= step
    with service(tmp_path, port) as second:
        assert f"Restoring parameters from {tmp_path}/model.ckpt-{saved[0]}" in second.log
        wait_for_step(port, int(saved[0]) + 1)  # on the rows of the checkpoint
        second.stop()


def test_the_client_says_that_nothing_answers() -> None:
    done = forked.run(EXAMPLE / "client.py", "--secs", "0.1", "--port", str(free_port()))
    assert done.returncode == 1
    assert done.stderr.endswith("does not answer: {'refused': 50}\n"), done.stderr


def test_wrong_rows_are_refused_and_disturb_nothing(tmp_path: Path) -> None:
    port = free_port()
    with service(tmp_path, port) as running:
        for body in ({"row": [1.0]}, {}, [], {"row": "x"}, {"row": [0.0] * 64, "label": 10}):
            status, answer = ask(port, "/learn", body)
            assert (status, b"expected" in answer) == (400, True), answer
        assert ask(port, "/learn", {"row": [0.0] * 64, "label": 1})[0] == 202
        running.stop()
    assert "Traceback" not in running.log


def test_no_request_is_lost_over_a_stop_and_a_restart(tmp_path: Path) -> None:
    """Every request is answered, or refused while nothing listens."""
    port = free_port()
    body = [json.dumps({"row": [0.5] * 64, "label": 3}).encode()]

    async def send(client: Any, done: asyncio.Event) -> None:
        while not done.is_set():
            await client.load("/predict", body, 200, 0.5)
        await client.load("/predict", body, 200, 0.5)

    async def rounds() -> Any:
        client, done = Client(port), asyncio.Event()
        await client.load("/learn", body, 400, 0.5)  # it trains from now on
        assert client.counts == {202: 200}
        client.counts.clear()
        sending = asyncio.create_task(send(client, done))
        await client.load("/predict", body, 50, 0.5)
        await asyncio.to_thread(running[-1].stop)
        running.append(Service(tmp_path, port))
        await asyncio.to_thread(running[-1].wait_ready)
        done.set()
        await sending
        return client.counts

    running = [Service(tmp_path, port)]
    try:
        running[0].wait_ready()
        counts = asyncio.run(rounds())
        running[-1].stop()
    finally:
        for each in running:
            each.process.kill()
            each.process.communicate()
    assert counts.keys() == {200, "refused"}, counts
    assert "Restoring parameters" in running[1].log
    assert all("Traceback" not in each.log for each in running)
