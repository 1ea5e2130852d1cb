"""Restoring: everything or nothing, every problem by name, the newest that verifies."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver, init_from_checkpoint
from asyncmon.checkpoint.restoring import entry_for, name_for
from asyncmon.errors import DataLossError, InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.asyncio


async def saved(directory: Path, make_session: Callable[..., Any], step: int = 1, **state: Any) -> str:
    path = await Saver(max_to_keep=None).save(make_session(**state), directory / "m", step)
    assert path is not None
    return path


async def test_wrong_paths_sa_2(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    session = make_session(a=1.0)
    with pytest.raises(ValueError, match="Can't load save_path when it is None"):
        await Saver().restore(session, None)
    with pytest.raises(
        ValueError, match=r"The passed save_path is not a valid checkpoint: .*/m-1"
    ) as error:
        await Saver().restore(session, tmp_path / "m-1")
    assert "am.latest_checkpoint(directory)" in error.value.__notes__[0]


async def test_restoring_is_logged_sa_2(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = await saved(tmp_path, make_session, a=1.0)
    await Saver().restore(make_session(a=1.0), path)
    assert f"Restoring parameters from {path}" in caplog.text


async def test_every_mismatch_is_named_before_anything_changes_sa_15(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """SA-15, SM-7, KC-16."""
    path = await saved(
        tmp_path, make_session, a=np.zeros(3), b=np.zeros(2), c=np.zeros(2), f=np.float32(0)
    )
    other = {"c": np.ones(2, np.int32), "f": np.ones(())}
    session = make_session(a=np.ones(3), b=np.ones((2, 2)), d=1.0, e=1.0, **other)
    with pytest.raises(NotFoundError) as failed:
        await Saver().restore(session, path)
    text = str(failed.value)
    assert "Restoring from checkpoint failed. This is most likely due to a Variable name" in text
    for problem in [
        "'d' is not in the checkpoint",
        "'e' is not in the checkpoint",
        "'b' has shape [2] in the checkpoint, but the session needs [2, 2]",
        "'c' has dtype float64 in the checkpoint, but the session needs int32",
        "'f' has dtype float32 in the checkpoint, but the session needs float64",
    ]:
        assert problem in text
    assert all((value == 1).all() for value in session.state.values())
    del session.state["d"], session.state["e"]
    with pytest.raises(InvalidArgumentError, match="a mismatch between the current program"):
        await Saver().restore(session, path)


async def test_reshape_sa_15(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    path = await saved(tmp_path, make_session, a=np.arange(6.0))
    session = make_session(a=np.zeros((2, 3)))
    await Saver(reshape=True).restore(session, path)
    np.testing.assert_array_equal(session.state["a"], np.arange(6.0).reshape(2, 3))
    with pytest.raises(InvalidArgumentError, match=r"needs \[7\]"):
        await Saver(reshape=True).restore(make_session(a=np.zeros(7)), path)


async def test_ignore_missing_leaves_the_others_as_they_are(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    path = await saved(tmp_path, make_session, a=5.0)
    session = make_session(a=1.0, b=1.0)
    await Saver().restore(session, path, ignore_missing=True)
    assert (session.state["a"], session.state["b"]) == (5.0, 1.0)


async def test_reserved_state_is_restored_where_it_was_saved(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    old = await saved(tmp_path / "old", make_session, a=5.0)
    new = await saved(tmp_path / "new", make_session, a=6.0, __random_state__=np.arange(2))
    session = make_session(a=1.0, __random_state__=np.array([7, 7]))
    await Saver().restore(session, old)
    assert session.state["__random_state__"].tolist() == [7, 7]
    await Saver().restore(session, new)
    assert session.state["__random_state__"].tolist() == [0, 1]
    await Saver().restore(make_session(a=0.0), new)  # a program that draws no numbers


async def test_entries_that_the_session_does_not_have(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    path = await saved(tmp_path, make_session, a=5.0, b=6.0)
    session = make_session(a=1.0)
    with pytest.raises(AssertionError, match="b"):  # only the session can know, and it does
        await Saver().restore(session, path)
    session.state_spec = lambda: {"a": SimpleNamespace(shape=(), dtype=np.dtype(np.float64))}
    await Saver().restore(session, path)
    assert session.state["a"] == 5.0


async def test_a_session_without_values_says_what_it_can_load(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    path = await saved(tmp_path, make_session, a=np.ones((4, 3)), b=2.0)
    session = make_session()
    session.load = values_of(session)
    float64 = SimpleNamespace(as_numpy_dtype=np.dtype(np.float64))  # as a graph's dtypes are
    session.state_spec = lambda: {
        "a": SimpleNamespace(shape=(None, 3), dtype=float64),
        "b": SimpleNamespace(shape=None, dtype=np.float64),
    }
    await Saver().restore(session, path)
    assert session.state["a"].shape == (4, 3)
    session.state_spec = lambda: {"a": SimpleNamespace(shape=(None, 4), dtype=float64)}
    with pytest.raises(InvalidArgumentError, match=r"needs \[None, 4\]"):
        await Saver().restore(session, path)
    del session.state_spec
    session.state.clear()
    await Saver(["a"]).restore(session, path)
    assert session.state.keys() == {"a"}


def values_of(session: Any) -> Any:
    async def load(values: dict[str, Any]) -> None:
        session.state.update(values)

    return load


async def test_rename_by_name_and_by_scope(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    path = await saved(tmp_path, make_session, **{"old/w": 1.0, "old/deep/w": 2.0, "counter": 3.0})
    session = make_session(**{"net/w": 0.0, "net/deep/w": 0.0, "global_step": 0.0})
    await Saver().restore(session, path, rename={"old/": "net/", "counter": "global_step"})
    assert [float(value) for value in session.state.values()] == [1, 2, 3]
    session = make_session(**{"w": 0.0, "deep/w": 0.0})
    session.state_spec = lambda: {name: session.state[name] for name in session.state}
    await Saver().restore(session, path, rename={"old/": "/"})
    assert [float(value) for value in session.state.values()] == [1, 2]


def checks_of_renaming() -> list[tuple[str, str | None]]:
    rename = {"a/": "x/", "a/b/": "x/y/", "exact": "x/z", "/": "top/"}
    return [
        (name, entry_for(name, rename.items())) for name in ("x/w", "x/y/w", "x/z", "top/w", "other")
    ]


async def test_an_exact_name_goes_before_a_scope_and_a_longer_before_a_shorter() -> None:
    assert checks_of_renaming() == [
        ("x/w", "a/w"), ("x/y/w", "a/b/w"), ("x/z", "exact"), ("top/w", "w"), ("other", None),
    ]  # fmt: skip
    assert name_for("a/b/w", [("a/", "x/"), ("a/b/", "x/y/")]) == "x/y/w"
    assert name_for("q", [("a/", "x/")]) == "q"


async def test_restore_latest_takes_the_newest_that_verifies_cr_2(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """SM-8: each one skipped is logged with the reason."""
    saver = Saver(max_to_keep=None)
    for step in range(1, 6):
        await saver.save(make_session(a=np.full(100, step)), tmp_path / "m", step)
    flip(tmp_path / "m-5.safetensors", -1)
    flip(tmp_path / "m-4.json", 40)
    (tmp_path / "m-3.json").unlink()
    (tmp_path / "m-2.safetensors").unlink()
    session = make_session(a=np.zeros(100, int))
    assert await Saver().restore_latest(session, tmp_path) == str(tmp_path / "m-1")
    assert (session.state["a"] == 1).all()
    for text in [
        "m-5: Checkpoint",
        "'a' in 'm-5.safetensors': checksum",
        "m-4: The manifest",
        "Couldn't match files for checkpoint",
        "lacks a file",
    ]:
        assert text in caplog.text
    with pytest.raises(DataLossError, match=r"'a' in 'm-5\.safetensors'"):
        await Saver().restore(session, tmp_path / "m-5")
    assert (session.state["a"] == 1).all()
    flip(tmp_path / "m-1.safetensors", 8)
    assert await Saver().restore_latest(session, tmp_path) is None
    assert await Saver().restore_latest(session, tmp_path / "nowhere") is None


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"model_checkpoint_path": ""}'])
async def test_a_lost_state_file_does_not_hide_the_checkpoints(
    tmp_path: Path,
    make_session: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    content: bytes | None,
) -> None:
    saver = Saver()
    for step in (1, 2, 3):
        await saver.save(make_session(a=float(step)), tmp_path / "m", step)
    flip(tmp_path / "m-3.safetensors", -1)
    (tmp_path / "checkpoint").unlink()
    if content is not None:
        (tmp_path / "checkpoint").write_bytes(content)
    session = make_session(a=0.0)
    assert await Saver().restore_latest(session, tmp_path) == str(tmp_path / "m-2")
    assert session.state["a"] == 2
    (warning,) = [r for r in caplog.records if "state file" in r.getMessage()]
    assert warning.levelname == "WARNING"
    assert (
        f"3 checkpoints are in the directory, the newest is {tmp_path / 'm-3'}" in warning.getMessage()
    )
    assert (
        "To start from the beginning, remove the checkpoints or use another directory"
        in warning.getMessage()
    )


async def test_a_checkpoint_whose_files_are_gone_is_warned_of_sm_8(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """SM-8: with its path, before an older one is taken."""
    saver = Saver()
    for step in (1, 2):
        await saver.save(make_session(a=float(step)), tmp_path / "m", step)
    for name in ("m-2.json", "m-2.safetensors"):
        (tmp_path / name).unlink()
    assert await Saver().restore_latest(make_session(a=0.0), tmp_path) == str(tmp_path / "m-1")
    (record,) = [r for r in caplog.records if r.levelname in ("WARNING", "ERROR")]
    assert (record.levelname, record.getMessage()) == (
        "WARNING", f"Couldn't match files for checkpoint {tmp_path / 'm-2'}"
    )  # fmt: skip


async def test_restore_latest_does_not_pass_over_a_checkpoint_that_does_not_fit(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """SM-7: another program's checkpoint is a mistake to report, not damage to be skipped."""
    await saved(tmp_path, make_session, a=1.0)
    with pytest.raises(NotFoundError, match="'b' is not in the checkpoint"):
        await Saver().restore_latest(make_session(a=1.0, b=1.0), tmp_path)


