"""Waiting for checkpoints, and looking after them."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asyncmon import testing
from asyncmon.checkpoint import (
    Saver,
    checkpoint_exists,
    checkpoints_iterator,
    get_checkpoint_mtimes,
    load_checkpoint,
    remove_checkpoint,
    wait_for_new_checkpoint,
)
from asyncmon.checkpoint.management import restore_newest
from asyncmon.system import clock

DATA = Path(__file__).parent / "data"


@pytest.mark.asyncio
async def test_exists_mtimes_remove_ck_5(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    saver = Saver()
    path = await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    assert path is not None
    os.utime(f"{path}.json", (100, 100))
    assert await checkpoint_exists(path)
    assert not await checkpoint_exists(tmp_path / "m")
    assert not await checkpoint_exists(tmp_path / "nowhere" / "m")
    assert await get_checkpoint_mtimes([path, tmp_path / "m-2"]) == [100]
    async with await load_checkpoint(path):
        await remove_checkpoint(path)
        assert "is being read, and stays" in caplog.text
        assert await checkpoint_exists(path)
    await remove_checkpoint(path)
    assert not await checkpoint_exists(path)
    await remove_checkpoint(path)
    assert f"There is no checkpoint {path} to remove." in caplog.text
    await saver.close()


@pytest.mark.asyncio
async def test_of_tensorflow_ck_5(tmp_path: Path, names_in: Callable[[Path], set[str]]) -> None:
    for path in DATA.glob("*.ckpt*"):
        shutil.copy(path, tmp_path)
    assert await checkpoint_exists(tmp_path / "sharded.ckpt")
    assert len(await get_checkpoint_mtimes([tmp_path / "sharded.ckpt"])) == 1
    before = names_in(tmp_path)
    await remove_checkpoint(tmp_path / "sharded.ckpt")
    assert {name for name in before if not name.startswith("sharded")} == names_in(tmp_path)


def test_wait_for_new_checkpoint_ck_7(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> list[Any]:
        found: list[Any] = [await wait_for_new_checkpoint(tmp_path, timeout=2.5), clock.monotonic()]
        waiting = asyncio.create_task(wait_for_new_checkpoint(tmp_path, seconds_to_sleep=10))
        await asyncio.sleep(1)
        path = await Saver().save(make_session(a=1.0), tmp_path / "m", 1)
        found += [await waiting == path, clock.monotonic()]
        found += [await wait_for_new_checkpoint(tmp_path, path, timeout=0)]
        return found

    assert testing.run(main()) == [None, 2.5, True, 12.5, None]
    assert f"Waiting for new checkpoint at {tmp_path}" in caplog.text
    assert f"Found new checkpoint at {tmp_path / 'm-1'}" in caplog.text


def test_a_damaged_checkpoint_is_mentioned_once_while_waiting(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        await Saver().save(make_session(a=1.0), tmp_path / "m", 1)
        (tmp_path / "m-1.safetensors").write_bytes(b"")
        assert await wait_for_new_checkpoint(tmp_path, timeout=5) is None

    testing.run(main())
    assert len([record for record in caplog.records if "Skipping" in record.getMessage()]) == 1


def test_the_iterator_yields_each_new_latest_one_ck_6(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """CK-6: 1 then 3, for 2 was overtaken; the interval includes the consumer's own time."""
    caplog.set_level(logging.INFO)

    async def main() -> list[tuple[str, float]]:
        saver = Saver()
        seen: list[tuple[str, float]] = []
        await saver.save(make_session(a=1.0), tmp_path / "m", 1)
        async for path in checkpoints_iterator(tmp_path, min_interval_secs=5, timeout=3):
            seen.append((path[-1], clock.monotonic()))
            await asyncio.sleep(2)
            if len(seen) == 1:
                await saver.save(make_session(a=1.0), tmp_path / "m", 2)
                await saver.save(make_session(a=1.0), tmp_path / "m", 3)
        seen.append(("end", clock.monotonic()))
        return seen

    assert testing.run(main()) == [("1", 0), ("3", 5), ("end", 13)]
    assert "Timed-out waiting for a checkpoint (without timeout_fn)." in caplog.text


