"""Checkpoints of variables in parts: one name and shape, restored into any number of parts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
import asyncmon.tf1 as tf
from asyncmon import errors

pytestmark = pytest.mark.asyncio

DATA = Path(__file__).parent / "data"
SIZE = 40_000  # of float32: more than a process of its own sends in a message


def model(parts: int | None, size: int = 7, axis: int = 0) -> tuple[Any, Any]:
    """Return a table in parts and a train op with slots."""
    partitioner = None if parts is None else tf.fixed_size_partitioner(parts, axis)
    initializer = tf.random_normal_initializer(seed=1)
    v = tf.get_variable("table", [size, 2], initializer=initializer, partitioner=partitioner)
    return v, tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(v)))


async def save(path: Path, parts: int | None, target: str = "", size: int = 7) -> tuple[str, list[Any]]:
    with tf.Graph().as_default():
        v, step = model(parts, size)
        async with tf.Session(target) as sess:
            await sess.run(tf.global_variables_initializer())
            for _ in range(2):
                await sess.run(step)
            saved = await am.Saver().save(sess, path / "m")
            assert saved is not None
            await sess.run(step)
            return saved, [await sess.run(tf.identity(v))]


async def restored(path: str, parts: int | None, size: int = 7, axis: int = 0) -> Any:
    """Return the value after a step from a checkpoint."""
    with tf.Graph().as_default():
        v, step = model(parts, size, axis)
        async with tf.Session() as sess:
            await am.Saver().restore(sess, path)
            await sess.run(step)
            return await sess.run(tf.identity(v))


@pytest.mark.parametrize("parts", [None, 1, 2, 3])
async def test_any_number_of_parts_is_restored_with_its_slots(
    tmp_path: Path, parts: int | None
) -> None:
    path, (expected,) = await save(tmp_path, parts)
    found = dict(await am.list_variables(path))
    assert found["table"] == found["table/Adam"] == found["table/Adam_1"] == [7, 2]
    assert not [name for name in found if "part_" in name]
    for others in (None, 1, 2, 5, 7):
        np.testing.assert_allclose(await restored(path, others), expected, rtol=1e-6)
    np.testing.assert_allclose(await restored(path, 2, axis=1), expected, rtol=1e-6)


async def test_a_child_process_writes_its_parts(tmp_path: Path) -> None:
    path, (expected,) = await save(tmp_path, 3, "local", SIZE)
    np.testing.assert_allclose(await restored(path, 2, SIZE), expected, rtol=1e-6)
    with tf.Graph().as_default():
        v, _ = model(2, SIZE)
        async with tf.Session("local") as sess:
            await am.Saver().restore(sess, path)
            snapshot = await sess.snapshot()
            np.testing.assert_array_equal(snapshot["table"], await sess.run(tf.identity(v)))


async def test_a_checkpoint_of_tensorflow_is_read_into_parts() -> None:
    with tf.Graph().as_default():
        halves = tf.fixed_size_partitioner(2)
        made = [
            tf.get_variable(n, s, partitioner=halves)
            for n, s in (("embedding", [7, 3]), ("wide", [2, 300]))
        ]
        async with tf.Session() as sess, await am.load_checkpoint(DATA / "partitioned.ckpt") as reader:
            await am.Saver().restore(sess, DATA / "partitioned.ckpt")
            for v in made:
                np.testing.assert_array_equal(
                    await sess.run(tf.identity(v)), await reader.get_tensor(v.name)
                )


async def test_the_forms_of_a_var_list(tmp_path: Path) -> None:
    v, _ = model(2)
    first, second = v
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        expected = await sess.run(tf.identity(v))
        for number, (var_list, name) in enumerate(
            [
                ([v], "table"),
                (list(v), "table"),
                ({"x": v}, "x"),
                ({"y": list(v)}, "y"),
                ([second], "table"),
            ]
        ):
            saver = am.Saver(var_list)
            path = await saver.save(sess, tmp_path / f"m{number}")
            assert path is not None
            assert await am.list_variables(path) == [(name, [7, 2])]
            await sess.run(v.assign(np.zeros((7, 2), np.float32)))
            await saver.restore(sess, path)
            np.testing.assert_array_equal(await sess.run(tf.identity(v)), expected)
    for wrong, text in (
        ([v, first], "Mixing slices and non-slices with the same name: table"),
        ([first, first], "At least two variables have the same name: table"),
        ({"x": v, "y": list(v)}, "The same saveable will be restored with two names"),
    ):
        with pytest.raises(ValueError, match=text):
            am.Saver(wrong)
    with pytest.raises(TypeError, match="from the same variable"):
        am.Saver({"x": [first, tf.get_variable("w", [2])]})
    with tf.Graph().as_default():
        tf.get_variable("table", [2], partitioner=tf.fixed_size_partitioner(2))
        tf.Variable(1.0, name="table")
        with pytest.raises(ValueError, match="Mixing slices and non-slices with the same name: table"):
            am.Saver()


@pytest.mark.parametrize("target", ["", "local"])
async def test_a_dict_of_single_parts_saves_each_alone(tmp_path: Path, target: str) -> None:
    v, _ = model(3, SIZE)
    parts = list(v)
    async with tf.Session(target) as sess:
        await sess.run(tf.global_variables_initializer())
        saver = am.Saver({part.op.name: part for part in parts[:2]})
        path = await saver.save(sess, tmp_path / "m")
        assert path is not None
        assert await am.list_variables(path) == [
            (part.op.name, part.shape.as_list()) for part in parts[:2]
        ]
        before = await sess.run(parts)
        await sess.run(v.assign(np.zeros((SIZE, 2), np.float32)))
        await saver.restore(sess, path)
        after = await sess.run(parts)
        for i in range(3):
            np.testing.assert_array_equal(after[i], before[i] if i < 2 else 0)
        with pytest.raises(errors.NotFoundError, match="table/part_2"):
            await am.Saver({"table/part_2": parts[2]}).restore(sess, path)


async def test_a_snapshot_can_be_loaded_elsewhere_and_is_checked() -> None:
    v, _ = model(2)
    async with tf.Session() as sess:
        with pytest.raises(errors.FailedPreconditionError, match="table"):
            await am.Saver().save(sess, "/nowhere/m")
        await sess.run(tf.global_variables_initializer())
        expected = await sess.run(tf.identity(v))
        with await sess.snapshot() as snapshot, tf.Graph().as_default():
            other, _ = model(3)
            async with tf.Session() as second:
                await second.load(snapshot)
                np.testing.assert_array_equal(await second.run(tf.identity(other)), expected)
                with pytest.raises(errors.InvalidArgumentError, match=r"'table' has shape \(7, 2\)"):
                    await second.load({"table": np.zeros((6, 2), np.float32)})
        spec = sess.state_spec()
        assert spec["table"].shape == (7, 2)
        assert "table/part_0" not in spec


async def test_initial_values_from_a_checkpoint(tmp_path: Path) -> None:
    path, _ = await save(tmp_path, 3)
    async with await am.load_checkpoint(path) as reader:
        expected = await reader.get_tensor("table")
    for target in ("whole", "list", "name", "scope"):
        with tf.Graph().as_default(), tf.variable_scope("new"):
            v, _ = model(2)
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
                await sess.run(v.assign(np.zeros((7, 2), np.float32)))
                await am.init_from_checkpoint(sess, path, given)
                np.testing.assert_array_equal(await sess.run(tf.identity(v)), expected)


async def test_averages_of_parts_are_restored(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        v, step = model(2)
        averages = tf.train.ExponentialMovingAverage(0.5)
        with tf.control_dependencies([step]):
            update = averages.apply()
        async with tf.Session() as sess:
            await sess.run(tf.global_variables_initializer())
            await sess.run(update)
            path = await am.Saver().save(sess, tmp_path / "m")
            expected = np.concatenate(await sess.run([averages.average(part) for part in v]))
    assert path is not None
    with tf.Graph().as_default():
        v, _ = model(3)
        saver = am.Saver(tf.train.ExponentialMovingAverage(0.5).variables_to_restore(list(v)))
        async with tf.Session() as sess:
            await saver.restore(sess, path)
            np.testing.assert_array_equal(await sess.run(tf.identity(v)), expected)


async def test_strings_in_parts(tmp_path: Path) -> None:
    words = np.array([b"a", b"bc", b"def"], object)
    path = ""
    for parts in (2, 3):
        with tf.Graph().as_default():
            partitioner = tf.fixed_size_partitioner(parts)
            v = tf.get_variable("w", [3], tf.string, initializer=words, partitioner=partitioner)
            async with tf.Session() as sess:
                if path:
                    await am.Saver().restore(sess, path)
                else:
                    await sess.run(tf.global_variables_initializer())
                assert (await sess.run(tf.identity(v))).tolist() == words.tolist()
                path = await am.Saver().save(sess, tmp_path / "m") or ""


async def test_any_partitioning_is_restored_into_any_other(tmp_path: Path) -> None:
    choices = random.Random(1)

    def build(shape: list[int]) -> Any:
        axis, count = choices.randrange(len(shape)), choices.randint(1, 12)
        size = choices.randint(1, 200)
        partitioner = choices.choice([
            None,
            tf.fixed_size_partitioner(count, axis),
            tf.variable_axis_size_partitioner(size, axis, max_shards=choices.choice([None, 2])),
            tf.min_max_variable_partitioner(count, axis, size),
        ])  # fmt: skip
        return tf.get_variable("scope/v", shape, partitioner=partitioner)

    for number in range(8):
        shape = [choices.randint(1, 9) for _ in range(choices.randint(1, 3))]
        path, expected = "", np.zeros(0)
        for _ in range(3):
            with tf.Graph().as_default():
                v = build(shape)
                async with tf.Session() as sess:
                    if path:
                        await am.Saver().restore(sess, path)
                        found = await sess.run(tf.identity(v))
                        np.testing.assert_array_equal(found, expected, str(v))
                    else:
                        await sess.run(tf.global_variables_initializer())
                        expected = await sess.run(tf.identity(v))
                    saver = am.Saver()
                    path = await saver.save(sess, tmp_path / f"m{number}") or ""
                    assert await am.list_variables(path) == [("scope/v", shape)]
