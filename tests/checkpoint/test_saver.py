"""Saving through the saver: names, arguments, the list of checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from asyncmon.checkpoint import Saver, get_checkpoint_state, latest_checkpoint, load_variable
from asyncmon.errors import FailedPreconditionError, NotFoundError

pytestmark = pytest.mark.asyncio


async def test_a_save_returns_the_prefix_with_the_step_sa_1(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    """SA-1, SA-2, GS-8."""
    session = make_session(w=np.arange(6.0).reshape(2, 3), global_step=7)
    saver = Saver()
    path = await saver.save(session, tmp_path / "model.ckpt", global_step=7)
    assert path == str(tmp_path / "model.ckpt-7")
    assert names_in(tmp_path) == {"checkpoint", "model.ckpt-7.json", "model.ckpt-7.safetensors"}
    assert await latest_checkpoint(tmp_path) == path

    session.step()
    await saver.restore(session, path)
    np.testing.assert_array_equal(session.state["w"], np.arange(6.0).reshape(2, 3))
    assert session.state["global_step"] == 7
    assert session.released == session.snapshots
    await saver.close()
    manifest = json.loads((tmp_path / "model.ckpt-7.json").read_bytes())
    assert manifest["step"] == 7
    loaded = safetensors.numpy.load_file(tmp_path / manifest["files"][0]["name"])
    np.testing.assert_array_equal(loaded["w"], np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (None, "model.ckpt"),
        (3, "model.ckpt-3"),
        (np.int64(4), "model.ckpt-4"),
        (np.array(5), "model.ckpt-5"),
        (SimpleNamespace(op=SimpleNamespace(name="global_step")), "model.ckpt-9"),
        (SimpleNamespace(name="global_step:0"), "model.ckpt-9"),
        ("global_step", "model.ckpt-9"),
    ],
)
async def test_the_step_is_a_number_or_the_variable_that_has_it_sa_1(
    tmp_path: Path, make_session: Callable[..., Any], step: Any, name: str
) -> None:
    handle = Saver().start_save(make_session(global_step=9), tmp_path / "model.ckpt", step)
    assert await handle == str(tmp_path / name)
    assert handle.path == str(tmp_path / name)
    assert handle.step == 9  # what the state itself says


async def test_steps_are_padded_on_request_sa_1(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    path = await Saver(pad_step_number=True).save(make_session(a=1.0), tmp_path / "m", 12)
    assert path == str(tmp_path / "m-00000012")


async def test_a_step_that_the_session_does_not_have_is_refused(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    with pytest.raises(ValueError, match="no state 'other_step'"):
        await Saver().save(make_session(a=1.0), tmp_path / "m", "other_step")


async def test_argument_errors_sa_8(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    session = make_session(a=1.0)
    saver = Saver()
    with pytest.raises(ValueError, match="'latest_filename' must not contain path components"):
        await saver.save(session, tmp_path / "m", latest_filename="a/b")
    with pytest.raises(ValueError, match="'latest_filename' collides with 'save_path': 'x' and"):
        await saver.save(session, tmp_path / "x", latest_filename="x")
    with pytest.raises(TypeError, match="'sess' must be a Session"):
        await saver.save(object(), tmp_path / "m")
    with pytest.raises(TypeError, match="'sess' must be a Session; None"):
        await saver.save(None, tmp_path / "m")
    with pytest.raises(ValueError, match="not the directory"):
        await saver.save(session, f"{tmp_path}/")


async def test_a_monitored_session_is_accepted_ms_18(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    raw = make_session(a=3.0)
    monitored = SimpleNamespace(raw_session=lambda: raw)
    saver = Saver()
    path = await saver.save(monitored, tmp_path / "m", 1)
    raw.step()
    await saver.restore(monitored, path)
    assert raw.state["a"] == 3.0
    with pytest.raises(RuntimeError, match="no raw session"):
        await saver.save(SimpleNamespace(raw_session=lambda: None), tmp_path / "m", 1)


async def test_nothing_to_save_sa_9(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    with pytest.raises(ValueError, match="No variables to save"):
        await Saver().save(make_session(), tmp_path / "m")
    with pytest.raises(ValueError, match="No variables to save"):
        Saver([])
    assert await Saver(allow_empty=True).save(make_session(), tmp_path / "m") is None
    await Saver([], allow_empty=True).restore(
        make_session(a=1.0), await save_one(tmp_path, make_session)
    )
    assert "m.json" not in names_in(tmp_path)


async def test_what_has_no_value_yet_is_not_left_out_in_silence(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    session = make_session(a=1.0)
    session.state_spec = lambda: dict.fromkeys(["a", "b", "c", "__random__"])
    with pytest.raises(FailedPreconditionError, match="Attempting to use uninitialized value b, c: "):
        await Saver().save(session, tmp_path / "m", 1)
    with pytest.raises(FailedPreconditionError, match="uninitialized value b: "):
        await Saver(["a", "b"]).save(session, tmp_path / "m", 1)
    assert session.released == session.snapshots
    assert await Saver(["a"]).save(session, tmp_path / "m", 1)


async def save_one(directory: Path, make_session: Callable[..., Any]) -> str:
    path = await Saver().save(make_session(a=2.0), directory / "one")
    assert path is not None
    return path


async def test_var_list_selects_and_renames_sa_10(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    session = make_session(a=1.0, b=2.0, c=3.0)
    saver = Saver({"alpha": SimpleNamespace(op=SimpleNamespace(name="a")), "beta": "b"})
    path = await saver.save(session, tmp_path / "m", 1)
    assert await load_variable(str(path), "alpha") == 1.0
    session.step()
    await saver.restore(session, path)
    assert {name: float(value) for name, value in session.state.items()} == {"a": 1, "b": 2, "c": 4}
    assert await Saver(["c"]).save(session, tmp_path / "c", 1)
    with pytest.raises(ValueError, match="The same saveable will be restored with two names: b"):
        Saver({"x": "b", "y": "b"})
    with pytest.raises(ValueError, match="At least two variables have the same name: b"):
        Saver(["b", "b:0"])
    with pytest.raises(TypeError, match="not the string 'abc'"):
        Saver("abc")
    with pytest.raises(TypeError, match="3 of type int is no variable"):
        Saver([3])
    with pytest.raises(Exception, match="var_list names 'z', which the session does not have"):
        await Saver(["a", "z"]).save(session, tmp_path / "m", 2)


async def test_an_unknown_name_in_a_list_is_answered_with_twenty_known_ones(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    session = make_session(**{f"v{number}": 1.0 for number in range(10, 40)})
    with pytest.raises(NotFoundError, match=r"it has: 'v10', .*, 'v29'\.$"):
        await Saver(["z"]).save(session, tmp_path / "m")


async def test_write_state_and_latest_filename_sa_12(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    saver = Saver(max_to_keep=1)
    session = make_session(a=1.0)
    await saver.save(session, tmp_path / "m", 1, write_state=False)
    await saver.save(session, tmp_path / "m", 2, write_state=False)
    assert saver.last_checkpoints == []
    assert "checkpoint" not in names_in(tmp_path)
    await saver.save(session, tmp_path / "m", 3, latest_filename="other")
    assert await latest_checkpoint(tmp_path) is None
    assert await latest_checkpoint(tmp_path, "other") == str(tmp_path / "m-3")


async def test_a_directory_can_be_moved_sa_13(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    """SA-13, MT-18: paths in the state file are relative to it."""
    saver = Saver()
    await saver.save(make_session(a=5.0), tmp_path / "before" / "m", 1)
    await saver.close()
    os.rename(tmp_path / "before", tmp_path / "after")
    session = make_session(a=0.0)
    assert await Saver().restore_latest(session, tmp_path / "after") == str(tmp_path / "after" / "m-1")
    assert session.state["a"] == 5.0


async def test_relative_paths_stay_relative_sa_13(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saver = Saver()
    assert await saver.save(make_session(a=1.0), "run/m", 1) == "run/m-1"
    assert await saver.save(make_session(a=1.0), "m", 2) == "m-2"
    assert await saver.save(make_session(a=1.0), "m", 2) == "m-2"
    assert await latest_checkpoint("run") == "run/m-1"
    assert await latest_checkpoint(".") == "./m-2"
    assert saver.last_checkpoints == ["run/m-1", "m-2"]


async def test_missing_directories_are_made_sa_14(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    path = await Saver().save(make_session(a=1.0), tmp_path / "x" / "y" / "m", 1)
    assert await latest_checkpoint(tmp_path / "x" / "y") == path


async def test_saving_the_same_step_again_replaces_it_whole(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    """SA-3: it moves to the newest place."""
    saver = Saver()
    session = make_session(a=1.0)
    for step in (1, 2):
        await saver.save(session, tmp_path / "m", step)
    for value in (2.0, 3.0, 4.0):
        session.step()
        path = await saver.save(session, tmp_path / "m", 1)
        assert await load_variable(str(path), "a") == value
        assert len(names_in(tmp_path)) == 5
    assert saver.last_checkpoints == [str(tmp_path / "m-2"), str(tmp_path / "m-1")]
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.model_checkpoint_path == str(tmp_path / "m-1")


async def test_a_sharded_saver_writes_the_same_files(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    session = make_session(**{f"v{number}": np.arange(100.0) for number in range(8)})
    saver = Saver(sharded=True)
    path = await saver.save(session, tmp_path / "m", 1)
    assert names_in(tmp_path) == {"checkpoint", "m-1.json", "m-1.safetensors"}
    session.step()
    await saver.restore(session, path)
    assert all((value == np.arange(100.0)).all() for value in session.state.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"when_busy": "never"}, "'coalesce', 'skip' or 'wait'"),
        ({"max_to_keep": -1}, "max_to_keep"),
    ],
)
async def test_wrong_arguments_are_refused_at_construction(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Saver(**arguments)


async def test_the_program_says_what_it_is(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    session = make_session(a=1.0)
    session.graph = SimpleNamespace(describe=lambda: {"name": "mlp", "layers": 3})
    await Saver().save(session, tmp_path / "m")
    assert json.loads((tmp_path / "m.json").read_bytes())["program"] == {"name": "mlp", "layers": 3}
    del session.graph
    await Saver().save(session, tmp_path / "m")
    program = json.loads((tmp_path / "m.json").read_bytes())["program"]
    assert program["type"].endswith("MemorySession")


@pytest.mark.asyncio
async def test_a_directory_and_a_step_are_a_prefix_as_in_tf1(
    make_session: Callable[..., Any], tmp_path: Path
) -> None:
    session = make_session(w=np.ones(2))
    path = await Saver().save(session, f"{tmp_path}/", global_step=7)
    assert path == f"{tmp_path}/-7"
    assert await latest_checkpoint(tmp_path) == path
    session.state["w"] = np.zeros(2)
    await Saver().restore(session, path)
    assert session.state["w"].tolist() == [1.0, 1.0]