async def test_all_damaged_entries_are_named_at_once(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    state = {name: np.arange(10.0) for name in "abcd"}
    path = await saved(tmp_path, make_session, **state)
    manifest = json.loads((tmp_path / "m-1.json").read_bytes())
    for name in "bd":
        flip(tmp_path / "m-1.safetensors", manifest["tensors"][name]["data_offsets"][0])
    flip(tmp_path / "m-1.safetensors", 20)
    with pytest.raises(DataLossError, match=r"the header of .*'b' in .*'d' in "):
        await Saver().restore(make_session(**state), path)


async def test_a_warm_start_takes_what_the_map_covers_ck_9(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    await saved(tmp_path, make_session, **{"enc/w": 1.0, "enc/b": 2.0, "head/w": 3.0})
    session = make_session(**{"model/enc/w": 0.0, "model/enc/b": 0.0, "model/head": 0.0})
    found = await init_from_checkpoint(session, tmp_path, {"enc/": "model/enc/"})
    assert sorted(found) == ["model/enc/b", "model/enc/w"]
    assert [float(value) for value in session.state.values()] == [1, 2, 0]
    head = SimpleNamespace(op=SimpleNamespace(name="model/head"))
    await init_from_checkpoint(session, tmp_path / "m-1", {"head/w": head})
    assert session.state["model/head"] == 3.0
    with pytest.raises(ValueError, match=r"model/head \('gone'\) is not found in"):
        await init_from_checkpoint(session, tmp_path, {"gone": head})
    with pytest.raises(ValueError, match=r"names \['nothing'\]; the session has: 'model/enc/b'"):
        await init_from_checkpoint(session, tmp_path, {"enc/w": "nothing"})
    with pytest.raises(ValueError, match="names no variable of the session"):
        await init_from_checkpoint(session, tmp_path, {"enc/": "other/"})
    assert await init_from_checkpoint(session, tmp_path, {}) == []
    wide = make_session(a=np.zeros(2), b=np.zeros(2, np.int8))
    with pytest.raises(ValueError, match=r"'enc/w' has shape(.|\n)*'enc/b' has dtype"):
        await init_from_checkpoint(wide, tmp_path, {"enc/w": "a", "enc/b": "b"})


async def test_an_entry_may_go_to_several_variables_ck_9(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    path = await saved(tmp_path, make_session, **{"enc/w": 1.0, "b": 5.0})
    session = make_session(x=0.0, y=0.0)
    assert await init_from_checkpoint(session, path, [("enc/w", "x"), ("enc/w", "y")]) == ["x", "y"]
    assert session.state == {"x": 1, "y": 1}
    session = make_session(b=0.0, c=0.0)
    session.state_spec = lambda: dict(session.state)
    await Saver().restore(session, path, rename={"b": "c"})
    assert (session.state["b"], session.state["c"]) == (5, 5)
