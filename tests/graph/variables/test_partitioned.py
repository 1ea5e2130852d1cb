"""Variables in parts: names, shapes, reuse, values and refusals, as TF1 has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

halves = tf.fixed_size_partitioner(2)


async def values(*fetches: Any) -> list[Any]:
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        found: list[Any] = await sess.run(list(fetches))
        return found


def test_the_parts_are_variables() -> None:
    v = tf.get_variable("v", [5, 3], partitioner=halves)
    assert isinstance(v, tf.PartitionedVariable)
    assert (v.name, v.save_name, v.dtype, len(v)) == ("v", "v", tf.float32, 2)
    assert v.shape == v.get_shape() == tf.TensorShape([5, 3])
    assert [(part.name, part.shape.as_list()) for part in v] == [
        ("v/part_0:0", [3, 3]), ("v/part_1:0", [2, 3])
    ]  # fmt: skip
    assert tf.global_variables() == tf.trainable_variables() == list(v) == v._get_variable_list()
    assert (v._get_partitions(), v._partition_axes()) == ([2, 1], [0])
    info = list(v)[1]._get_save_slice_info()
    assert (info.full_name, info.full_shape, info.var_offset, info.var_shape, info.spec) == (
        "v", [5, 3], [3, 0], [2, 3], "5 3 3,2:0,3"
    )  # fmt: skip
    assert repr(v) == "<PartitionedVariable 'v' shape=(5, 3) dtype=float32 partitions=[2, 1]>"


@pytest.mark.parametrize(
    ("shape", "partitions", "sizes"),
    [
        ([7], [3], [[3], [2], [2]]),
        ([2, 5], [1, 2], [[2, 3], [2, 2]]),
        ([4, 2], [1, 1], [[4, 2]]),
        ([2, 2], [2, 1], [[1, 2], [1, 2]]),
    ],
)
def test_the_first_parts_are_larger(shape: list[int], partitions: list[int], sizes: Any) -> None:
    v = tf.get_variable("v", shape, partitioner=lambda **_: partitions)
    assert [part.shape.as_list() for part in v] == sizes


@pytest.mark.asyncio
async def test_a_whole_value_is_the_concatenation() -> None:
    whole = np.arange(10, dtype=np.float32).reshape(2, 5)
    v = tf.get_variable("v", partitioner=tf.fixed_size_partitioner(2, axis=1), initializer=whole)
    first, second = tf.convert_to_tensor(v), v.as_tensor()
    assert (first.name, second.name, first.op.type) == ("v:0", "v_1:0", "Identity")
    product = tf.matmul(v, v, transpose_b=True)
    sums = tf.constant(1.0) + v
    found = await values(first, second, product, sums, *v)
    np.testing.assert_array_equal(found[0], whole)
    np.testing.assert_array_equal(found[1], whole)
    np.testing.assert_allclose(found[2], whole @ whole.T)
    np.testing.assert_array_equal(found[3], whole + 1)
    np.testing.assert_array_equal(np.concatenate(found[4:], 1), whole)


@pytest.mark.asyncio
async def test_assignments_take_a_whole_value_or_parts() -> None:
    v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), partitioner=halves)
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), partitioner=halves)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        new = await sess.run(v.assign(np.array([1.0, 2.0, 3.0], np.float32)))
        assert [part.tolist() for part in new] == [[1, 2], [3]]
        await sess.run(v.assign_add([[10.0, 10.0], [20.0]], read_value=False))
        await sess.run(v.assign_sub(w))
        assert (await sess.run(v.as_tensor())).tolist() == [10, 11, 22]
        ops = v.assign(w, read_value=False)
        assert [type(op) for op in ops] == [tf.Operation, tf.Operation]
    with pytest.raises(ValueError, match="has 2 parts, got 1 values"):
        v.assign([[1.0]])


@pytest.mark.asyncio
async def test_control_dependencies_order_the_value_of_an_input() -> None:
    v = tf.get_variable("v", [3], initializer=tf.ones_initializer(), partitioner=halves)
    with tf.control_dependencies(v.assign_add(np.ones(3, np.float32))):
        after = tf.identity(v) * 1.0
    assert (await values(after))[0].tolist() == [2, 2, 2]


@pytest.mark.asyncio
async def test_initializers_get_the_place_of_a_part() -> None:
    seen = []

    def initializer(shape: Any, dtype: Any, partition_info: Any) -> Any:
        places = partition_info.single_offset(shape), partition_info.single_slice_dim(shape)
        seen.append((shape, dtype, partition_info.full_shape, partition_info.var_offset, *places))
        return tf.zeros(shape, dtype)

    tf.get_variable("v", [5, 2], initializer=initializer, partitioner=halves)
    assert seen == [
        ([3, 2], tf.float32, [5, 2], [0, 0], 0, 0),
        ([2, 2], tf.float32, [5, 2], [3, 0], 3, 0),
    ]

    def none(shape: Any, dtype: Any, partition_info: Any) -> Any:
        assert partition_info is None
        return tf.zeros(shape, dtype)

    tf.get_variable("whole", [5, 2], initializer=none)
    glorot = tf.get_variable("g", [1000, 4], partitioner=tf.fixed_size_partitioner(50))
    (value,) = await values(glorot.as_tensor())
    assert 0.95 * np.sqrt(6 / 1004) < np.abs(value).max() < np.sqrt(6 / 1004)


@pytest.mark.asyncio
async def test_initial_values_are_sliced() -> None:
    made = {
        "tensor": tf.get_variable("a", initializer=tf.range(5.0), partitioner=halves),
        "list": tf.get_variable("b", [5], initializer=[0, 1, 2, 3, 4], partitioner=halves),
        "text": tf.get_variable("t", initializer=["a", "b", "c"], dtype=tf.string, partitioner=halves),
    }
    found = await values(*[v.as_tensor() for v in made.values()])
    assert [x.tolist() for x in found] == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [b"a", b"b", b"c"]]
    assert made["list"].dtype is tf.float32
    assert isinstance(tf.get_variable("s", [], partitioner=halves), tf.Variable)
    assert isinstance(tf.get_variable("n", initializer=1.0, partitioner=halves), tf.Variable)


def test_scopes_have_a_partitioner_and_parts_are_shared() -> None:
    three = tf.fixed_size_partitioner(3)
    with tf.variable_scope("a", partitioner=three) as scope:
        v = tf.get_variable("v", [7])
        assert (scope.partitioner, len(v), v.name) == (three, 3, "a/v")
        assert isinstance(tf.get_variable("s", []), tf.Variable)
        with tf.variable_scope("b") as inner:
            inner.set_partitioner(halves)
            assert len(tf.get_variable("w", [7])) == 2
    for arguments in (
        {"reuse": True}, {"reuse": True, "partitioner": three},
        {"reuse": tf.AUTO_REUSE, "partitioner": three},
    ):  # fmt: skip
        with tf.variable_scope("a", **arguments):
            assert tf.get_variable("v", [7]) is v
            assert tf.get_variable("v") is v


@pytest.mark.parametrize(
    ("arguments", "shape", "dtype", "text"),
    [
        ({"reuse": True, "partitioner": halves}, [7], tf.float32,
         r"but specified partitions \[2\] and found partitions \[3\]"),
        ({"reuse": True}, [8], tf.float32,
         r"partitioned variable a/v, but specified shape \(8,\) and found shape \(7,\)"),
        ({"reuse": True}, [7], tf.int32, "but specified dtype int32 and found dtype float32"),
        ({"partitioner": halves}, [7], tf.float32,
         "Partitioned variable with name a/v already exists. Did you mean to set reuse=True"),
        ({"reuse": tf.AUTO_REUSE}, [7], tf.float32,
         "but a partitioned version of the variable was found: a/v/part_0"),
        ({}, [7], tf.float32, "No partitioner was provided, but a partitioned version"),
    ],
)  # fmt: skip
def test_what_is_not_shared(arguments: Any, shape: Any, dtype: Any, text: str) -> None:
    with tf.variable_scope("a", partitioner=tf.fixed_size_partitioner(3)):
        tf.get_variable("v", [7])
    with tf.variable_scope("a", **arguments), pytest.raises(ValueError, match=text):
        tf.get_variable("v", shape, dtype)


@pytest.mark.parametrize(
    ("shape", "partitioner", "text"),
    [
        ([7], 5, "Partitioner must be callable, but received: 5"),
        ([7], lambda **_: 5, "Partitioner must return a sequence, but saw: 5"),
        ([7], lambda **_: [2, 2], r"does not match the Variable's rank: \[2, 2\] vs. \(7,\)"),
        ([7], lambda **_: [0], r"returned zero partitions for some axes: \[0\]"),
        ([7, 2], lambda **_: [2, 2], "Can only slice a variable along one dimension: shape: "),
        ([2, 3], lambda **_: [3, 1], r"more parts than rows: \[3, 1\]"),
        (
            None,
            halves,
            "new partitioned variable must be fully defined, but instead was <unk",
        ),
        ([None], halves, r"must be fully defined, but instead was \(None,\)|\(\?,\)"),
    ],
)
def test_wrong_partitioners(shape: Any, partitioner: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tf.get_variable("v", shape, partitioner=partitioner)
    assert tf.global_variables() == []


def test_a_missing_one_is_not_created_for_reuse() -> None:
    with (
        tf.variable_scope("a", reuse=True),
        pytest.raises(ValueError, match="PartitionedVariable a/v does not exist"),
    ):
        tf.get_variable("v", [3], partitioner=halves)


SHAPES: list[tuple[list[int], Any]] = [
    ([5, 4], tf.float32), ([5, 4], tf.string), ([1, 4], tf.int64), ([100, 7], tf.float64)
]  # fmt: skip


@pytest.mark.parametrize(
    ("partitioner", "expected"),
    [  # of TensorFlow 1
        (tf.variable_axis_size_partitioner(16), [[5, 1], [5, 1], [1, 1], [100, 1]]),
        (tf.variable_axis_size_partitioner(16, axis=1, max_shards=2), [[1, 2]] * 4),
        (tf.variable_axis_size_partitioner(1), [[5, 1], [5, 1], [1, 1], [100, 1]]),
        (tf.variable_axis_size_partitioner(40), [[3, 1], [5, 1], [1, 1], [100, 1]]),
        (tf.min_max_variable_partitioner(3, 0, 16), [[3, 1], [3, 1], [1, 1], [3, 1]]),
        (tf.min_max_variable_partitioner(3, 1, 1), [[1, 3]] * 4),
        (tf.min_max_variable_partitioner(), [[1, 1]] * 4),
        (tf.fixed_size_partitioner(3), [[3, 1], [3, 1], [1, 1], [3, 1]]),
    ],
)
def test_partitioners(partitioner: Callable[..., Any], expected: list[list[int]]) -> None:
    found = [partitioner(shape=tf.TensorShape(shape), dtype=dtype) for shape, dtype in SHAPES]
    assert found == expected


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: tf.variable_axis_size_partitioner(0), "Currently, max_shard_bytes is 0"),
        (lambda: tf.variable_axis_size_partitioner(1, max_shards=-1), "max_shards must be positive"),
        (lambda: tf.variable_axis_size_partitioner(1)(shape=[1], dtype=tf.float32),
         "not a TensorShape"),
        (lambda: tf.min_max_variable_partitioner(3, 4)(shape=tf.TensorShape([1]), dtype=tf.float32),
         r"Cannot partition variable along axis 4 when shape is only \(1,\)"),
        (lambda: tf.min_max_variable_partitioner(3)(shape=tf.TensorShape([None]), dtype=tf.float32),
         "not fully defined"),
        (lambda: tf.min_max_variable_partitioner(3)(shape=tf.TensorShape([1]), dtype="float32"),
         "not a DType"),
    ],
)  # fmt: skip
def test_what_partitioners_refuse(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


def test_made_by_hand() -> None:
    parts = [tf.Variable([1.0]), tf.Variable([2.0])]
    with pytest.raises(ValueError, match="must have a SaveSliceInfo of 'v'"):
        tf.PartitionedVariable("v", [2], tf.float32, parts, [2])
    for i, part in enumerate(parts):
        part._set_save_slice_info(tf.Variable.SaveSliceInfo("v", [2], [i], [1]))
    assert list(tf.PartitionedVariable("v", [2], tf.float32, parts[::-1], [2])) == parts
    wrong: Any = {}
    with pytest.raises(TypeError, match="partitions is not a list or tuple"):
        tf.PartitionedVariable("v", [2], tf.float32, parts, wrong)
    with pytest.raises(ValueError, match="variable_list may not be empty"):
        tf.PartitionedVariable("v", [2], tf.float32, [], [2])
    with pytest.raises(ValueError, match="must be positive"):
        tf.PartitionedVariable("v", [2], tf.float32, parts, [0])


# --- training ---------------------------------------------------------------------------------------
def test_regularizers_and_custom_getters_see_it() -> None:
    seen = []

    def getter(get: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        seen.append((name, kwargs["partitioner"]))
        return get(name, *args, **kwargs)

    tf.get_variable("v", [5, 2], regularizer=tf.reduce_sum, partitioner=halves, custom_getter=getter)
    assert seen == [("v", halves)]
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert [loss.op.name.rpartition("/")[0] for loss in losses] == [
        "v/part_0/Regularizer", "v/part_1/Regularizer"
    ]  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("shards", [None, 1, 3])
async def test_training_is_that_of_a_whole_variable(shards: int | None) -> None:
    partitioner = None if shards is None else tf.fixed_size_partitioner(shards)
    initial = np.linspace(-1, 1, 14, dtype=np.float32).reshape(7, 2)
    v = tf.get_variable("v", initializer=tf.constant(initial), partitioner=partitioner)
    loss = tf.reduce_sum(tf.square(v)) + tf.reduce_sum(
        tf.nn.embedding_lookup(v, [0, 6, 6], partition_strategy="div") * [1.0, 2.0]
    )
    optimizer = tf.train.AdamOptimizer(0.1)
    step = optimizer.minimize(loss, var_list=[v])
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for _ in range(3):
            await sess.run(step)
        found = await sess.run(tf.identity(v))
    m, u, x = np.zeros_like(initial), np.zeros_like(initial), initial.copy()
    for t in range(1, 4):
        gradient = 2 * x
        gradient[0] += [1, 2]
        gradient[6] += [2, 4]
        m, u = 0.9 * m + 0.1 * gradient, 0.999 * u + 0.001 * gradient**2
        x -= 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(u) + 1e-8)
    np.testing.assert_allclose(found, x, rtol=1e-4)


def test_slots_and_averages_are_parts_too() -> None:
    with tf.variable_scope("scope"):
        v = tf.get_variable("v", [5], partitioner=halves)
        optimizer = tf.train.AdamOptimizer()
        optimizer.minimize(tf.reduce_sum(v), var_list=v)
    averages = tf.train.ExponentialMovingAverage(0.9)
    averages.apply(list(v))
    names = {x.op.name: x.save_name for x in tf.global_variables()}
    assert names["scope/scope/v/part_1/Adam"] == "scope/scope/v/Adam"
    assert names["scope/v/part_0/ExponentialMovingAverage"] == "scope/v/ExponentialMovingAverage"
    first = next(iter(v))
    slot = optimizer.get_slot(first, "m")
    assert slot is not None
    assert slot._get_save_slice_info().var_offset == first._get_save_slice_info().var_offset
    assert averages.variables_to_restore()["scope/v/ExponentialMovingAverage"] == list(v)
    with tf.Graph().as_default():
        tf.get_variable("w", [5], partitioner=halves)
        fresh = tf.train.ExponentialMovingAverage(0.9).variables_to_restore()
        assert list(fresh) == ["w/ExponentialMovingAverage"]


@pytest.mark.asyncio
@pytest.mark.parametrize(("strategy", "rows"), [("div", [0, 1, 4, 2]), ("mod", [0, 3, 2, 1])])
async def test_lookups(strategy: str, rows: list[int]) -> None:
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    v = tf.get_variable("v", initializer=table, partitioner=halves)
    found = tf.nn.embedding_lookup(v, [[0, 1], [4, 2]], partition_strategy=strategy)
    assert (await values(found))[0].reshape(4, 2).tolist() == table[rows].tolist()


@pytest.mark.asyncio
async def test_layers_in_a_scope_with_a_partitioner() -> None:
    x = tf.ones([4, 6])
    with tf.variable_scope("m", partitioner=halves):
        dense = tf.layers.Dense(5)
        y = tf.layers.batch_normalization(dense(x), training=True)
        z = tf.layers.dense(y, 1, name="last")
    assert [w.op.name for w in dense.trainable_weights] == [
        f"m/dense/{name}/part_{i}" for name in ("kernel", "bias") for i in range(2)
    ]
    names = [v.op.name for v in tf.global_variables()]
    assert "m/batch_normalization/moving_mean" in names
    assert "m/batch_normalization/gamma/part_1" in names
    assert dense.count_params() == 35
    assert (await values(z))[0].shape == (4, 1)


@pytest.mark.asyncio
async def test_one_made_in_a_branch() -> None:
    def branch() -> Any:
        v = tf.get_variable("v", [3], initializer=[1.0, 2.0, 3.0], partitioner=halves)
        return tf.reduce_sum(v)

    assert await values(tf.cond(tf.constant(True), branch, lambda: tf.constant(0.0))) == [6.0]


@pytest.mark.asyncio
async def test_what_takes_no_partitioned_variable_says_so() -> None:
    v = tf.get_variable("v", [3], partitioner=halves)
    async with tf.Session() as sess:
        with pytest.raises(TypeError, match="invalid type 'PartitionedVariable'"):
            await sess.run(v)
    with pytest.raises(TypeError, match="Expected a variable, got <PartitionedVariable 'v'"):
        tf.assign(v, np.ones(3, np.float32))
