"""Corners of the local store: what is cleaned, what is left alone, what is said."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver, latest_checkpoint, load_checkpoint, verify
from asyncmon.checkpoint import throttle as threads
from asyncmon.checkpoint.local_files import LocalFiles
from asyncmon.checkpoint.locations import join, relative, split
from asyncmon.checkpoint.manifest import Manifest, TensorFile
from asyncmon.checkpoint.os_errors import describe
from asyncmon.checkpoint.tensor_file import file_names, plan
from asyncmon.checkpoint.throttle import Control, Pace
from asyncmon.errors import CancelledError, DataLossError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.asyncio


async def test_the_next_start_takes_away_what_an_incomplete_save_left(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    """Only that: files that no save of ours was about to place are not touched."""
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    await saver.close()
    for name in ["mine.safetensors", "m-2.safetensors", "notes.json", "m-9.safetensors"]:
        (tmp_path / name).write_bytes(b"x")
    journal = Manifest(
        files=(TensorFile("m-2.safetensors", 1, ""), TensorFile("m-1.safetensors", 1, ""))
    )
    (tmp_path / ".asyncmon-0123abcd-m-2.json").write_bytes(journal.encode())
    (tmp_path / ".asyncmon-0123abcd-m-3.json").write_bytes(b"half a mani")
    (tmp_path / ".asyncmon-0123abcd-0").write_bytes(b"some data")
    (tmp_path / ".graph.pbtxt.0a1b2c3d").write_bytes(b"half a graph")
    await saver.claim(tmp_path)
    await saver.claim(tmp_path)
    assert names_in(tmp_path) == {
        "checkpoint", "m-1.json", "m-1.safetensors",
        "mine.safetensors", "notes.json", "m-9.safetensors",
    }  # fmt: skip
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-1")
    await saver.close()


async def test_what_a_reader_has_open_is_taken_away_at_a_later_start(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    await saver.close()
    async with await load_checkpoint(tmp_path / "m-1"):
        os.rename(tmp_path / "m-1.json", tmp_path / ".asyncmon-0123abcd-m-1.json")
        await saver.claim(tmp_path)
        assert "m-1.safetensors" in names_in(tmp_path)
        await saver.close()
    await saver.claim(tmp_path)
    assert names_in(tmp_path) == {"checkpoint"}
    await saver.close()


async def test_a_name_that_is_taken_is_never_overwritten(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    (tmp_path / "m-1.safetensors").write_bytes(b"mine")
    path = await Saver().save(make_session(a=1.0), tmp_path / "m", 1)
    assert (tmp_path / "m-1.safetensors").read_bytes() == b"mine"
    async with await load_checkpoint(str(path)) as reader:
        assert reader.facts.file_names == ("m-1.json", "m-1.1.safetensors")


async def test_a_damaged_manifest_of_the_same_name_is_replaced(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    (tmp_path / "m-1.json").write_bytes(b"{}")
    assert await saver.save(make_session(a=2.0), tmp_path / "m", 1)
    (found,) = await verify(tmp_path / "m-1")
    assert found.problem is None


async def test_a_checkpoint_that_is_saved_again_while_it_is_opened_is_opened_anew(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    real = LocalFiles.read

    async def read_and_be_overtaken(self: LocalFiles, name: str) -> bytes:
        data = await real(self, name)
        monkeypatch.setattr(LocalFiles, "read", real)
        await saver.save(make_session(a=2.0), tmp_path / "m", 1)
        return data

    monkeypatch.setattr(LocalFiles, "read", read_and_be_overtaken)
    async with await load_checkpoint(tmp_path / "m-1") as reader:
        assert await reader.get_tensor("a") == 2.0


async def test_what_cannot_be_read_is_damage(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await Saver().save(make_session(a=np.arange(5)), tmp_path / "m", 1)
    async with await load_checkpoint(tmp_path / "m-1") as reader:

        def broken(*_: Any) -> int:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "preadv", broken)
        with pytest.raises(DataLossError, match=r"cannot be read: .*Input/output error"):
            await reader.get_tensor("a")
        monkeypatch.setattr(os, "preadv", lambda *_: 0)  # the file was cut off while it is open
        with pytest.raises(DataLossError, match="'a' in"):
            await reader.get_tensor("a")
    os.mkdir(tmp_path / "n-1.json")
    with pytest.raises(DataLossError, match="cannot be read"):
        await load_checkpoint(tmp_path / "n-1")
    (tmp_path / "file").write_bytes(b"")
    assert await latest_checkpoint(tmp_path / "file") is None


READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 99
exec "$2" -c "$3" "$1"
"""

SAVE = """
import asyncio, sys
from conftest import MemorySession
from asyncmon.checkpoint import Saver
try:
    asyncio.run(Saver().save(MemorySession(a=2.0), sys.argv[1] + "/m", 2))
except Exception as error:
    print(type(error).__name__, error)
"""


