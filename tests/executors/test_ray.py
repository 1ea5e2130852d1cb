"""Pipelines whose calls run in Ray actors, in a real cluster of Ray."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from asyncmon.executors import RayExecutor

PROGRAM = Path(__file__).parent / "ray_program.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each scenario of the program has found."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'asyncmon[ray]'")
    short = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # names of sockets must be short
    environment = os.environ | {
        "RAY_TMPDIR": short,
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    environment.pop("RAY_ADDRESS", None)
    place = tmp_path_factory.mktemp("ray")
    try:
        done = subprocess.run(
            [sys.executable, "-u", str(PROGRAM), str(place)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(short, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[str, Any] = {"slow": int((place / "slow").read_text())}
    for line in done.stdout.splitlines():
        if line.startswith('{"'):
            results |= json.loads(line)
    return results


def test_calls_run_in_actors(found: dict[str, Any]) -> None:
    assert sorted(found["double"]["used"]) == list(range(0, 16, 2))


def test_each_version_of_the_weights_is_fetched_for_a_call(found: dict[str, Any]) -> None:
    used = found["weights"]["used"]
    assert all(version == weight for version, weight in used)
    assert max(version for version, _ in used) > 0


def test_element_of_a_dead_actor_is_made_again(found: dict[str, Any]) -> None:
    assert sorted(found["die once"]["used"]) == list(range(6))
    assert found["die once"]["lost"] == 1


def test_element_that_kills_three_actors_is_an_error(found: dict[str, Any]) -> None:
    assert found["die"]["error"].startswith(
        "WorkerDiedError: 3 workers ended in the call with element 2: ActorDiedError"
    )
    assert sorted(found["drop"]["used"]) == [0, 1, 3]


def test_error_of_a_call_is_raised_as_itself(found: dict[str, Any]) -> None:
    assert found["fail"]["error"] == "Broken: no 0"
    assert any("raised in an actor of Ray" in note for note in found["fail"]["notes"])


def test_actor_that_dies_at_each_start_stops_the_session(found: dict[str, Any]) -> None:
    assert found["unstartable"]["error"].startswith("WorkerDiedError: 3 workers of ")
    assert "in a row ended before their first call" in found["unstartable"]["error"]


def test_stop_kills_a_busy_actor(found: dict[str, Any]) -> None:
    assert found["stop"]["used"] == []
    assert not Path(f"/proc/{found['slow']}").exists()


def test_wrong_arguments_are_refused() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'asyncmon[ray]'")
    with pytest.raises(TypeError, match="takes a function, got 'double'"):
        RayExecutor("double")  # type: ignore[arg-type]  # refused
    with pytest.raises(ValueError, match="must be 1 or more, got 0"):
        RayExecutor(len, 0)


def test_missing_ray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'asyncmon\[ray\]'"):
        RayExecutor(len)
