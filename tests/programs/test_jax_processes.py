"""Two processes of jax.distributed on one machine: one of them saves, both begin with its state."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="jax is not installed: pip install 'asyncmon[jax]'")

pytestmark = pytest.mark.timeout(150)

PROCESS = Path(__file__).with_name("jax_process.py")


def trained(directory: Path, steps: int) -> list[list[str]]:
    """Let two processes train, and return the step at which each began and its weights at the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with contextlib.ExitStack() as stack:
        processes = [
            subprocess.Popen(
                [sys.executable, str(PROCESS), address, str(number), str(directory), str(steps)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
            )
            for number in range(2)
        ]  # fmt: skip
        for process in processes:
            stack.enter_context(process)
            stack.callback(process.kill)
        for process in processes:
            out, _ = process.communicate(timeout=60)
            assert process.returncode == 0, out
            assert ("Saving checkpoints" in out) == (process is processes[0])
    return [(directory / f"process{number}").read_text().split(" ", 1) for number in range(2)]


def test_the_first_process_saves_and_all_go_on_from_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    first, second = trained(tmp_path / "whole", 6)
    assert first == second
    trained(tmp_path, 4)
    resumed = trained(tmp_path, 6)
    assert resumed == [["4", first[1]]] * 2
