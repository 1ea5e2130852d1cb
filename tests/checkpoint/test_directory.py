"""One object per directory: its list, the order of its checkpoints, and how often it is read."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import (
    Saver,
    get_checkpoint_state,
    latest_checkpoint,
    load_checkpoint,
    prune,
    update_checkpoint_state,
)
from asyncmon.checkpoint.directory import Claims, Directory
from asyncmon.hooks import CheckpointSaverHook
from asyncmon.programs import FunctionProgram
from asyncmon.system import clock
from asyncmon.system.files import FileCalls, system_calls
from asyncmon.training import MonitoredTrainingSession

pytestmark = pytest.mark.asyncio

MakeSession = Callable[..., Any]


def counter() -> FunctionProgram:
    program = FunctionProgram({"x": 0.0})

    @program.step
    async def train(state: dict[str, Any]) -> None:
        state["x"] += 1

    return program


def training(directory: str | os.PathLike[str], **options: Any) -> Any:
    return MonitoredTrainingSession(
        checkpoint_dir=directory, program=counter(), save_checkpoint_steps=2, save_summaries_steps=0,
        log_step_count_steps=0, signals=None, **options,
    )  # fmt: skip


def steps(directory: Path) -> list[int]:
    return sorted(int(path.stem.split("-")[1]) for path in directory.glob("*-*.json"))


async def test_one_object_for_all_spellings_of_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("runs")
    os.symlink("runs", "link")
    spellings = ["runs", "./runs/", "link", str(tmp_path / "runs"), tmp_path / "link"]
    assert len({Directory.of(one) for one in spellings}) == 1
    assert Directory.of("s3://bucket/run/") is Directory.of("s3://bucket/run")


async def test_two_savers_of_a_directory_share_its_list(
    tmp_path: Path, make_session: MakeSession
) -> None:
    one, two = Saver(max_to_keep=3), Saver(max_to_keep=3)
    for step in range(6):
        await (one if step % 2 else two).save(make_session(a=1.0), tmp_path / "m", step)
    assert steps(tmp_path) == [3, 4, 5]
    assert one.last_checkpoints == two.last_checkpoints
    saves = (
        saver.save(make_session(a=1.0), tmp_path / "m", 6 + n) for n, saver in enumerate((one, two))
    )
    await asyncio.gather(*saves)
    assert steps(tmp_path) == [5, 6, 7]


async def test_saver_reads_the_list_again_after_another_has_saved(
    tmp_path: Path, make_session: MakeSession
) -> None:
    one, two = Saver(max_to_keep=2), Saver(max_to_keep=2)
    for step, saver in enumerate((one, two, one, two)):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
        await saver.close()
    assert steps(tmp_path) == [2, 3]


async def test_lost_state_file_restores_the_latest_step_whatever_the_clock_said(
    tmp_path: Path, make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was set back a day after step 2; the files have the same or reversed times."""
    start = clock.wall()
    for step in (1, 2, 3, 4):
        monkeypatch.setattr(clock, "wall", lambda step=step: start - (86400 if step > 2 else 0) + step)
        saver = Saver()
        await saver.save(make_session(a=float(step)), tmp_path / "m", step)
        await saver.close()
        os.utime(tmp_path / f"m-{step}.json", (1e9 - step, 1e9 - step))
    (tmp_path / "checkpoint").unlink()
    session = make_session(a=0.0)
    assert await Saver().restore_latest(session, tmp_path) == str(tmp_path / "m-4")
    (tmp_path / "m-4.safetensors").write_bytes(b"")
    assert await Saver().restore_latest(session, tmp_path) == str(tmp_path / "m-3")


async def test_steps_are_compared_as_numbers(tmp_path: Path, make_session: MakeSession) -> None:
    saver = Saver()
    for step in (9, 10, 100):
        await saver.save(make_session(a=float(step)), tmp_path / "m", step)
    (tmp_path / "checkpoint").write_bytes(b"{")
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-100")
    (tmp_path / "m-100.json").unlink()
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-10")


