"""The example of Ray Train resumes exactly after a worker was killed, in a real cluster of Ray."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")
pytest.importorskip("ray.train", reason="Ray Train is not installed: pip install 'asyncmon[ray]'")

EXAMPLE = Path(__file__).parents[1] / "examples" / "cluster_ray.py"
STEPS = 100


def run(directory: Path, *options: str) -> str:
    """Run the example in a cluster of its own, and return its last line."""
    short = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # names of sockets must be short
    environment = os.environ | {
        "RAY_TMPDIR": short,
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    environment.pop("RAY_ADDRESS", None)
    try:
        done = subprocess.run(
            [sys.executable, "-u", str(EXAMPLE), "--steps", str(STEPS), "--dir", ".", *options],
            cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(short, ignore_errors=True)
    assert done.returncode == 0, done.stdout[-4000:]
    lines = re.findall(r"^began at step .*$", done.stdout, re.MULTILINE)
    assert len(lines) == 1, done.stdout[-4000:]
    return str(lines[0])


def test_a_training_with_a_killed_worker_ends_with_the_bits_of_an_uninterrupted_one(
    tmp_path: Path,
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    expected, found = run(whole), run(killed, "--kill-at", "50")
    assert (killed / "killed").exists()
    assert expected.startswith("began at step 0, ended at step 100,")
    assert found.startswith("began at step 40, ended at step 100,")  # the last checkpoint before 50
    assert found.partition("ended")[2] == expected.partition("ended")[2]
    last = re.search(r"accuracy (\S+) %, weights \w{16}$", found)
    assert last is not None, found
    assert float(last[1]) > 85
