"""A saver without a var_list covers the variables that the graph has when it is built."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as g
from asyncmon.checkpoint import (
    Saver,
    checkpoint_exists,
    get_checkpoint_state,
    list_variables,
    remove_checkpoint,
)

pytestmark = pytest.mark.asyncio


async def names_saved(saver: Saver, directory: Path) -> set[str]:
    async with g.Session() as session:
        await session.run(g.global_variables_initializer())
        path = await saver.save(session, directory / "m", 1)
    assert path is not None
    return {name for name, _ in await list_variables(path) if not name.startswith("__")}


async def test_variables_added_later_are_not_in_it_sm_11(tmp_path: Path) -> None:
    """SM-11, SA-10."""
    with g.Graph().as_default():
        g.Variable(1.0, name="early")
        saver = Saver()
        g.Variable(2.0, name="late")
        assert await names_saved(saver, tmp_path) == {"early"}


async def test_with_defer_build_variables_are_taken_at_build(tmp_path: Path) -> None:
    with g.Graph().as_default():
        g.Variable(1.0, name="early")
        saver = Saver(defer_build=True)
        g.Variable(2.0, name="late")
        saver.build()
        g.Variable(3.0, name="latest")
        saver.build()
        assert await names_saved(saver, tmp_path) == {"early", "late"}


async def test_a_deferred_saver_is_built_by_its_first_save(tmp_path: Path) -> None:
    with g.Graph().as_default():
        saver = Saver(defer_build=True)
        g.Variable(2.0, name="late")
        assert await names_saved(saver, tmp_path) == {"late"}


async def test_the_generators_state_is_saved_along(tmp_path: Path) -> None:
    with g.Graph().as_default():
        g.Variable(1.0, name="v")
        noise = g.random_normal([3])
        saver = Saver()
        async with g.Session() as session:
            await session.run(g.global_variables_initializer())
            await session.run(noise)
            path = await saver.save(session, tmp_path / "m", 1)
            expected = await session.run(noise)
        async with g.Session() as session:
            await saver.restore(session, path)
            np.testing.assert_array_equal(await session.run(noise), expected)


async def test_a_graph_without_variables_is_refused_sa_9(
    tmp_path: Path, names_in: Callable[[Path], set[str]]
) -> None:
    with g.Graph().as_default():
        empty = Saver(allow_empty=True)  # made before the first op
        async with g.Session() as session:
            await empty.restore(session, str(tmp_path / "m-1"))
        g.constant(1.0)
        with pytest.raises(ValueError, match="No variables to save"):
            Saver()
        deferred = Saver(defer_build=True)
        with pytest.raises(ValueError, match="No variables to save"):
            deferred.build()
        saver = Saver(allow_empty=True)
        async with g.Session() as session:
            assert await saver.save(session, tmp_path / "m", 1) is None
            await saver.restore(session, str(tmp_path / "m-1"))
            assert await saver.restore_latest(session, tmp_path) is None
    assert names_in(tmp_path) == set()


async def test_where_no_graph_is_built_all_of_a_session_is_saved(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    with g.Graph().as_default():
        path = await Saver().save(make_session(a=1.0, b=2.0), tmp_path / "m", 1)
    assert path is not None
    assert {name for name, _ in await list_variables(path)} == {"a", "b"}


@pytest.mark.parametrize(("relative", "written"), [(True, "m-1"), (False, None)])
async def test_paths_in_the_state_file_are_relative_or_not_sa_13(
    tmp_path: Path, make_session: Callable[..., Any], relative: bool, written: str | None
) -> None:
    """SA-13."""
    saver = Saver(save_relative_paths=relative)
    path = await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    state = json.loads((tmp_path / "checkpoint").read_bytes())
    assert state["model_checkpoint_path"] == (written or path)
    assert state["all_model_checkpoint_paths"] == [written or path]
    found = await get_checkpoint_state(tmp_path)
    assert found is not None
    assert found.model_checkpoint_path == path


async def test_a_saver_takes_the_arguments_of_the_original_in_its_order(tmp_path: Path) -> None:
    with g.Graph().as_default():
        v = g.Variable(1.0, name="v")
        noise = g.random_normal([2])
        saver = Saver(
            [v], False, False, 5, 1.0, "s", False, None, None, False, False, 2, True, True, None
        )
        everything = Saver(write_version=1, restore_sequentially=True, filename="model")
        async with g.Session() as sess:
            await sess.run([v.initializer, noise])
            path = await saver.save(sess, tmp_path / "m", 1, "latest", "meta", True, False, True, False)
            assert path is not None
            assert path.endswith("m-00000001")
            assert not (tmp_path / "latest").exists()
            whole = await everything.save(sess, tmp_path / "all", write_meta_graph=False)
            assert whole is not None
    assert await list_variables(whole) == [("v", [])]  # without the random generator's state
    for given in ({"saver_def": b""}, {"builder": object()}):
        with pytest.raises(ValueError, match="saver_def and builder must be None"):
            Saver(allow_empty=True, **given)
    await remove_checkpoint(whole, 2, meta_graph_suffix="meta")
    assert not await checkpoint_exists(whole)


async def test_a_tensor_that_is_no_variable_is_run_for_the_step_sa_1(tmp_path: Path) -> None:
    """SA-1. A step of shape [1] is a number, too."""
    with g.Graph().as_default():
        step = g.Variable([4], name="step")
        saver = Saver()
        async with g.Session() as session:
            await session.run(step.initializer)
            assert await saver.save(session, tmp_path / "m", step + 1) == str(tmp_path / "m-5")
            assert await saver.save(session, tmp_path / "m", g.constant(12)) == str(tmp_path / "m-12")
            assert await saver.save(session, tmp_path / "m", step) == str(tmp_path / "m-4")
