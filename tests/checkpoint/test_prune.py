"""The files that :func:`asyncmon.checkpoint.prune` deletes, and those it keeps."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.checkpoint import KeepBest, Saver, load_checkpoint, prune, verify
from asyncmon.errors import NotFoundError
from asyncmon.testing import ScriptedSession


async def saved(
    directory: Path, steps: int, metrics: list[float] | None = None, **options: Any
) -> None:
    saver = Saver(max_to_keep=None, **options)
    for step in range(1, steps + 1):
        session = ScriptedSession(state={"w": np.full(3, step, np.float32)})
        found = {} if metrics is None else {"accuracy": metrics[step - 1]}
        await saver.save(session, directory / "m", step, metrics=found)
    await saver.close()


def present(directory: Path, pattern: str = "m-*.json") -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


def names(paths: list[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]


@pytest.mark.asyncio
async def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    await saved(tmp_path, 6, [0.1, 0.9, 0.3, 0.8, float("nan"), 0.2])
    best = KeepBest("accuracy", k=2, mode="max")
    would = await prune(tmp_path, 1, keep_best=best, dry_run=True)
    assert names(would.deleted) == ["m-1", "m-3", "m-5"]
    assert len(present(tmp_path)) == 6
    assert await prune(tmp_path, 1, keep_best=best) == would
    assert present(tmp_path) == [
        "m-2.json",
        "m-4.json",
        "m-6.json",
    ]
    assert len(present(tmp_path, "*.safetensors")) == 3
    state = await am.get_checkpoint_state(tmp_path)
    assert state is not None
    assert names(list(state.all_model_checkpoint_paths)) == ["m-2", "m-4", "m-6"]
    assert names([await am.latest_checkpoint(tmp_path) or ""]) == ["m-6"]
    assert (await prune(tmp_path, 3)).deleted == []


@pytest.mark.asyncio
async def test_a_saver_continues_with_what_stayed(tmp_path: Path) -> None:
    await saved(tmp_path, 4)
    await prune(tmp_path, 2)
    saver = Saver(max_to_keep=3)
    for step in (5, 6):
        await saver.save(ScriptedSession(state={"w": np.zeros(3, np.float32)}), tmp_path / "m", step)
    assert names(saver.last_checkpoints) == ["m-4", "m-5", "m-6"]
    await saver.close()


@pytest.mark.asyncio
async def test_a_damaged_one_is_neither_counted_nor_deleted(tmp_path: Path) -> None:
    await saved(tmp_path, 4)
    (tmp_path / "m-4.safetensors").write_bytes(b"")
    pruned = await prune(tmp_path, 1)
    assert (names(pruned.kept), names(pruned.deleted)) == (["m-3"], ["m-1", "m-2"])
    assert names([one.path for one in pruned.damaged]) == ["m-4"]
    assert "m-4.json" in present(tmp_path)
    assert names([await am.latest_checkpoint(tmp_path) or ""]) == ["m-3"]


@pytest.mark.asyncio
async def test_the_last_whole_one_is_never_deleted(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no valid checkpoint"):
        await prune(tmp_path)
    assert present(tmp_path, "*") == []
    await saved(tmp_path, 1)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        await prune(tmp_path, 0)
    (tmp_path / "m-1.safetensors").write_bytes(b"")
    with pytest.raises(NotFoundError, match="no valid checkpoint"):
        await prune(tmp_path)


@pytest.mark.asyncio
async def test_tensorflows_checkpoints_are_left(tmp_path: Path) -> None:
    for path in (Path(__file__).parent / "data").glob("many.ckpt*"):
        shutil.copy(path, tmp_path)
    with pytest.raises(NotFoundError, match="but those of TensorFlow: nothing is deleted"):
        await prune(tmp_path, 1)


@pytest.mark.asyncio
@pytest.mark.parametrize("by", ["relative", "link"])
async def test_absolute_paths_in_the_state_file_are_the_same_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    await saved(tmp_path / "runs", 3, save_relative_paths=False)
    monkeypatch.chdir(tmp_path)
    os.symlink("runs", "link")
    directory = "runs" if by == "relative" else "link"
    assert names([one.path for one in await verify(directory)]) == ["m-3", "m-2", "m-1"]
    found = await prune(directory, 1)
    assert (names(found.kept), names(found.deleted)) == (["m-3"], ["m-1", "m-2"])
    assert present(tmp_path / "runs") == ["m-3.json"]


@pytest.mark.asyncio
async def test_a_copy_is_pruned_and_not_what_it_is_a_copy_of(tmp_path: Path) -> None:
    await saved(tmp_path / "first", 3, save_relative_paths=False)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    found = await prune(tmp_path / "second", 1)
    assert found.kept == [str(tmp_path / "second" / "m-3")]
    assert present(tmp_path / "second") == ["m-3.json"]
    assert len(present(tmp_path / "first")) == 3


@pytest.mark.asyncio
async def test_one_that_is_being_read_stays(tmp_path: Path) -> None:
    await saved(tmp_path, 3)
    async with await load_checkpoint(tmp_path / "m-1") as reader:
        pruned = await prune(tmp_path, 1)
        assert names(pruned.deleted) == ["m-2"]
        assert names(pruned.kept) == ["m-1", "m-3"]
        assert (await reader.get_tensor("w")).tolist() == [1, 1, 1]
