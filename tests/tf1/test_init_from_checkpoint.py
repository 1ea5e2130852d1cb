"""``tf.train.init_from_checkpoint``: each form of the map, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import asyncmon as am
import asyncmon.tf1 as tf
from asyncmon.errors import NotFoundError
from tests.checkpoint.test_partitioned_variables import model as in_parts
from tests.checkpoint.test_partitioned_variables import save

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def saved(tmp_path: Path) -> str:
    """Save old/a, old/b, old/deep/e, c and text."""
    with tf.Graph().as_default():
        with tf.variable_scope("old"):
            tf.get_variable("a", initializer=[1.0, 2.0])
            tf.get_variable("b", initializer=3.0)
            with tf.variable_scope("deep"):
                tf.get_variable("e", initializer=7.0)
        tf.get_variable("c", initializer=9.0)
        tf.get_variable("text", initializer="x")
        async with tf.Session() as sess:
            await sess.run(tf.global_variables_initializer())
            path = await tf.train.Saver().save(sess, tmp_path / "m")
    assert path is not None
    return path


@pytest.fixture(autouse=True)
def model() -> Any:
    """A graph with new/a, new/b, new/deep/e, c, text and new/made, all -1."""
    with tf.Graph().as_default() as graph:
        with tf.variable_scope("new"):
            tf.get_variable("a", initializer=[-1.0, -1.0])
            tf.get_variable("b", initializer=-1.0)
            with tf.variable_scope("deep"):
                tf.get_variable("e", initializer=-1.0)
            tf.Variable(-1.0, name="made")
        tf.get_variable("c", initializer=-1.0)
        tf.get_variable("text", initializer="")
        yield graph


def variable(name: str) -> Any:
    (found,) = [v for v in tf.global_variables() if v.op.name == name]
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (lambda: {"old/": "new/"}, {"new/a": [1.0, 2.0], "new/b": 3.0, "new/deep/e": 7.0}),
        (lambda: {"old/a": "new/a"}, {"new/a": [1.0, 2.0]}),
        (lambda: {"old/a": variable("new/a"), "c": "c"}, {"new/a": [1.0, 2.0], "c": 9.0}),
        (lambda: [("old/b", "new/b"), ("old/b", "c")], {"new/b": 3.0, "c": 3.0}),
        (lambda: {"old/deep/": "new/deep/", "text": "text"}, {"new/deep/e": 7.0, "text": b"x"}),
        (lambda: {"old/b": variable("new/made")}, {"new/made": 3.0}),
        (lambda: {"old/": "other/"}, {}),
        (dict, {}),
    ],
)
async def test_the_initializers_take_the_values_of_the_checkpoint(
    saved: str, given: Callable[[], Any], expected: dict[str, Any]
) -> None:
    await tf.train.init_from_checkpoint(saved, given())
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for v in tf.global_variables():
            value = await sess.run(v)
            wanted = expected.get(v.op.name, b"" if v.op.name == "text" else -1.0)
            np.testing.assert_array_equal(value, np.broadcast_to(wanted, np.shape(value)))


async def test_the_outermost_scope_is_a_slash(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        tf.get_variable("a", initializer=5.0)
        async with tf.Session() as sess:
            await sess.run(tf.global_variables_initializer())
            await tf.train.Saver().save(sess, tmp_path / "m")
    with tf.Graph().as_default():
        with tf.variable_scope("new"):
            v = tf.get_variable("a", [])
        await tf.train.init_from_checkpoint(tmp_path, {"/": "new/"})  # of a directory the newest
        async with tf.Session():
            await v.initializer.run()
            assert await v.eval() == 5.0
    with tf.Graph().as_default():
        v = tf.get_variable("a", [])
        later = tf.Variable(v + 1.0, name="later")
        await tf.train.init_from_checkpoint(tmp_path, {"/": "/"})
        after = tf.Variable(v + 1.0, name="after")
        async with tf.Session() as sess:
            await sess.run(tf.global_variables_initializer())
            assert await sess.run([v, after, v.initialized_value()]) == [5.0, 6.0, 5.0]
            assert later.graph is v.graph


async def test_a_monitored_session_starts_with_these_values(saved: str) -> None:
    await tf.train.init_from_checkpoint(saved, {"old/": "new/"})
    v = variable("new/b")
    async with tf.train.MonitoredTrainingSession() as sess:
        assert await sess.run(v) == 3.0


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"nope": "new/a"}, ValueError, "Tensor nope .* is not found in .* checkpoint"),
        ({"nope/": "new/"}, ValueError, "Tensor nope/a .* is not found in .* checkpoint"),
        ({"old/b": "new/a"}, ValueError, r"Shape of variable new/a:0 \(\(2,\)\) doesn't match"),
        ({"text": "c"}, ValueError, r"Dtype of variable c:0 \(float32\) doesn't match"),
        ({"old/a": "new/"}, ValueError, "Assignment map with scope only name new/ should map"),
        ({"old": "new"}, ValueError, "there is no such variable. A scope ends with a slash, 'old/'"),
        ({"old/a": ["new/a"]}, ValueError, "not all parts of a variable"),
        ({"old/a": 3}, TypeError, "expected a variable or a name"),
    ],
)
async def test_what_does_not_fit_is_refused_and_nothing_changes(
    saved: str, given: Any, error: type[Exception], message: str
) -> None:
    before = [v.initializer for v in tf.global_variables()]
    with pytest.raises(error, match=message):
        await tf.train.init_from_checkpoint(saved, {"c": "c"} | given)
    assert [v.initializer for v in tf.global_variables()] == before


async def test_a_checkpoint_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        await tf.train.init_from_checkpoint(tmp_path / "none", {"c": "c"})


async def test_initial_values_of_a_variable_in_parts(tmp_path: Path) -> None:
    path, _ = await save(tmp_path, 3)
    async with await am.load_checkpoint(path) as reader:
        expected = await reader.get_tensor("table")
    for target in ("whole", "list", "name", "scope"):
        with tf.Graph().as_default(), tf.variable_scope("new"):
            v, _ = in_parts(2)
            given = {
                "whole": {"table": v}, "list": {"table": list(v)},
                "name": {"table": "new/table"}, "scope": {"/": "new/"},
            }[target]  # fmt: skip
            if target == "scope":
                given = [("table", "new/table")]
            async with tf.Session() as sess:
                await tf.train.init_from_checkpoint(path, given)
                await sess.run(tf.global_variables_initializer())
                np.testing.assert_array_equal(await sess.run(tf.identity(v)), expected)