@pytest.mark.parametrize("by", ["function", "hand", "TensorFlow's text"])
async def test_checkpoint_that_the_state_file_names_is_followed(
    tmp_path: Path, make_session: MakeSession, by: str
) -> None:
    """CK-2: a roll-back to step 2, from which the training continues; later ones stay."""
    saver = Saver(max_to_keep=2)
    for step in (1, 2, 3):
        await saver.save(make_session(a=float(step)), tmp_path / "m", step)
    await saver.close()
    if by == "function":
        await update_checkpoint_state(tmp_path, str(tmp_path / "m-2"))
    elif by == "hand":
        state = json.loads((tmp_path / "checkpoint").read_bytes())
        state["model_checkpoint_path"] = "m-2"
        (tmp_path / "checkpoint").write_text(json.dumps(state))
    else:
        text = 'model_checkpoint_path: "m-2"\nall_model_checkpoint_paths: "m-2"\n'
        (tmp_path / "checkpoint").write_text(text)
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-2")
    again, session = Saver(max_to_keep=2), make_session(a=0.0)
    assert await again.restore_latest(session, tmp_path) == str(tmp_path / "m-2")
    assert session.state["a"] == 2.0
    await again.continue_from(tmp_path)
    path = await again.save(session, tmp_path / "m", 4)
    assert await latest_checkpoint(tmp_path) == path
    (tmp_path / "m-4.json").unlink()
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-3"), "the next by its step"


async def test_state_file_of_another_name_is_followed(
    tmp_path: Path, make_session: MakeSession
) -> None:
    saver = Saver()
    for step in (1, 2):
        await saver.save(make_session(a=1.0), tmp_path / "m", step, latest_filename="best")
        await saver.save(make_session(a=1.0), tmp_path / "n", step + 5)
    assert await latest_checkpoint(tmp_path, "best") == str(tmp_path / "m-2")
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "n-7")


async def test_state_file_holds_the_facts_of_tensorflow_alone(
    tmp_path: Path, make_session: MakeSession
) -> None:
    await Saver().save(make_session(a=1.0), tmp_path / "m", 1)
    assert json.loads((tmp_path / "checkpoint").read_bytes()).keys() == {
        "model_checkpoint_path", "all_model_checkpoint_paths", "all_model_checkpoint_timestamps",
        "last_preserved_timestamp",
    }  # fmt: skip


class Counting(FileCalls):
    """The system's calls. Attributes: the names of the files that were opened to be read."""

    def __init__(self) -> None:
        self.read_names: list[str] = []

    def open_regular(self, path: Path) -> int:
        self.read_names.append(path.name)
        return super().open_regular(path)


async def test_resume_reads_each_file_once(tmp_path: Path) -> None:
    async with training(tmp_path) as sess:
        for _ in range(8):
            await sess.run("train")
    names = sorted(name for name in os.listdir(tmp_path) if name.endswith(".json"))
    before, calls = system_calls.get(), Counting()
    system_calls.set(calls)
    try:
        async with training(tmp_path, saver=Saver(max_to_keep=None, calls=calls)) as sess:
            assert sess.global_step == 8
            await sess.run("train")
            await sess.run("train")
            read = list(calls.read_names)
    finally:
        system_calls.set(before)
    assert read.count("checkpoint") == 1
    assert sorted(name for name in read if name in names) == names
    assert read.count("model.ckpt-8.safetensors") == 1


