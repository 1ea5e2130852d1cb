"""Processes that die while they save: nothing acknowledged is lost, nothing damaged is restored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import forked

HERE = Path(__file__).parent


def killed(kind: str, directory: Path, rounds: int, seed: int) -> list[dict[str, Any]]:
    done = forked.run(HERE / "victim.py", kind, str(directory), str(rounds), str(seed), check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    for result in results:
        assert result["killed"], result
        assert result["same"], result
        assert result["step"] >= result["acknowledged"], result
        assert result["damaged"] == [], result
        assert result["left"] == [], result
    return results


def test_killed_at_each_system_call_of_a_save(tmp_path: Path) -> None:
    """SA-19: the newest restorable checkpoint is at least the last acknowledged one."""
    results = killed("calls", tmp_path, 0, 0)
    assert len(results) > 30
    assert {result["acknowledged"] for result in results} == {2}
    assert {result["step"] for result in results} == {2, 3}  # before its commit, and after it


@pytest.mark.campaign("kills", short=1)
def test_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    results = killed("moments", tmp_path, 20, seed)
    assert max(result["step"] for result in results) > 3
