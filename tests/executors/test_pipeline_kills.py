"""Trainings with pipelines that are killed at random moments and resumed until the data ends.

Each element counts once in the surviving history, no step is made beyond the target, and a training
that gets SIGTERM ends within its grace period.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.executors.killed_training import COUNT, GRACE_SECS, SIZE, TOKEN

HERE = Path(__file__).parent
TARGET = 7


def life(dice: random.Random, *arguments: str) -> dict[str, Any] | None:
    """Run a training, kill it at a random moment, and return its result; None: it is not whole."""
    with forked.Process(HERE / "killed_training.py", *arguments) as training:
        steps = dice.randrange(6)
        for line in training.stdout:
            found: dict[str, Any] = json.loads(line)
            if "counts" in found:
                training.communicate(timeout=60)
                assert (training.returncode, found["is_whole"]) == (0, True)
                return found
            if steps == 0:
                break
            steps -= 1
        number = dice.choice([signal.SIGKILL, signal.SIGTERM])
        time.sleep(0.06 * dice.random())
        training.send_signal(number)
        output, errors = training.communicate(timeout=GRACE_SECS + 30)
        assert training.returncode in (-number, 0, 128 + number), errors[-3000:]
        results = [json.loads(line) for line in output.splitlines() if "counts" in line]
        return results[0] if results and results[0]["is_whole"] else None


@contextlib.contextmanager
def workers(port: int, dice: random.Random) -> Iterator[Any]:
    """HTTP workers of their own. Yields a function that kills one and starts another."""
    command = [sys.executable, str(HERE / "http_worker.py"), str(port), TOKEN]
    running = [subprocess.Popen(command) for _ in range(3)]

    def replace() -> None:
        with running.pop(dice.randrange(3)) as one:
            one.kill()
        running.append(subprocess.Popen(command))

    try:
        yield replace
    finally:
        for one in running:
            with one:
                one.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize("kind", ["tasks", "processes", "http"])
@pytest.mark.campaign("pipeline-kills", short=2)
def test_each_element_is_consumed_once_over_kills(tmp_path: Path, kind: str, seed: int) -> None:
    if kind == "http":
        pytest.importorskip("uvicorn", reason="the extra web is not installed")
    dice, port, kills = random.Random(seed), free_port(), 0
    with workers(port, dice) if kind == "http" else contextlib.nullcontext() as replace:
        for target in (TARGET, 1000):
            while True:
                given = (str(tmp_path), str(dice.randrange(1000)), str(target), str(port))
                found = life(dice, kind, *given)
                if found is not None:
                    break
                kills += 1
                if replace is not None and dice.random() < 0.5:
                    replace()
            if target == TARGET:
                assert (found["step"], sum(found["counts"])) == (TARGET, TARGET * SIZE)
                assert set(found["counts"]) == {0, 1}
    assert found["counts"] == [1] * COUNT, found
    assert found["step"] == COUNT // SIZE
    sys.stdout.write(f"{kind}, seed {seed}: {kills} kills\n")
