"""Variables: their kinds, their initial values, their collections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

pytestmark = pytest.mark.asyncio


async def initialised(*fetches: Any) -> Any:
    async with tf.Session() as sess:
        await sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return await sess.run(list(fetches))


async def test_properties() -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    assert (v.name, v.op.name, v.dtype, v.shape, v.get_shape().as_list()) == (
        "v:0", "v", tf.float32, (2,), [2],
    )  # fmt: skip
    assert repr(v) == "<Variable 'v:0' shape=(2,) dtype=float32>"
    assert (v.initializer.name, v.device, v.trainable) == ("v/Assign", "", True)
    assert tf.Variable(1, name="v").name == "v_1:0"
    assert tf.Variable(1).name == "Variable:0"
    with tf.name_scope("scope"):
        assert tf.Variable(1, name="v").op.name == "scope/v"


async def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="initial_value must be specified"):
        tf.Variable()
    with pytest.raises(ValueError, match="must have a shape specified"):
        tf.Variable(tf.placeholder(tf.float32, [None]))
    with pytest.raises(ValueError, match="has shape"):
        tf.Variable([1, 2], expected_shape=[3])
    with pytest.raises(TypeError, match="Expected int32"):
        tf.Variable(1.5, dtype=tf.int32)


async def test_a_failed_variable_is_in_no_collection() -> None:
    with pytest.raises(ValueError, match="shape"):
        tf.Variable(tf.placeholder(tf.float32))
    assert tf.global_variables() == []


async def test_collections() -> None:
    a = tf.Variable(1, name="a")
    b = tf.Variable(1, name="b", trainable=False)
    c = tf.Variable(1, name="c", trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES, "mine"])
    d = tf.Variable(1, name="d", collections=["mine"])
    assert tf.global_variables() == [a, b]
    assert tf.global_variables("a") == [a]
    assert tf.local_variables() == [c]
    assert tf.trainable_variables() == [a, d]
    assert tf.get_collection("mine") == [c, d]
    assert tf.model_variables() == tf.moving_average_variables() == []


async def test_initial_values_may_be_functions_and_take_a_dtype() -> None:
    v = tf.Variable(lambda: tf.ones([2]), name="v")
    w = tf.Variable(1, dtype=tf.float64)
    assert w.dtype is tf.float64
    assert [x.tolist() for x in await initialised(v, w)] == [[1, 1], 1]


async def test_initial_values_may_depend_on_other_variables() -> None:
    w = tf.Variable(tf.random_normal([3], seed=1), name="w")
    twice = tf.Variable(w.initialized_value() * 2, name="twice")
    plain = tf.Variable(tf.square(w) + 1.0, name="plain")
    copy = tf.Variable(plain, name="copy")
    a, b, c, d = await initialised(w, twice, plain, copy)
    assert np.allclose(b, a * 2)
    assert np.allclose(c, a * a + 1)
    assert np.allclose(d, c)


async def test_an_initial_value_prefers_the_value_that_is_there() -> None:
    w = tf.Variable(1.0)
    copy = tf.Variable(w + 1.0)
    async with tf.Session() as sess:
        await sess.run(w.initializer)
        await sess.run(w.assign(5.0))
        await sess.run(copy.initializer)
        assert await sess.run(copy) == 6


async def test_a_random_initial_value_is_drawn_once_for_all_that_depend_on_it() -> None:
    w = tf.Variable(lambda: tf.random_uniform([2]) + 0.0)
    y = tf.Variable(w + tf.random_uniform([2]))
    first, second = await initialised(w, y)
    assert (second - first >= 0).all()
    assert (second - first < 1).all()


async def test_variables_built_under_control_dependencies_do_not_depend_on_them() -> None:
    p = tf.placeholder(tf.float32, [])
    with tf.control_dependencies([p]):
        v = tf.Variable(1)
    assert (await initialised(v))[0] == 1


async def test_a_variable_without_a_fixed_shape() -> None:
    v = tf.Variable([1.0], validate_shape=False)
    assert v.shape.ndims is None
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        await sess.run(tf.assign(v, [1.0, 2.0], validate_shape=False))
        assert (await sess.run(v)).tolist() == [1, 2]
    v.set_shape([None])
    assert v.shape == (None,)


async def test_a_variable_keeps_the_shape_it_was_made_with() -> None:
    v = tf.Variable([1.0, 2.0])
    with pytest.raises(ValueError, match=r"make it with validate_shape=False"):
        tf.assign(v, [1.0, 2.0, 3.0], validate_shape=False)
    value = tf.placeholder(tf.float32, None)
    double, write = v * 2.0, tf.assign(v, value, validate_shape=False)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        with pytest.raises(errors.InvalidArgumentError, match=r"the value \(3,\)"):
            await sess.run(write, {value: [1.0, 2.0, 3.0]})
        assert (await sess.run(double)).tolist() == [2, 4]


async def test_report_uninitialized_variables() -> None:
    tf.Variable(1, name="a")
    b = tf.Variable(1, name="b")
    tf.Variable(1, name="c", trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    report = tf.report_uninitialized_variables()
    of_b = tf.report_uninitialized_variables([b])
    ready = tf.is_variable_initialized(b)
    async with tf.Session() as sess:
        assert (await sess.run(report)).tolist() == [b"a", b"b", b"c"]
        assert not await sess.run(ready)
        await sess.run(b.initializer)
        assert (await sess.run(report)).tolist() == [b"a", b"c"]
        assert (await sess.run(of_b)).tolist() == []
        assert await sess.run(ready)


async def test_writes_return_the_new_value() -> None:
    v = tf.Variable(1.0)
    assert await initialised(v.assign(5.0)) == [5]
    assert await initialised(v.assign_add(1)) == [2]
    assert await initialised(v.assign_sub(1)) == [0]
    with pytest.raises(ValueError, match="Shapes must be equal"):
        v.assign([1.0, 2.0])
    with pytest.raises(TypeError, match="Input 'value' of 'Assign' Op has type int32"):
        v.assign(tf.constant(1))


async def test_scatter() -> None:
    v = tf.Variable(np.zeros((3, 2), np.float32))
    p = tf.placeholder(tf.int32, [None])
    add = tf.scatter_add(v, p, tf.ones([2, 2]))
    sub = tf.scatter_sub(v, [0], [[1.0, 2.0]])
    put = tf.scatter_update(v, [2], [[7.0, 8.0]])
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert (await sess.run(add, {p: [1, 1]})).tolist() == [[0, 0], [2, 2], [0, 0]]
        assert (await sess.run(sub)).tolist() == [[-1, -2], [2, 2], [0, 0]]
        assert (await sess.run(put)).tolist() == [[-1, -2], [2, 2], [7, 8]]
        with pytest.raises(errors.InvalidArgumentError, match=r"indices\[0\] = 3 is not in \[0, 3\)"):
            await sess.run(add, {p: [3, 1]})
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 2 and 1"):
        tf.scatter_add(v, [0], [[1.0]])
    with pytest.raises(ValueError, match="no known rows"):
        tf.scatter_add(tf.Variable(1.0), [0], [1.0])
    with pytest.raises(TypeError, match="DataType float32 not in list"):
        tf.scatter_add(v, [0.5], [[1.0, 1.0]])


async def test_a_state_op_needs_a_variable() -> None:
    with pytest.raises(TypeError, match="Expected a variable"):
        tf.create_op("AssignAdd", (tf.constant(1), 1))


async def test_a_variable_of_another_graph() -> None:
    v = tf.Variable(1.0)
    with tf.Graph().as_default():
        assert v.assign_add(1).graph is v.graph
        with pytest.raises(ValueError, match="same graph"):
            tf.add(tf.constant(1.0), v)


async def test_initializers_can_be_grouped() -> None:
    a, b = tf.Variable(1), tf.Variable(2)
    only = tf.variables_initializer([a], "only")
    assert only.name == "only"
    async with tf.Session() as sess:
        await sess.run(only)
        assert await sess.run(a) == 1
        with pytest.raises(errors.FailedPreconditionError):
            await sess.run(b)
    assert tf.variables_initializer([]).type == "NoOp"


async def test_writes_take_the_originals_arguments() -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    assert v.assign([0.0, 0.0], use_locking=True, name="a").op.name == "a"
    assert tf.assign(v, [0.0, 0.0], True, True, "b").op.name == "b"
    assert tf.assign_add(v, [0.0, 0.0], use_locking=True).shape == (2,)
    assert tf.scatter_add(v, [0], [1.0], True, "c").op.name == "c"
    step = v.assign_add([1.0, 1.0], read_value=False)
    assert isinstance(step, tf.Operation)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run(step) is None
        assert (await sess.run(v)).tolist() == [2, 3]


async def test_rows_of_a_variable_are_written_by_indexed_slices() -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    slices = tf.IndexedSlices(tf.constant([5.0]), tf.constant([1]))
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert (await sess.run(v.scatter_add(slices))).tolist() == [1, 7]
        assert (await sess.run(v.scatter_sub(slices))).tolist() == [1, 2]
        assert (await sess.run(v.scatter_update(slices))).tolist() == [1, 5]


async def test_a_variable_takes_the_later_arguments_of_the_original() -> None:
    v = tf.Variable([1.0], synchronization=None, aggregation=None, shape=tf.TensorShape(None))
    w = tf.get_variable("w", [1], synchronization=None, aggregation=None)
    grow = v.assign([1.0, 2.0])
    async with tf.Session() as sess:
        await sess.run([v.initializer, w.initializer])
        assert (await sess.run(grow)).tolist() == [1.0, 2.0]
    assert tf.Variable([1.0], shape=[1]).shape == [1]
    with pytest.raises(ValueError, match=r"The initial value has shape \(1,\), expected"):
        tf.Variable([1.0], shape=[2])


async def test_elements_are_read_and_written_at_coordinates() -> None:
    v = tf.Variable(np.zeros((2, 2), np.float32))
    at = [[0, 1], [1, 0]]
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert (await sess.run(v.scatter_nd_update(at, [3.0, 4.0]))).tolist() == [[0, 3], [4, 0]]
        assert (await sess.run(v.scatter_nd_add([[1, 0]], [1.0]))).tolist() == [[0, 3], [5, 0]]
        assert (await sess.run(v.scatter_nd_sub([[0, 1]], [1.0]))).tolist() == [[0, 2], [5, 0]]
        assert (await sess.run(v.gather_nd(at))).tolist() == [2, 5]
        assert (await sess.run(v.sparse_read([1, 1]))).tolist() == [[5, 0], [5, 0]]


async def test_it_counts_up_to_a_limit() -> None:
    v = tf.Variable(0)
    count = v.count_up_to(2)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert [await sess.run(count) for _ in range(2)] == [0, 1]
        with pytest.raises(errors.OutOfRangeError):
            await sess.run(count)
        assert await v.eval() == 2


async def test_a_part_is_assigned() -> None:
    v, i = tf.Variable(np.zeros((2, 3), np.float32)), tf.placeholder(tf.int32, [])
    column = v[:, 1].assign([8.0, 9.0])
    cell = v[i, -1].assign(5.0)
    assert not hasattr(v[v > 0], "assign")
    assert not hasattr(tf.constant([1.0])[0], "assign")
    with pytest.raises(ValueError, match=r"a value of shape \(2,\) to a part of \(3,\)"):
        v[0].assign([1.0, 2.0])
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert (await sess.run([column, cell], {i: 0}))[0].tolist() == [[0, 8, 0], [0, 9, 0]]
        assert (await v.eval()).tolist() == [[0, 8, 5], [0, 9, 0]]
        with pytest.raises(errors.InvalidArgumentError):
            await sess.run(cell, {i: 2})
        assert (await v.eval()).tolist() == [[0, 8, 5], [0, 9, 0]]


async def test_its_own_tensor_is_returned_under_control_dependencies() -> None:
    v = tf.Variable(0)
    with tf.control_dependencies([tf.no_op()]):
        assert v._ref() is v._as_graph_element()