def test_a_directory_is_looked_at_every_second_ck_6(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    async def main() -> list[tuple[str, float]]:
        saver = Saver()

        async def save() -> None:
            for step, secs in [(1, 2.5), (2, 2.0)]:
                await asyncio.sleep(secs)
                await saver.save(make_session(a=1.0), tmp_path / "m", step)

        saving = asyncio.create_task(save())
        seen = [
            (path[-1], clock.monotonic()) async for path in checkpoints_iterator(tmp_path, timeout=4)
        ]
        await saving
        return seen

    assert testing.run(main()) == [("1", 3), ("2", 5)]


def test_the_timeout_function_decides_ck_6(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> tuple[list[str], list[float]]:
        asked: list[float] = []

        async def enough() -> bool:
            asked.append(clock.monotonic())
            return len(asked) == 3

        saver = Saver()
        await saver.save(make_session(a=1.0), tmp_path / "m", 1)
        paths = [
            path[-1] async for path in checkpoints_iterator(tmp_path, timeout=2, timeout_fn=enough)
        ]
        assert [path[-1] async for path in checkpoints_iterator(tmp_path, timeout_fn=lambda: True)] == [
            "1"
        ]  # asked after each yield, too
        return paths, asked

    assert testing.run(main()) == (["1"], [0, 2, 4])
    assert caplog.text.count("Done. No new checkpoints will be generated.") == 2


class OtherSaver:
    """A saver with what any saver has."""

    def __init__(self) -> None:
        self.restored: list[str] = []
        self.listed: list[str] | None = None

    async def restore(self, sess: Any, path: str) -> None:
        self.restored.append(path)

    async def recover_last_checkpoints(self, paths: list[str]) -> None:
        self.listed = list(paths)


class SaverOfLatest(OtherSaver):
    """A saver that finds the newest checkpoint itself."""

    def __init__(self, found: str | None) -> None:
        super().__init__()
        self.found = found
        self.asked: list[dict[str, Any]] = []

    async def restore_latest(self, sess: Any, directory: str, **more: Any) -> str | None:
        self.asked.append(more)
        return self.found


@pytest.mark.asyncio
@pytest.mark.parametrize("live_step", [None, 1, 2])
async def test_any_saver_restores_the_newest_checkpoint_that_is_newer(
    tmp_path: Path, make_session: Callable[..., Any], live_step: int | None
) -> None:
    saver = Saver()
    paths = [await saver.save(make_session(a=1.0), tmp_path / "m", step) for step in (1, 2)]
    other = OtherSaver()
    assert await restore_newest(other, None, str(tmp_path), live_step) == paths[1]
    assert other.restored == ([] if live_step == 2 else paths[1:])
    assert other.listed == paths


@pytest.mark.asyncio
async def test_a_saver_reads_the_live_step_where_there_is_one(tmp_path: Path) -> None:
    saver = SaverOfLatest(None)
    assert await restore_newest(saver, None, str(tmp_path)) is None
    assert await restore_newest(saver, None, str(tmp_path), 3) is None
    assert saver.asked == [{}, {"live_step": 3}]
    assert saver.restored == []
    assert saver.listed is None


@pytest.mark.asyncio
@pytest.mark.parametrize("has_state", [True, False])
async def test_checkpoints_of_which_none_can_be_restored_are_an_error(
    tmp_path: Path, make_session: Callable[..., Any], has_state: bool
) -> None:
    saver = Saver()
    for step in (1, 2):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
        (tmp_path / f"m-{step}.safetensors").unlink()
    if not has_state:
        (tmp_path / "checkpoint").unlink()
    with pytest.raises(ValueError, match=rf"not a valid checkpoint: {tmp_path / 'm-2'};"):
        await restore_newest(SaverOfLatest(None), None, str(tmp_path))
    if has_state:
        with pytest.raises(ValueError, match=rf"not a valid checkpoint: {tmp_path / 'm-2'};"):
            await restore_newest(OtherSaver(), None, str(tmp_path))
    else:
        assert await restore_newest(OtherSaver(), None, str(tmp_path)) is None
