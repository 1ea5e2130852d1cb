"""Two processes of jax.distributed on one machine: they begin alike, stop together and save once."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="jax is not installed: pip install 'asyncmon[jax]'")


PROCESS = Path(__file__).with_name("jax_process.py")


def started(stack: contextlib.ExitStack, directory: Path, fault: str) -> list[subprocess.Popen[str]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROCESS), address, str(number), str(directory), fault],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
        )
        for number in range(2)
    ]  # fmt: skip
    for process in processes:
        stack.enter_context(process)
        stack.callback(process.kill)
    return processes


def trained(directory: Path, fault: str = "none") -> list[str]:
    """Let two processes train; return the steps at which they began and ended, and their weights."""
    with contextlib.ExitStack() as stack:
        processes = started(stack, directory, fault)
        outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    first, second = [(directory / f"process{number}").read_text() for number in range(2)]
    assert first == second
    begun, end, _ = found = first.split(" ", 2)
    if begun != end:
        assert [len(re.findall(f"Saving checkpoints for {end} into", one)) for one in outputs] == [1, 0]
    return found


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def whole(directory: Path) -> list[str]:
    return trained(directory, "spread")


def test_processes_train_from_one_state_and_end_at_one_step(whole: list[str]) -> None:
    assert whole[:2] == ["0", "6"]


@pytest.mark.usefixtures("whole")
def test_an_array_that_is_spread_over_processes_is_refused_with_the_remedy(directory: Path) -> None:
    for number in range(2):
        text = (directory / f"refusal{number}").read_text()
        assert text.startswith("An array of shape (6, 4) is spread over processes;")


def test_a_stop_of_one_process_stops_all_at_one_step(tmp_path: Path) -> None:
    _, end, _ = trained(tmp_path, "stop")
    assert 3 <= int(end) < 6


def test_a_signal_of_one_process_stops_all_at_one_step_and_is_resumed(
    whole: list[str], tmp_path: Path
) -> None:
    _, end, _ = trained(tmp_path, "term")
    assert 3 <= int(end) < 6
    assert trained(tmp_path) == [end, *whole[1:]]


def test_processes_that_are_started_again_after_a_kill_end_with_the_same_bits(
    whole: list[str], tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        chief, killed = started(stack, tmp_path, "kill")
        killed.communicate(timeout=60)
        assert killed.returncode == -signal.SIGKILL
        chief.kill()  # as a scheduler does, which starts all again
    assert trained(tmp_path) == ["2", *whole[1:]]
