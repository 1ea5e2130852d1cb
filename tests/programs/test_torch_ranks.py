"""Two ranks of torchrun with gloo: they stop together, save once, and start again together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

pytestmark = pytest.mark.timeout(150)

RANK = Path(__file__).with_name("torch_rank.py")


class Ended(NamedTuple):
    begun: int
    end: int
    weights: str


def torchrun(directory: Path, fault: str, restarts: int = 0) -> str:
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
            "--standalone", "--max-restarts", str(restarts), str(RANK), str(directory), fault,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
        # A store that the attempts share still has the ports of the ranks before, which gloo may try.
        env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def ends(directory: Path) -> list[Ended]:
    """Return what the ranks wrote at their end, which they reach once."""
    paths = [path for rank in range(2) for path in directory.glob(f"rank{rank}.*")]
    assert len(paths) == 2
    found = [path.read_text().split(" ", 2) for path in paths]
    for path in paths:
        path.unlink()
    return [Ended(int(begun), int(end), weights) for begun, end, weights in found]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    directory = tmp_path_factory.mktemp("whole")
    torchrun(directory, "none")
    first, second = ends(directory)
    assert first == second
    return first


def test_ranks_train_from_one_state_and_end_at_one_step(whole: Ended) -> None:
    assert (whole.begun, whole.end) == (0, 12)


@pytest.mark.parametrize("fault", ["stop", "term"])
def test_a_stop_or_a_signal_of_one_rank_stops_all_at_one_step_and_saves_once(
    fault: str, whole: Ended, tmp_path: Path
) -> None:
    out = torchrun(tmp_path, fault)
    first, second = ends(tmp_path)
    assert first == second
    assert 5 <= first.end < 12
    assert len(re.findall(rf"Saving checkpoints for {first.end} into", out)) == 1
    torchrun(tmp_path, "none")
    resumed = ends(tmp_path)
    assert resumed[0] == resumed[1] == whole._replace(begun=first.end)


def test_a_killed_rank_is_restarted_with_the_others_by_the_agent(whole: Ended, tmp_path: Path) -> None:
    torchrun(tmp_path, "kill", restarts=1)
    first, second = ends(tmp_path)
    assert first == second
    assert 2 <= first.begun <= 6
    assert (first.end, first.weights) == (12, whole.weights)