@pytest.mark.parametrize("moved", ["chdir", "link"])
async def test_open_session_keeps_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        directory.mkdir()
    monkeypatch.chdir(one)
    given = "run"
    if moved == "link":
        given = str(tmp_path / "link")
        os.symlink(one, given)
    async with training(given) as sess:
        await sess.run("train")
        if moved == "chdir":
            os.chdir(other)
        else:
            os.unlink(given)
            os.symlink(other, given)
        for _ in range(4):
            await sess.run("train")
        path = await sess.save()
    directory = one / "run" if moved == "chdir" else one
    assert path == str(directory / "model.ckpt-5")
    assert steps(directory) == [0, 2, 4, 5]
    assert os.listdir(other) == []
    assert await latest_checkpoint(directory) == path
    claims = Claims(None)
    claims.claim(Directory.of(directory), asyncio.get_running_loop())  # it is free again
    claims.release()


async def test_ordered_save_keeps_its_directory(
    tmp_path: Path, make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saver = Saver()
    handle = saver.start_save(make_session(a=1.0), "m", 1)
    (tmp_path / "other").mkdir()
    os.chdir("other")
    assert await handle == "m-1"
    assert steps(tmp_path) == [1]
    assert os.listdir(tmp_path / "other") == []


@pytest.mark.parametrize("method", ["begin", "after_create_session", "end"])
async def test_directory_is_free_after_an_error(tmp_path: Path, method: str) -> None:
    class Failing(CheckpointSaverHook):
        pass

    async def fail(self: Any, *_: Any) -> None:
        await getattr(CheckpointSaverHook, method)(self, *_)
        raise ValueError("of a hook")

    setattr(Failing, method, fail)
    hook = Failing(tmp_path, save_steps=1, saver=Saver())
    session = MonitoredTrainingSession(program=counter(), hooks=[hook], signals=None)
    with pytest.raises(ValueError, match="of a hook"):
        async with session as sess:
            await sess.run("train")
    async with training(tmp_path) as sess:
        await sess.run("train")
    assert await latest_checkpoint(tmp_path) is not None


async def test_load_checkpoint_beside_retention_opens_a_newer_one(
    tmp_path: Path, make_session: MakeSession
) -> None:
    """Another process replaces the checkpoint between the reading of its name and of its files."""
    saver, loop = Saver(max_to_keep=1), asyncio.get_running_loop()
    await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    left = [2, 3, 4]

    class Overtaken(FileCalls):
        def content(self, path: Path, begins: bytes = b"") -> bytes:
            if path.suffix == ".json" and left:
                step = left.pop(0)
                save = saver.save(make_session(a=float(step)), tmp_path / "m", step)
                asyncio.run_coroutine_threadsafe(save, loop).result()
            return super().content(path, begins)

    before = system_calls.get()
    system_calls.set(Overtaken())
    try:
        async with await load_checkpoint(tmp_path) as reader:
            assert await reader.get_tensor("a") == 4.0
        left.extend([5, 6])
        assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-6")
        left.extend([7, 8])
        session = make_session(a=np.float64(0))
        assert await Saver().restore_latest(session, tmp_path) == str(tmp_path / "m-8")
        assert session.state["a"] == 8.0
    finally:
        system_calls.set(before)
        await saver.close()


async def test_prune_beside_a_saver_of_this_process_leaves_one_list(
    tmp_path: Path, make_session: MakeSession
) -> None:
    saver = Saver(max_to_keep=4)
    for step in range(4):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    await prune(tmp_path, 2)
    assert saver.last_checkpoints == [str(tmp_path / f"m-{step}") for step in (2, 3)]
    await saver.save(make_session(a=1.0), tmp_path / "m", 4)
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert list(state.all_model_checkpoint_paths) == saver.last_checkpoints
    assert steps(tmp_path) == [2, 3, 4]
    await saver.close()


async def test_prune_keeps_the_checkpoint_that_the_state_file_names(
    tmp_path: Path, make_session: MakeSession
) -> None:
    saver = Saver()
    for step in range(4):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    await saver.close()
    await update_checkpoint_state(tmp_path, str(tmp_path / "m-1"))  # rolled back
    await prune(tmp_path, 1)
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-1")
    assert steps(tmp_path) == [1]
