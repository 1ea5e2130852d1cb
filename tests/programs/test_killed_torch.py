"""Trainings whose data comes from the workers of a DataLoader, killed and continued."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

SCRIPT, ROOT = Path(__file__).with_name("killed_torch.py"), Path(__file__).parents[2]


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_trainings_end_with_the_bits_of_one_that_was_not(kills: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), str(kills), str(kills)],
        capture_output=True, text=True, check=False, timeout=280, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] == kills
    assert len(found["ends"]) >= 2
    assert len(set(found["ends"])) == 1
