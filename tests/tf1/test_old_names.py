"""Old names, and functions of a few ops; compared by hand with TensorFlow 2.15's ``tf.compat.v1``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon import graph

pytestmark = pytest.mark.asyncio


async def value(fetches: Any) -> Any:
    async with tf.Session() as sess:
        await sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return await sess.run(fetches)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float", "float32"), ("double", "float64"), ("int32", "int32"), ("int64", "int64"),
     ("complex64", "complex64"), ("complex128", "complex128")],
)  # fmt: skip
async def test_casts(name: str, dtype: str) -> None:
    cast = getattr(tf, f"to_{name}")
    result = await value(cast([1.5, -2.5]))
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result, np.array([1.5, -2.5]).astype(dtype))
    assert cast.__name__ == f"to_{name}"


async def test_casts_have_tf1s_names() -> None:
    tf.reset_default_graph()
    x = tf.constant(True)
    assert [tf.to_float(x).name, tf.to_int64(x, "mine").name] == ["ToFloat:0", "mine:0"]


async def test_names_before_1_0() -> None:
    x, y = tf.constant([[1.0, 5.0], [3.0, 2.0]]), tf.constant([[2.0, 2.0], [2.0, 4.0]])
    found = await value(
        [
            tf.mul(x, y), tf.sub(x, y), tf.neg(x), tf.pack([x, y], axis=1), tf.unpack(x)[1],
            tf.arg_max(x, 1), tf.arg_min(x, dimension=0, output_type=tf.int32), tf.floor_div(y, x),
            tf.reverse_v2(x, [1]), tf.lin_space(0.0, 1.0, 3),
        ]
    )  # fmt: skip
    a, b = np.array([[1, 5], [3, 2]], "f"), np.array([[2, 2], [2, 4]], "f")
    wanted = [
        a * b, a - b, -a, np.stack([a, b], 1), a[1], a.argmax(1), a.argmin(0).astype("i4"), b // a,
        a[:, ::-1], np.array([0, 0.5, 1], "f"),
    ]  # fmt: skip
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


async def test_variables_by_their_old_names() -> None:
    tf.reset_default_graph()
    v = tf.Variable(1.0)
    w = tf.get_local_variable("w", [], initializer=tf.ones_initializer())
    assert tf.all_variables() == [v]
    async with tf.Session() as sess:
        await sess.run(tf.initialize_variables([v]))
        await sess.run([tf.initialize_all_variables(), tf.initialize_local_variables()])
        await sess.run([tf.tables_initializer(), tf.initialize_all_tables()])
        assert await sess.run([v, w]) == [1.0, 1.0]


async def test_this_is_graph_mode() -> None:
    assert not tf.executing_eagerly()
    tf.disable_v2_behavior()
    tf.disable_eager_execution()
    tf.enable_resource_variables()
    assert tf.__version__ == tf.VERSION
    assert tf.VERSION.split(".")[0] == "1"


async def test_count_nonzero() -> None:
    array = np.array([[0, 1.5, 0], [2, -1, 0]], "f")
    for axis in (None, 0, 1, [0, 1]):
        for keepdims in (None, True):
            found = await value(tf.count_nonzero(array, axis, keepdims))
            axes = tuple(axis) if isinstance(axis, list) else axis
            np.testing.assert_array_equal(found, np.count_nonzero(array, axes, keepdims=bool(keepdims)))
            assert found.dtype == np.int64
    assert (await value(tf.count_nonzero([True, False], dtype=tf.int32))).dtype == np.int32
    assert await value(tf.count_nonzero(["", "a", "b"])) == 2
    assert (await value(tf.count_nonzero(input=array, reduction_indices=[1]))).tolist() == [1, 2]
    with pytest.raises(ValueError, match="both 'input_tensor' and 'input'"):
        tf.count_nonzero(array, input=array)


async def test_scalar_mul() -> None:
    assert (await value(tf.scalar_mul(2, [1.0, 3.0]))).tolist() == [2, 6]
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([0, 3]), tf.constant([5, 1]))
    product = tf.scalar_mul(tf.constant(3.0), slices)
    assert isinstance(product, tf.IndexedSlices)
    assert (await value(tf.convert_to_tensor(product))).tolist() == [[3], [0], [0], [6], [0]]
    with pytest.raises(ValueError, match=r"Only scalar multiply works, got shape \(1,\)"):
        tf.scalar_mul([2.0], [1.0])


async def test_saturate_cast() -> None:
    found = await value(tf.saturate_cast([-5.5, 3.7, 300.0], tf.uint8))
    assert found.tolist() == [0, 3, 255]
    assert (await value(tf.saturate_cast(np.array([2**40, -1]), tf.int32))).tolist() == [2**31 - 1, -1]
    found = await value(tf.saturate_cast(np.array([1e30, -1e30]), tf.int64))
    assert found.tolist() == [2**63 - 1024, -(2**63)]
    found = await value(tf.saturate_cast([1e10, -1e10], tf.int32))
    assert found.tolist() == [2**31 - 128, -(2**31)]  # as TF1: the greatest float32 below 2**31


async def test_other_names_before_1_0() -> None:
    found = await value(
        [
            tf.select([True, False], [1, 2], [3, 4]), tf.inv(tf.constant([2.0, 4.0])),
            tf.concat_v2([[1], [2]], 0),
        ]
    )  # fmt: skip
    assert [one.tolist() for one in found] == [[1, 4], [0.5, 0.25], [1, 2]]


async def test_old_summaries_have_their_tags_as_they_are() -> None:
    tf.reset_default_graph()
    with tf.name_scope("scope"):
        one = tf.scalar_summary("loss (train)", 2.0)
        tf.histogram_summary("h", [1.0, 2.0], name="named")
        tf.image_summary("i", np.zeros([2, 2, 2, 1], "f"), max_images=1)
        tf.audio_summary("a", np.zeros([1, 5], "f"), 8000.0, max_outputs=1)
        two = tf.scalar_summary(["p", "q"], [1.0, 3.0], collections=[])
        other = tf.scalar_summary(b"r", 5, collections=["mine"])
    merged = tf.merge_summary([two, other])
    everything = tf.merge_all_summaries()
    found = [tf.Summary.FromString(x).value for x in await value([one, merged, everything])]
    assert [[v.tag for v in values] for values in found] == [
        ["loss (train)"], ["p", "q", "r"], ["loss (train)", "h", "i/image", "a/audio"]
    ]  # fmt: skip
    assert [v.simple_value for v in found[1]] == [1, 3, 5]
    assert tf.merge_all_summaries("mine") is not None
    assert tf.merge_all_summaries("none") is None
    assert tf.train.SummaryWriter is tf.summary.FileWriter


async def test_names_in_namespaces_are_those_of_the_root() -> None:
    for space, names in {
        tf.math: ["abs", "reduce_sum", "argmax", "add_n"],
        tf.linalg: ["matmul", "eye", "einsum", "tensordot", "global_norm"],
        tf.dtypes: ["float32", "as_dtype", "cast", "saturate_cast", "string"],
        tf.debugging: ["Assert", "check_numerics", "is_finite"],
        tf.manip: ["reshape", "tile", "gather_nd"],
    }.items():
        for name in names:
            assert getattr(space, name) is getattr(tf, name)
    assert tf.math.divide_no_nan is tf.div_no_nan
    assert tf.math.softplus is graph.nn.softplus
    assert tf.random.normal is tf.random_normal
    assert tf.random.shuffle is tf.random_shuffle
    assert tf.train.piecewise_constant_decay is tf.train.piecewise_constant


async def test_a_decay_needs_a_step() -> None:
    with pytest.raises(ValueError, match="global_step is required for cosine_decay_restarts"):
        tf.train.cosine_decay_restarts(0.1, None, 10)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
async def test_division_of_python_2(dtype: Any) -> None:
    x, y = np.array([7, 8, 9], dtype), np.array([2, 3, 4], dtype)
    np.testing.assert_array_equal(await value(tf.div(x, y)), [3, 2, 2])
    assert await value(tf.div(tf.constant(7.0), 2)) == 3.5
