"""The examples print the documented output, at a small size and on their real data."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.forked import run_example, start_example


def curve(directory: Path, tag: str) -> dict[int, float]:
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    return {point.step: point.value for point in events.Scalars(tag)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the directory of 600 steps, and their output."""
    directory = tmp_path_factory.mktemp("trained")
    return directory, run_example(directory, "train_digits.py", "--steps", "600")


def test_digits_are_learned_and_what_was_written_can_be_read(trained: tuple[Path, str]) -> None:
    directory, lines = trained[0], trained[1].splitlines()
    last = re.fullmatch(
        r"accuracy (\S+) %, \d+ steps/s, checkpoint runs/digits/model.ckpt-600,"
        r" events (\S+), curves runs/digits/curves.png",
        lines[-1],
    )
    assert last is not None, lines[-1]
    assert float(last[1]) >= 97
    assert Path(last[2]).parent == directory / "runs/digits"
    assert (directory / "runs/digits/curves.png").read_bytes().startswith(b"\x89PNG")
    assert "starting at step 0" in lines

    accuracy = curve(directory / "runs/digits", "accuracy")
    assert list(accuracy) == [200, 400, 600]
    assert f"{100 * accuracy[600]:.2f}" == last[1]
    loss = curve(directory / "runs/digits", "loss")
    assert list(loss) == [1, *range(21, 600, 20)]
    assert loss[581] < 0.2 * loss[1]


def test_digits_run_again_continues(trained: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(trained[0], tmp_path, dirs_exist_ok=True)
    again = run_example(tmp_path, "train_digits.py", "--steps", "700")
    assert "resumed from step 600" in again
    assert "checkpoint runs/digits/model.ckpt-700" in again


def test_digits_killed_in_the_middle_lose_only_what_came_after_the_last_checkpoint(
    tmp_path: Path,
) -> None:
    """SIGKILL, twice, once a checkpoint of the middle has been announced; then to the end."""
    saved = 0
    for _ in range(2):
        with start_example(tmp_path, "train_digits.py", "--steps", "1000000") as process:
            for line in process.stdout:
                if found := re.match(r"resumed from step (\d+)", line):
                    assert int(found[1]) >= saved
                if found := re.match(r"Saved checkpoint \S+-(\d+) in", line):
                    saved = max(saved, int(found[1]))
                    if saved and saved % 600 == 0:
                        process.kill()
            assert process.wait() < 0
    out = run_example(tmp_path, "train_digits.py", "--steps", str(saved + 200))
    resumed = re.search(r"resumed from step (\d+)", out)
    assert resumed is not None
    assert int(resumed[1]) >= saved
    assert f"checkpoint runs/digits/model.ckpt-{saved + 200}" in out


def test_a_cluster_that_loses_a_worker_and_a_server_still_trains(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed")
    last = run_example(tmp_path, "cluster_local.py", env={"OPENBLAS_NUM_THREADS": "1"}).splitlines()[-1]
    found = re.fullmatch(r"accuracy (\S+) %, (\d+) recoveries, picture (\S+)", last)
    assert found is not None, last
    assert float(found[1]) >= 97
    assert int(found[2]) >= 3  # all workers after the server's end; the killed one is a new process
    assert (tmp_path / found[3]).read_bytes().startswith(b"\x89PNG")


def test_many_sessions_of_a_loop_do_as_many_steps_each(tmp_path: Path) -> None:
    first, _, last = run_example(
        tmp_path, "many_sessions.py", "--count", "20", "--secs", "2"
    ).splitlines()
    steps = re.fullmatch(r"20 sessions: \d+ steps, (\d+) to (\d+) each", first)
    assert steps is not None, first
    assert 0 < int(steps[2]) <= 2 * int(steps[1])
    right = re.fullmatch(r"best: learning rate \S+, (\S+) % right", last)
    assert right is not None, last
    assert float(right[1]) > 50
