"""Files of a local directory: clean-up, files that are left alone, error messages."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver, latest_checkpoint, load_checkpoint, verify
from asyncmon.checkpoint.locations import join, relative, split
from asyncmon.checkpoint.manifest import Manifest, TensorFile
from asyncmon.checkpoint.os_errors import describe, is_environment
from asyncmon.checkpoint.store import LocalFiles
from asyncmon.checkpoint.tensor_file import file_names, plan
from asyncmon.errors import DataLossError, NotFoundError, PermissionDeniedError, UnknownError
from asyncmon.system.snapshot import HeldArray

pytestmark = pytest.mark.asyncio


async def test_the_next_start_takes_away_what_an_incomplete_save_left(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    """Only that: files that no save of ours was about to place are not touched."""
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    await saver.close()
    for name in ["mine.safetensors", "m-1.1.safetensors", "notes.json", "m-9.safetensors"]:
        (tmp_path / name).write_bytes(b"x")
    journal = Manifest(
        files=(TensorFile("m-1.1.safetensors", 1, ""), TensorFile("m-1.safetensors", 1, ""))
    )
    (tmp_path / ".asyncmon-0123abcd-m-1.json").write_bytes(journal.encode())
    (tmp_path / ".asyncmon-0123abcd-m-3.json").write_bytes(b"half a mani")
    (tmp_path / ".asyncmon-0123abcd-0").write_bytes(b"some data")
    (tmp_path / ".asyncmon-0a1b2c3d-graph.pbtxt.new").write_bytes(b"half a graph")
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


async def test_a_checkpoint_that_is_saved_again_while_it_is_opened_is_opened_again(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    real, loop = LocalFiles.content, asyncio.get_running_loop()

    def read_and_be_overtaken(self: LocalFiles, name: str, begins: bytes = b"") -> bytes:
        data = real(self, name, begins)
        monkeypatch.setattr(LocalFiles, "content", real)
        again = saver.save(make_session(a=2.0), tmp_path / "m", 1)
        asyncio.run_coroutine_threadsafe(again, loop).result()
        return data

    monkeypatch.setattr(LocalFiles, "content", read_and_be_overtaken)
    async with await load_checkpoint(tmp_path / "m-1") as reader:
        assert await reader.get_tensor("a") == 2.0


async def test_only_a_file_that_is_cut_off_or_none_is_damage(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await Saver().save(make_session(a=np.arange(5)), tmp_path / "m", 1)
    async with await load_checkpoint(tmp_path / "m-1") as reader:

        def broken(*_: Any) -> int:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "preadv", broken)
        with pytest.raises(UnknownError, match=r"cannot be read: Input.*EIO\) at '.*m-1.safetensors'"):
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
from asyncmon.checkpoint import Saver
from tests.checkpoint.memory_session import MemorySession
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
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
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
    missing = describe(tmp_path / "x" / "y")
    assert f"(No such file or directory; there is {str(tmp_path)!r})" in missing


async def test_an_error_of_the_network_or_the_process_is_none_of_a_file() -> None:
    for error in (ConnectionResetError(), ConnectionError("gone"), PermissionError(errno.EACCES, "no")):
        assert is_environment(error)
    for code in (errno.EIO, errno.ESTALE, errno.EINTR, errno.EMFILE, errno.ENAMETOOLONG, errno.EPROTO):
        assert is_environment(OSError(code, "no"))
    assert not is_environment(FileNotFoundError(errno.ENOENT, "no"))
    assert not is_environment(OSError("without a number"))


async def test_a_directory_without_checkpoints_is_distinguished_from_a_missing_one(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match="Couldn't find 'checkpoint' file"):
        await load_checkpoint(tmp_path)
    with pytest.raises(NotFoundError, match="There is no checkpoint"):
        await load_checkpoint(tmp_path / "m")


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
    assert plan({}, "m") == []


async def test_each_process_has_a_tensor_file_with_the_largest_elements_first() -> None:
    held: Any = HeldArray("c", np.dtype(np.float64), (4,), 1)
    parts = plan({"a": np.zeros(4, np.int8), "c": held, "b": np.zeros(4)}, "m")
    assert [list(part.arrays) for part in parts] == [["b", "a"], ["c"]]
    assert [part.is_held for part in parts] == [False, True]
