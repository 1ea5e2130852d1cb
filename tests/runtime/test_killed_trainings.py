"""Trainings with two savers, keep-best and resumable data, killed and continued."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import forked

HERE = Path(__file__).parent


KILLS = 6


@pytest.mark.campaign("kills", short=1)
def test_each_checkpoint_has_the_exact_sequence_of_elements(tmp_path: Path, seed: int) -> None:
    """After each kill, the states, positions and metrics of all checkpoints belong together."""
    out = forked.run(HERE / "killed_training.py", str(tmp_path), str(KILLS), str(seed), check=True)
    found = json.loads(out.stdout)
    assert found["wrong"] == []
    assert found["killed"] >= KILLS
    assert found["passes"]
