"""Two ranks of torchrun with gloo: they stop together, save once, and start again together."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import asyncmon as am
from tests import forked
from tests.programs.torchrun import torchrun

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")


RANK = "tests.programs.torch_rank"


class Ended(NamedTuple):
    begun: int
    """The step that a hook sees when the session is created."""
    end: int
    weights: str


def ends(directory: Path, ranks: int = 2) -> list[Ended]:
    """Return what the ranks wrote at their end, which they reach once."""
    paths = [path for rank in range(ranks) for path in directory.glob(f"rank{rank}.*")]
    assert len(paths) == ranks
    found = [path.read_text().split(" ", 2) for path in paths]
    for path in paths:
        path.unlink()
    return [Ended(int(begun), int(end), weights) for begun, end, weights in found]


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def whole(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    directory = tmp_path_factory.mktemp("whole")
    if kind == "ddp":  # the others are forked ranks, which must end with the same bits
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--standalone",
        ]
        arguments = ["--standalone", "-m", RANK, str(directory), "none", kind]
        subprocess.run([*command, *arguments], check=True, timeout=120, cwd=forked.ROOT)
    else:
        torchrun(RANK, directory, "none", kind)
    first, second = ends(directory)
    assert first == second
    return first


def test_ranks_train_from_one_state_and_end_at_one_step(whole: Ended) -> None:
    assert (whole.begun, whole.end) == (0, 12)


@pytest.mark.parametrize("fault", ["stop", "term"])
def test_a_stop_or_a_signal_of_one_rank_stops_all_at_one_step_and_saves_once(
    fault: str, kind: str, whole: Ended, tmp_path: Path
) -> None:
    out = torchrun(RANK, tmp_path, fault, kind)
    first, second = ends(tmp_path)
    assert first == second
    assert 5 <= first.end < 12
    assert len(re.findall(rf"Saving checkpoints for {first.end} into", out)) == 1
    assert re.search(rf"Session ended at step {first.end}: rank 1 stops: ", out)
    record = asyncio.run(am.runs(tmp_path))[0]
    assert record.state == {"stop": "stopped", "term": "preempted"}[fault]
    torchrun(RANK, tmp_path, "none", kind)
    resumed = ends(tmp_path)
    assert resumed[0] == resumed[1] == whole._replace(begun=first.end)
    assert [(tmp_path / f"counted{rank}").read_text() for rank in (0, 1)] == ["12", "24"]


def test_a_killed_rank_is_restarted_with_the_others_by_the_agent(
    kind: str, whole: Ended, tmp_path: Path
) -> None:
    out = torchrun(RANK, tmp_path, "kill", kind, restarts=1)
    assert kind == "fsdp" or "Rank 0 has lost rank 1" in out
    first, second = ends(tmp_path)
    assert first == second
    assert 2 <= first.begun <= 6
    assert (first.end, first.weights) == (12, whole.weights)


@pytest.mark.parametrize("kind", ["fsdp"], indirect=True)
def test_a_rank_that_dies_in_a_save_leaves_the_checkpoint_before(whole: Ended, tmp_path: Path) -> None:
    torchrun(RANK, tmp_path, "kill in save", "fsdp", restarts=1)
    first, second = ends(tmp_path)
    assert first == second == whole._replace(begun=first.begun)
    assert first.begun in (2, 4)
    assert not list(tmp_path.glob(".asyncmon-*"))
    named = {path.name.partition("-00")[0].removesuffix(".json") for path in tmp_path.glob("model*")}
    assert len(named) == len(list(tmp_path.glob("model*.json"))) == 5


def test_a_rank_that_cannot_write_fails_the_save_and_says_why(tmp_path: Path) -> None:
    out = torchrun(RANK, tmp_path, "full disk", "fsdp", code=1)
    failed = re.search(r"model.ckpt-(\d)-00002-of-00002.safetensors' was not written", out)
    assert failed, out
    latest = tmp_path / f"model.ckpt-{int(failed[1]) - 2}"
    assert asyncio.run(am.latest_checkpoint(tmp_path)) == str(latest)


def test_a_step_that_one_rank_runs_alone_is_an_error_of_all(tmp_path: Path) -> None:
    out = torchrun(RANK, tmp_path, "alone", "ddp", code=1)
    assert "This rank runs the steps ['weights'], and another one runs others" in out
    assert "This rank runs the steps ['train'], and another one runs others" in out


def test_a_sharded_checkpoint_is_restored_without_ranks_and_a_whole_one_by_them(tmp_path: Path) -> None:
    torchrun(RANK, tmp_path, "stop", "fsdp")
    before = ends(tmp_path)[0]
    same = before._replace(begun=before.end)
    torchrun(RANK, tmp_path, "look", "whole", ranks=1)
    assert ends(tmp_path, 1) == [same]
    asyncio.run(save_again(tmp_path))
    torchrun(RANK, tmp_path, "look", "fsdp")
    assert ends(tmp_path) == [same, same]


async def save_again(directory: Path) -> None:
    """Replace the checkpoint by one whose entries are whole."""
    path = await am.latest_checkpoint(directory)
    assert path is not None
    async with await am.load_checkpoint(path) as reader:
        names = list(reader.get_variable_to_shape_map())
        state = {name: await reader.get_tensor(name) for name in names}
    saver = am.checkpoint.Saver()
    await saver.save(State(state), path)
    await saver.close()


class State:
    def __init__(self, values: dict[str, object]) -> None:
        self.values = values

    async def snapshot(self) -> dict[str, object]:
        return self.values

    async def load(self, values: dict[str, object]) -> None:
        raise NotImplementedError
