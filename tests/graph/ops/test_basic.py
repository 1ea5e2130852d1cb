"""Identity, grouping, tuples."""

from __future__ import annotations

import pytest

from asyncmon import graph as tf

pytestmark = pytest.mark.asyncio


async def test_a_group_is_done_when_all_are() -> None:
    v, w = tf.Variable(0), tf.Variable(0)
    both = tf.group([v.assign_add(1), (w.assign_add(2).op,)], None, v, name="both")
    assert both.name == "both"
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        assert await sess.run(both) is None
        assert await sess.run([v, w]) == [1, 2]


async def test_a_tuple_holds_its_tensors_back_until_all_are_there() -> None:
    v = tf.Variable(0)
    step = v.assign_add(1)
    a, nothing, op = tf.tuple([tf.constant(1), None, tf.no_op()], control_inputs=[step])
    assert nothing is None
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run(a) == 1
        assert await sess.run(v) == 1
        await sess.run(op)
        assert await sess.run(v) == 2
    with pytest.raises(ValueError, match="Must have at least one Tensor"):
        tf.tuple([tf.no_op()])


async def test_gradients_pass_identity_and_not_stop_gradient() -> None:
    x = tf.placeholder(tf.float32, [])
    y = tf.identity(x) * tf.stop_gradient(x) * tf.placeholder_with_default(x, [])
    (grad,) = tf.gradients(y, [x])
    async with tf.Session() as sess:
        assert await sess.run(grad, {x: 3}) == 18
    assert tf.gradients(tf.stop_gradient(x), [x]) == [None]


async def test_static_values_pass_identity() -> None:
    assert tf.reshape(tf.zeros([6]), tf.identity(tf.constant([2, 3]))).shape == (2, 3)


async def test_a_cast_of_complex_values_drops_the_imaginary_part() -> None:
    async with tf.Session() as sess:
        found = await sess.run(tf.cast(tf.constant([1 + 2j, -3j]), tf.float32))
    assert found.tolist() == [1.0, 0.0]
