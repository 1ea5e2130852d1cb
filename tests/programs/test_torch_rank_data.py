"""Ranks of torchrun read their shares of a pass: killed at any moment, each element is used once."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

RANK = Path(__file__).with_name("data_rank.py")
ALL = list(range(48))


class Whole(NamedTuple):
    ends: set[str]
    used: dict[tuple[int, int], list[int]]


def torchrun(directory: Path, kind: str, data: str, *, ranks: int = 2, **options: int) -> set[str]:
    """Let ranks train, and return the steps and the digests of the weights at their end."""
    directory.mkdir(exist_ok=True)
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks),
            "--standalone", "--max-restarts", "1", str(RANK), str(directory), kind, data,
            str(options.get("moment", -1)), str(options.get("last", 999)),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=200,
        env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return {(directory / f"end.{ranks}.{rank}").read_text() for rank in range(ranks)}


def used(directory: Path) -> dict[tuple[int, int], list[int]]:
    """Return the elements of each pass and step: of a step that was repeated, the last ones."""
    found: dict[tuple[int, int, str], list[int]] = {}
    for path in sorted(directory.glob("used.*"), key=lambda path: path.stat().st_mtime):
        for line in path.read_text().splitlines():
            step, epoch, elements = line.split(" ", 2)
            found[int(epoch), int(step), path.name] = ast.literal_eval(elements)
    merged: dict[tuple[int, int], list[int]] = {}
    for (epoch, step, _), elements in sorted(found.items()):
        merged.setdefault((epoch, step), []).extend(elements)
    return merged


def passes(found: dict[tuple[int, int], list[int]]) -> list[list[int]]:
    """Return the elements of each pass in their order by number."""
    together: dict[int, list[int]] = {}
    for (epoch, _), elements in sorted(found.items()):
        together.setdefault(epoch, []).extend(elements)
    return [sorted(elements) for elements in together.values()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Whole]:
    return {}


@pytest.mark.campaign("ranks", short=2)
def test_ranks_killed_at_a_moment_end_with_the_bits_and_elements_of_whole_ones(
    seed: int,
    whole: dict[tuple[str, str], Whole],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    kind, data = [("ddp", "loader"), ("fsdp", "shard"), ("ddp", "shard"), ("fsdp", "loader")][seed % 4]
    if (kind, data) not in whole:
        directory = tmp_path_factory.mktemp("whole")
        whole[kind, data] = Whole(torchrun(directory, kind, data), used(directory))
        assert passes(whole[kind, data].used) == [ALL, ALL, ALL]
    moment = (7 * seed + 5) % 20
    assert torchrun(tmp_path, kind, data, moment=moment) == whole[kind, data].ends
    assert used(tmp_path) == whole[kind, data].used


@pytest.mark.parametrize(("kind", "data"), [("ddp", "loader"), ("fsdp", "shard")])
def test_each_element_is_used_once_by_two_ranks_then_one_then_two(
    kind: str, data: str, tmp_path: Path
) -> None:
    torchrun(tmp_path, kind, data, last=4)
    torchrun(tmp_path, kind, data, last=9, ranks=1)
    ends = torchrun(tmp_path, kind, data)
    assert len(ends) == 1
    assert next(iter(ends)).startswith("18 ")
    assert passes(used(tmp_path)) == [ALL, ALL, ALL]
