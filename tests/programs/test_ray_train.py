"""Sessions in a real cluster of Ray: killed, preempted, of another size, and stopped by Ray Tune."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import asyncmon as am

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")
pytest.importorskip("ray.train", reason="Ray Train is not installed: pip install 'asyncmon[ray]'")

pytestmark = pytest.mark.timeout(900)  # two cores start some forty processes

PROGRAMS = Path(__file__).with_name("ray_programs.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster_ray.py"


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Run a cluster of three machines, and return the environment of its drivers."""
    short = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # names of sockets must be short
    variables = {
        **os.environ,
        "RAY_TMPDIR": short,
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.2",
        "OMP_NUM_THREADS": "1",
    }
    variables.pop("RAY_ADDRESS", None)
    command = [sys.executable, str(PROGRAMS), "cluster"]
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        try:
            yield {**variables, "RAY_ADDRESS": cluster.stdout.readline().strip()}
        finally:
            cluster.stdin.close()
            cluster.wait()
            shutil.rmtree(short, ignore_errors=True)


def driver(environment: dict[str, str], log: Path, *command: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-u", *command], env=environment, stdout=file, stderr=subprocess.STDOUT,
            cwd=log.parent,
        )  # fmt: skip


def run(environment: dict[str, str], log: Path, *command: str) -> str:
    with driver(environment, log, *command) as process:
        process.wait()
    output = log.read_text()
    assert process.returncode == 0, output[-6000:]
    return output


class Trained(NamedTuple):
    begun: int
    end: int
    accuracy: float
    weights: str


def example(environment: dict[str, str], directory: Path, *options: str) -> Trained:
    """Run the example, and return what its last line has."""
    command = [str(EXAMPLE), "--steps", "100", "--dir", str(directory), *options]
    output = run(environment, directory.with_suffix(".log"), *command)
    line = r"^began at step (\d+), ended at step (\d+), accuracy (\S+) %, weights (\w{16})$"
    found = re.findall(line, output, re.MULTILINE)
    assert len(found) == 1, output[-6000:]
    begun, end, accuracy, weights = found[0]
    return Trained(int(begun), int(end), float(accuracy), weights)


@pytest.fixture(scope="module")
def killed(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return example(environment, tmp_path_factory.mktemp("killed") / "run", "--kill-at", "33")


def test_a_killed_worker_is_started_again_and_the_example_learns(killed: Trained) -> None:
    assert (killed.begun, killed.end) == (20, 100)
    assert killed.accuracy > 80


@pytest.mark.slow  # another run; in the next test one process makes both
def test_a_killed_worker_ends_with_the_bits_of_an_uninterrupted_run(
    environment: dict[str, str], killed: Trained, tmp_path: Path
) -> None:
    whole = example(environment, tmp_path / "whole")
    assert whole == killed._replace(begun=0)


def ends(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "ends").read_text().splitlines()]


def used(place: Path) -> list[int]:
    return sorted(
        number
        for path in place.glob("used.*")
        for line in path.read_text().splitlines()
        for number in json.loads(line)
    )


@pytest.fixture(scope="module")
def preempted(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train while one of the three machines is preempted, and return the directory."""
    place = tmp_path_factory.mktemp("preempted")
    run(environment, place / "log", str(PROGRAMS), "preempted", str(place))
    return place


def test_a_preempted_machine_stops_the_session_which_saves_and_ends_with_the_same_bits(
    preempted: Path,
) -> None:
    (uninterrupted,) = ends(preempted / "whole")
    first, second = ends(preempted / "preempted")
    assert (first["begun"], first["end"], first["state"]) == (0, 25, "preempted")
    assert re.match(r"Ray preempts node \w+ in \d+ s", first["text"])
    assert (second["begun"], second["end"], second["state"]) == (25, 40, "completed")
    assert second["weights"] == uninterrupted["weights"]
    metrics = json.loads((preempted / "metrics").read_text())
    assert metrics["checkpoint"] == str(preempted / "preempted" / "run" / "model.ckpt-40")
    assert (metrics["step"], metrics["checkpoint_step"]) == (40, 40)


@pytest.mark.slow  # two drivers
def test_a_driver_that_is_killed_and_started_again_resumes_at_the_last_commit(
    environment: dict[str, str], tmp_path: Path
) -> None:
    command = [str(PROGRAMS), "driver", str(tmp_path)]
    with driver(environment, tmp_path / "killed.log", *command) as process:
        process.wait()
    assert process.returncode == -signal.SIGKILL, (tmp_path / "killed.log").read_text()[-6000:]
    run(environment, tmp_path / "log", *command)
    (uninterrupted,), (resumed,) = ends(tmp_path / "whole"), ends(tmp_path / "preempted")
    assert (resumed["begun"], resumed["end"]) == (20, 40)
    assert resumed["weights"] == uninterrupted["weights"]


@pytest.mark.slow  # Ray waits a minute before it starts fewer workers
@pytest.mark.usefixtures("preempted")  # so that two machines are left
def test_a_smaller_number_of_workers_continues_after_the_same_elements(
    environment: dict[str, str], tmp_path: Path
) -> None:
    run(environment, tmp_path / "log", str(PROGRAMS), "elastic", str(tmp_path))
    first, second = ends(tmp_path / "preempted")
    assert (first["begun"], first["end"], first["size"]) == (0, 25, 2)
    assert (second["begun"], second["end"], second["size"]) == (25, 100, 1)
    assert used(tmp_path / "preempted") == list(range(400))


def test_a_trial_that_ray_tune_stops_is_stopped_with_its_last_step_saved(
    environment: dict[str, str], tmp_path: Path
) -> None:
    run(environment, tmp_path / "log", str(PROGRAMS), "tuned", str(tmp_path))
    records = asyncio.run(am.runs(tmp_path))
    found = {record.name: (record.state, record.step, record.saved, record.text) for record in records}
    assert found["short"][:3] == ("completed", 8, 8)
    assert found["long"] == ("stopped", 20, 20, "Ray Tune stopped the trial")
