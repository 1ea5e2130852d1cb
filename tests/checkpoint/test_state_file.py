"""The state file, and which checkpoint is the latest."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import (
    CheckpointState,
    Saver,
    generate_checkpoint_state_proto,
    get_checkpoint_state,
    latest_checkpoint,
    update_checkpoint_state,
)

pytestmark = pytest.mark.asyncio

DATA = Path(__file__).parent / "data"


async def test_the_state_file_is_json_with_relative_paths_ck_1(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver()
    for step in (1, 2):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    state = json.loads((tmp_path / "checkpoint").read_bytes())
    assert state["model_checkpoint_path"] == "m-2"
    assert state["all_model_checkpoint_paths"] == ["m-1", "m-2"]
    first, second = state["all_model_checkpoint_timestamps"]
    assert first <= second
    assert state["last_preserved_timestamp"] <= first


async def test_what_is_no_state_is_ignored_with_a_warning_ck_3(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await get_checkpoint_state(tmp_path) is None
    assert await get_checkpoint_state(tmp_path / "nowhere") is None
    for text in [b"", b"{", b"[1]", b'{"model_checkpoint_path": 3}', b"\xff\xfe", b"hello there"]:
        caplog.clear()
        (tmp_path / "checkpoint").write_bytes(text)
        if text == b"":
            with pytest.raises(ValueError, match="Invalid checkpoint state loaded from"):
                await get_checkpoint_state(tmp_path)
        else:
            assert await get_checkpoint_state(tmp_path) is None
            assert "Checkpoint ignored" in caplog.text
    (tmp_path / "checkpoint").write_bytes(b'{"model_checkpoint_path": ""}')
    with pytest.raises(ValueError, match="Invalid checkpoint state loaded from"):
        await get_checkpoint_state(tmp_path)
    os.remove(tmp_path / "checkpoint")
    os.mkdir(tmp_path / "checkpoint")
    assert await get_checkpoint_state(tmp_path) is None


async def test_update_checkpoint_state_ck_4(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await update_checkpoint_state(
        tmp_path, str(tmp_path / "m-2"), [str(tmp_path / "m-1")],
        all_model_checkpoint_timestamps=[1.0, float("inf")], last_preserved_timestamp=0.5,
    )  # fmt: skip
    assert (
        f"{tmp_path / 'm-2'} is not in all_model_checkpoint_paths. Manually adding it." in caplog.text
    )
    assert await get_checkpoint_state(tmp_path) == CheckpointState(
        model_checkpoint_path=str(tmp_path / "m-2"),
        all_model_checkpoint_paths=[str(tmp_path / "m-1"), str(tmp_path / "m-2")],
        all_model_checkpoint_timestamps=[1.0, float("inf")],
        last_preserved_timestamp=0.5,
    )
    await update_checkpoint_state(tmp_path, "m-3", latest_filename="other")
    state = await get_checkpoint_state(tmp_path, "other")
    assert state is not None
    assert state.all_model_checkpoint_paths == [str(tmp_path / "m-3")]
    with pytest.raises(
        RuntimeError, match=r"checkpoint' conflicts with path used for checkpoint state"
    ):
        await update_checkpoint_state(tmp_path, str(tmp_path / "checkpoint"))
    with pytest.raises(ValueError, match="must match checkpoint paths"):
        await update_checkpoint_state(tmp_path, "m", all_model_checkpoint_timestamps=[1.0, 2.0])


async def test_a_state_file_of_tensorflow_is_read(tmp_path: Path) -> None:
    for path in DATA.iterdir():
        shutil.copy(path, tmp_path)
    os.rename(tmp_path / "state.txt", tmp_path / "checkpoint")
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.model_checkpoint_path == str(tmp_path / "sharded.ckpt")
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "sharded.ckpt")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "a\\303\\274\\"b"\n')
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.model_checkpoint_path == str(tmp_path / 'a\u00fc"b')


async def test_without_a_state_file_there_is_no_latest_checkpoint_ck_2(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    assert await latest_checkpoint(tmp_path) is None
    await Saver().save(make_session(a=1.0), tmp_path / "m", 1, write_state=False)
    assert await latest_checkpoint(tmp_path) is None


async def test_a_missing_checkpoint_is_an_error_in_the_log_and_an_older_one_is_taken_ck_2(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    saver = Saver()
    for step in (1, 2):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    (tmp_path / "m-2.json").unlink()
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-1")
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == f"Couldn't match files for checkpoint {tmp_path / 'm-2'}"
    (tmp_path / "m-1.json").unlink()
    assert await latest_checkpoint(tmp_path) is None


async def test_where_all_listed_ones_are_damaged_others_of_the_prefix_are_looked_at(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver(max_to_keep=2)
    await saver.save(make_session(a=0.0), tmp_path / "best", 9)
    await saver.save(make_session(a=0.0), tmp_path / "m", 1, write_state=False)
    await saver.save(make_session(a=0.0), tmp_path / "m", 2, write_state=False)
    for step in (3, 4):
        await saver.save(make_session(a=0.0), tmp_path / "m", step)
        (tmp_path / f"m-{step}.safetensors").write_bytes(b"")
    (tmp_path / "m-0.json").write_bytes(b"mine")
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-2")


async def test_with_a_damaged_state_file_the_newest_of_all_is_taken(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver()
    for step in (1, 2):
        await saver.save(make_session(a=0.0), tmp_path / "m", step)
    for text in [b"{", b"", b"{}", b'{"model_checkpoint_path": "m\\u0000"}']:
        (tmp_path / "checkpoint").write_bytes(text)
        assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-2")
    await saver.close()
    other = Saver()
    assert await other.save(make_session(a=0.0), tmp_path / "m", 3)
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-3")


async def test_a_checkpoint_is_read_again_only_when_its_files_changed(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver()
    await saver.save(make_session(a=np.arange(100)), tmp_path / "m", 1)
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-1")
    data = bytearray((tmp_path / "m-1.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "m-1.safetensors").write_bytes(data)
    assert await latest_checkpoint(tmp_path) is None
    assert await latest_checkpoint(tmp_path) is None
    data[-1] ^= 1
    (tmp_path / "m-1.safetensors").write_bytes(data)
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-1")


async def test_a_state_for_a_directory_has_paths_relative_to_a_relative_one_ck_4(
    tmp_path: Path,
) -> None:
    state = generate_checkpoint_state_proto("runs", "runs/m-2", ["runs/m-1", "/elsewhere/m-0"])
    assert state.model_checkpoint_path == "m-2"
    assert state.all_model_checkpoint_paths == ["m-1", "/elsewhere/m-0", "m-2"]
    absolute = generate_checkpoint_state_proto(tmp_path, "runs/m-2", None, [1.0], 0.5)
    assert absolute == CheckpointState("runs/m-2", ["runs/m-2"], [1.0], 0.5)
    with pytest.raises(ValueError, match="must match checkpoint paths"):
        generate_checkpoint_state_proto("runs", "m-2", None, [1.0, 2.0])
