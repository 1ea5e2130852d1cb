"""Ranks of torchrun read their shares of a pass: killed at any moment, each element is used once."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.programs.torchrun import torchrun

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

ALL = list(range(48))


class Whole(NamedTuple):
    ends: set[str]
    used: dict[tuple[int, int], list[int]]


def trained(directory: Path, kind: str, data: str, *, ranks: int = 2, **options: int) -> set[str]:
    """Let ranks train, and return the steps and the digests of the weights at their end."""
    directory.mkdir(exist_ok=True)
    moment, last = options.get("moment", -1), options.get("last", 999)
    torchrun("tests.programs.data_rank", directory, kind, data, moment, last, ranks=ranks, restarts=1)
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
        whole[kind, data] = Whole(trained(directory, kind, data), used(directory))
        assert passes(whole[kind, data].used) == [ALL, ALL, ALL]
    moment = (7 * seed + 5) % 20
    assert trained(tmp_path, kind, data, moment=moment) == whole[kind, data].ends
    assert used(tmp_path) == whole[kind, data].used


@pytest.mark.parametrize(("kind", "data"), [("ddp", "loader"), ("fsdp", "shard")])
def test_each_element_is_used_once_by_two_ranks_then_one_then_two(
    kind: str, data: str, tmp_path: Path
) -> None:
    trained(tmp_path, kind, data, last=4)
    trained(tmp_path, kind, data, last=9, ranks=1)
    ends = trained(tmp_path, kind, data)
    assert len(ends) == 1
    assert next(iter(ends)).startswith("18 ")
    assert passes(used(tmp_path)) == [ALL, ALL, ALL]
