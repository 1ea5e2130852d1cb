"""Parts of a state that several checkpoints share: written once, deleted with the last one."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import (
    KeepBest,
    Saver,
    latest_checkpoint,
    load_checkpoint,
    prune,
    remove_checkpoint,
    verify,
)
from asyncmon.checkpoint.locations import open_store
from asyncmon.data import ReplayBuffer
from asyncmon.errors import NotFoundError, OpError
from asyncmon.system.files import FileCalls
from tests.checkpoint.memory_session import MemorySession

pytestmark = pytest.mark.asyncio

CAPACITY = 8


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment of each item."""
    monkeypatch.setattr("asyncmon.data.replay._SEGMENT_BYTES", 1)


class Run:
    """A saver of a buffer."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self.session = MemorySession(w=np.zeros(2))
        self.buffer = ReplayBuffer(CAPACITY, seed=1)
        self.saver = Saver(**options)
        self.saver.add_stateful("replay", self.buffer)

    def add(self, *numbers: int) -> None:
        for number in numbers:
            self.buffer.add({"n": number, "x": np.full(3, number)})

    async def save(self, step: int) -> str:
        path = await self.saver.save(self.session, self.directory / "model.ckpt", step)
        assert path is not None
        return str(path)

    def shared(self) -> set[str]:
        return {one.name for one in self.directory.iterdir() if one.name.startswith("shared-")}

    def manifests(self) -> str:
        return "".join(path.read_text() for path in self.directory.glob("*.json"))


async def contents(path: Any) -> set[int]:
    run = Run(path)
    await run.saver.restore(run.session, path)
    return set(run.buffer.sample(300).batch["n"].tolist())


async def test_only_new_parts_are_written(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add(*range(CAPACITY))
    await run.save(1)
    first = run.shared()
    times = {name: (tmp_path / name).stat().st_mtime_ns for name in first}
    assert len(first) == CAPACITY
    run.add(CAPACITY)
    second = await run.save(2)
    assert len(run.shared() - first) == 1
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in first} == times
    assert await contents(second) == set(range(1, CAPACITY + 1))
    assert await contents(tmp_path / "model.ckpt-1") == set(range(CAPACITY))
    assert [one.problem for one in await verify(tmp_path)] == [None, None]


async def test_a_file_goes_with_its_last_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, max_to_keep=2)
    run.add(*range(CAPACITY))
    for step in range(1, 8):
        await run.save(step)
        run.add(CAPACITY + step)
    assert [one.problem for one in await verify(tmp_path)] == [None, None]
    assert len(run.shared()) == CAPACITY + 1


async def test_a_restored_buffer_continues_with_the_files(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add(*range(CAPACITY))
    path = await run.save(1)
    before = run.shared()
    await run.saver.close()
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path, moved)
    for directory in (tmp_path, moved):
        again = Run(directory)
        await again.saver.restore(again.session, directory / path.rpartition("/")[2])
        again.add(20)
        assert await contents(await again.save(2)) == {*range(1, CAPACITY), 20}
        assert len(again.shared() - before) == 1


async def test_another_directory_gets_all_files(tmp_path: Path) -> None:
    run = Run(tmp_path / "a")
    run.add(*range(CAPACITY))
    await run.save(1)
    other = await run.saver.save(run.session, tmp_path / "b" / "model.ckpt", 1)
    shutil.rmtree(tmp_path / "a")
    assert await contents(other) == set(range(CAPACITY))


@pytest.mark.parametrize("how", ["missing", "damaged", "cut"])
async def test_damage_of_a_new_part_falls_back(tmp_path: Path, how: str) -> None:
    run = Run(tmp_path)
    run.add(*range(CAPACITY))
    first = await run.save(1)
    before = run.shared()
    run.add(CAPACITY)
    second = await run.save(2)
    (new,) = run.shared() - before
    file = tmp_path / new
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if how == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    assert await latest_checkpoint(tmp_path) == first
    again = Run(tmp_path)
    assert await again.saver.restore_latest(again.session, tmp_path) == first
    if how != "damaged":  # a save does not refer to missing files
        third = await run.save(3)
        assert await contents(third) == set(range(1, CAPACITY + 1))
    assert second != first


async def test_a_reader_keeps_a_file(tmp_path: Path) -> None:
    run = Run(tmp_path, max_to_keep=1)
    run.add(*range(CAPACITY))
    first = await run.save(1)
    async with await load_checkpoint(first) as reader:
        run.add(*range(CAPACITY, 2 * CAPACITY))
        await run.save(2)
        await reader.verify()
    await run.save(3)
    assert len(run.shared()) == CAPACITY


async def test_an_object_store_has_shared_files(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/run"
    run = Run(tmp_path, max_to_keep=1)
    run.add(*range(CAPACITY))
    for step in range(1, 4):
        path = await run.saver.save(run.session, f"{url}/model.ckpt", step)
        run.add(CAPACITY + step)
    names = [name for name in open_store(url).names() if name.startswith("shared-")]
    assert len(names) == CAPACITY
    assert await contents(path) == {2, 3, 4, 5, 6, 7, 9, 10}


class Broken(FileCalls):
    """System calls, all of which fail from the ``nth`` write or rename on."""

    def __init__(self) -> None:
        self.left = -1

    def _tick(self) -> None:
        if self.left == 0:
            raise OSError(5, "broken")
        self.left -= self.left > 0

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self._tick()
        return super().write(descriptor, data)

    def replace(self, source: Path, target: Path) -> None:
        self._tick()
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._tick()
        super().unlink(path)


@pytest.mark.parametrize("left", range(16))
async def test_a_crash_leaves_earlier_checkpoints_whole(tmp_path: Path, left: int) -> None:
    calls = Broken()
    run = Run(tmp_path, max_to_keep=2, calls=calls)
    run.add(*range(CAPACITY))
    await run.save(1)
    run.add(8)
    await run.save(2)
    run.add(9, 10)
    calls.left = left
    try:
        await run.save(3)
    except OpError:
        expected = {1: set(range(8)), 2: set(range(1, 9))}
    else:
        expected = {2: set(range(1, 9)), 3: set(range(3, 11))}
    calls.left = -1
    await run.saver.close()
    for step, items in expected.items():
        assert await contents(tmp_path / f"model.ckpt-{step}") == items
    again = Run(tmp_path, max_to_keep=2)  # cleans up
    assert await again.saver.restore_latest(again.session, tmp_path) is not None
    again.add(30)
    await again.save(4)
    assert {one.problem for one in await verify(tmp_path)} == {None}


@pytest.mark.campaign(short=4)
async def test_kept_checkpoints_can_be_read_while_others_are_deleted(tmp_path: Path, seed: int) -> None:
    """Two savers of one directory, the best checkpoints, removals, prunes and restarts at random."""
    dice, saved = random.Random(seed), dict[str, set[int]]()
    step, number, removed = 0, 0, set[str]()  # the state file lists removed files until a save

    def begin() -> tuple[Run, Saver]:
        run = Run(tmp_path, max_to_keep=2, keep_best=KeepBest("loss", k=2))
        other = Saver(max_to_keep=3)
        other.add_stateful("replay", run.buffer)
        return run, other

    run, other = begin()
    for new in [1, *(dice.randrange(4) for _ in range(30))]:
        run.add(*range(number, number + new))
        number, step = number + new, step + 1
        now = set(range(max(0, number - CAPACITY), number))
        match dice.randrange(6):
            case 0:
                if newest := await latest_checkpoint(tmp_path):
                    await run.saver.close()
                    await other.close()
                    run, other = begin()
                    await run.saver.restore(run.session, newest)
                    number = max(saved[newest], default=-1) + 1
            case 1:
                path = dice.choice([*saved, str(tmp_path / "none-1")])
                await remove_checkpoint(path)
                removed.add(path)
            case 2:
                with contextlib.suppress(NotFoundError):
                    await prune(tmp_path, 4)
            case 3:
                path = await other.save(run.session, tmp_path / "other.ckpt", step)
                saved[str(path)] = now
            case _:
                metrics = {"loss": dice.random()}
                saves = [run.saver.save(run.session, tmp_path / "model.ckpt", step, metrics=metrics)]
                if dice.random() < 0.5:
                    saves.append(other.save(run.session, tmp_path / "other.ckpt", step))
                for path in await asyncio.gather(*saves):
                    saved[str(path)] = now
        kept = [one for one in await verify(tmp_path) if one.path not in removed]
        assert {one.problem for one in kept} <= {None}
        for one in kept:
            assert await contents(one.path) == saved[str(one.path)]
        assert {name for name in run.shared() if name not in run.manifests()} == set()
    await run.saver.close()
    await other.close()
