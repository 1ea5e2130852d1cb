"""Trainings with two savers, keep-best, sharded files and resumable data, killed and continued."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


KILLS = 6


@pytest.mark.campaign("kills", short=1)
def test_each_checkpoint_has_the_exact_sequence_of_elements(tmp_path: Path, seed: int) -> None:
    """After each kill, the states, positions and metrics of all checkpoints belong together."""
    out = subprocess.run(
        [sys.executable, str(HERE / "killed_training.py"), str(tmp_path), str(KILLS), str(seed)],
        stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )  # fmt: skip
    found = json.loads(out.stdout)
    assert found["wrong"] == []
    assert found["killed"] >= KILLS
    assert found["passes"]