async def test_a_read_only_file_system_is_named(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    await saver.close()
    before = names_in(tmp_path)
    try:
        process = await asyncio.create_subprocess_exec(
            "unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(tmp_path), sys.executable, SAVE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    out, err = await process.communicate()
    if process.returncode:
        pytest.skip(f"a read-only file system cannot be made here: {err.decode()}")
    text = out.decode()
    assert text.startswith(PermissionDeniedError.__name__)
    assert "(EROFS)" in text
    assert "on a read-only file system" in text
    assert names_in(tmp_path) == before
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-1")


async def test_what_is_found_is_described(tmp_path: Path) -> None:
    assert "mode 0" in describe(tmp_path)
    assert f"there is {str(tmp_path)!r}" in describe(tmp_path / "x" / "y")


async def test_paths_and_urls() -> None:
    assert split("a/b") == ("a", "b")
    assert split("b") == (".", "b")
    assert split("s3://bucket/a/b") == ("s3://bucket/a", "b")
    assert join("s3://b/a/", "m") == "s3://b/a/m"
    assert join("d", "/abs/m") == "/abs/m"
    assert join("d", "s3://b/m") == "s3://b/m"
    assert relative("s3://b/a", "s3://b/a/m-1") == "m-1"
    assert relative("s3://b/a", "s3://c/a/m-1") == "s3://c/a/m-1"
    assert relative("/d", "m") == "m"
    assert relative("d", "d/m") == "m"
    assert relative("/d", "/e/m") == "../e/m"


async def test_tensor_files_have_names_that_are_free() -> None:
    assert file_names("m", 1, []) == ["m.safetensors"]
    assert file_names("m", 1, ["m.safetensors", "m.1.safetensors"]) == ["m.2.safetensors"]
    assert file_names("m", 2, ["m-00002-of-00002.safetensors"])[0] == "m.1-00001-of-00002.safetensors"
    assert plan({}, "m", 10) == []
    parts = plan({"a": np.zeros(4, np.int8), "b": np.zeros(4), "c": np.zeros(4)}, "m", 40)
    assert [list(part.arrays) for part in parts] == [["b"], ["c", "a"]]


@pytest.mark.parametrize("writers", [1, 2])
async def test_one_failing_call_stops_the_others(monkeypatch: pytest.MonkeyPatch, writers: int) -> None:
    monkeypatch.setattr(threads, "_WRITERS", writers)
    control = Control()
    made: list[int] = []

    def fail() -> None:
        raise ValueError("first")

    def wait_for_stop() -> None:
        control.pause(10)
        control.check()

    calls: list[Callable[[], None]] = [fail, wait_for_stop, lambda: made.append(2)]
    with pytest.raises(ValueError, match="first"):
        await asyncio.to_thread(threads.each, calls, control)
    with pytest.raises(CancelledError, match="The save was stopped"):
        await asyncio.to_thread(threads.each, [lambda: made.append(3)], stopped())
    assert made == []
    threads.each([], Control())
    calls = [partial(made.append, number) for number in range(4)]
    await asyncio.to_thread(threads.each, calls, Control())
    assert sorted(made) == [0, 1, 2, 3]


def stopped() -> Control:
    control = Control()
    control.stop()
    return control


async def test_a_thread_in_the_background_pauses_where_others_want_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = {"wall": 0.0, "processor": 0.0}
    monkeypatch.setattr(threads, "_RESTS_ALONE", 0.5)
    monkeypatch.setattr(threads, "_STRETCH", 4 << 20)
    monkeypatch.setattr(time, "perf_counter", lambda: clocks["wall"])
    monkeypatch.setattr(time, "thread_time", lambda: clocks["processor"])
    pauses: list[float] = []

    class Watched(Control):
        def pause(self, seconds: float) -> None:
            pauses.append(seconds)
            clocks["wall"] += seconds
            super().pause(0)

    pace = Pace(Watched())
    for wall, processor in [(0.01, 0.01), (0.04, 0.01), (0.01, 0.01)]:
        for _ in range(4):
            clocks["wall"] += wall / 4
            clocks["processor"] += processor / 4
            pace.did(1 << 20)
    assert pauses == pytest.approx([0.005, 0.04, 0.005])


async def test_it_pauses_less_where_the_save_would_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(threads, "_RESTS_ALONE", 3.0)
    monkeypatch.setattr(threads, "_WRITERS", 1)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(time, "thread_time", lambda: now)
    pauses: list[float] = []

    class Watched(Control):
        def pause(self, seconds: float) -> None:
            nonlocal now
            pauses.append(seconds)
            now += seconds

    for due, expected in [(100.0, [3.0, 3.0, 3.0, 3.0]), (8.0, [1.0, 1.0, 1.0, 1.0]), (2.0, [0.0] * 4)]:
        now = 0.0
        pauses.clear()
        control = Watched(due)
        control.left = 4 * threads._STRETCH
        pace = Pace(control)
        for _ in range(4):
            now += 1.0
            pace.did(threads._STRETCH)
        assert pauses == pytest.approx(expected)


async def test_a_pause_ends_when_the_save_is_unthrottled_or_stopped() -> None:
    for order in (Control.unthrottle, Control.stop):
        control = Control()
        pausing = asyncio.create_task(asyncio.to_thread(control.pause, 3600))
        order(control)
        await pausing
    with pytest.raises(CancelledError, match="The save was stopped"):
        control.check()
