"""Variables found again by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf


def test_scopes_put_prefixes() -> None:
    with tf.variable_scope("a") as scope:
        assert (scope.name, scope.original_name_scope) == ("a", "a/")
        with tf.variable_scope("b"):
            assert tf.get_variable("w", [1]).op.name == "a/b/w"
            assert tf.constant(1, name="c").op.name == "a/b/c"
    with tf.variable_scope("a"):
        assert tf.get_variable("v", [1]).op.name == "a/v"
        assert tf.constant(1, name="c").op.name == "a_1/c"  # op names are unique, variables' are not
    assert tf.get_variable_scope().name == ""


def test_a_name_scope_does_not_touch_get_variable() -> None:
    with tf.name_scope("names"):
        assert tf.get_variable("w", [1]).op.name == "w"


def test_reuse_finds_the_variable() -> None:
    with tf.variable_scope("a"):
        w = tf.get_variable("w", [2])
    with tf.variable_scope("a", reuse=True):
        assert tf.get_variable("w", [2]) is w
        assert tf.get_variable("w") is w
        with tf.variable_scope("b"), pytest.raises(ValueError, match="Variable a/b/w does not exist"):
            tf.get_variable("w", [2])
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE):
        assert tf.get_variable("w") is w
        new = tf.get_variable("new", [1])
        assert tf.get_variable("new") is new


def test_reuse_variables_applies_from_there_on() -> None:
    with tf.variable_scope("a"):
        w = tf.get_variable("w", [2])
        tf.get_variable_scope().reuse_variables()
        assert tf.get_variable("w") is w
    with tf.variable_scope("a"):
        tf.get_variable("v", [2])


def test_a_scope_can_be_entered_again() -> None:
    with tf.variable_scope("a") as scope:
        w = tf.get_variable("w", [2])
    with tf.variable_scope("other"), tf.variable_scope(scope, reuse=True):
        assert tf.get_variable("w") is w


def test_errors() -> None:
    tf.get_variable("w", [2])
    with pytest.raises(ValueError, match="Variable w already exists, disallowed"):
        tf.get_variable("w", [2])
    with tf.variable_scope("", reuse=True):
        with pytest.raises(ValueError, match=r"specified shape \(3,\) and found shape \(2,\)"):
            tf.get_variable("w", [3])
        with pytest.raises(ValueError, match="specified dtype int32 and found dtype float32"):
            tf.get_variable("w", dtype=tf.int32)
    with pytest.raises(ValueError, match=r"Shape of a new variable \(v\) must be fully defined"):
        tf.get_variable("v")
    with pytest.raises(ValueError, match=r"must be fully defined, but instead was \(\?, 2\)"):
        tf.get_variable("v", [None, 2])
    with pytest.raises(ValueError, match="do not specify shape"):
        tf.get_variable("v", [2], initializer=np.zeros(2))
    with pytest.raises(TypeError, match="name_or_scope is required"), tf.variable_scope(None):
        pass
    wrong: Any = "yes"
    with pytest.raises(ValueError, match="must be True or False"), tf.variable_scope("a", reuse=wrong):
        pass
    with (
        pytest.raises(ValueError, match="Partitioner must be callable, but received: 3"),
        tf.variable_scope("a", partitioner=3),
    ):
        pass
    with pytest.raises(ValueError, match="reuse=True"), tf.variable_scope(None, "a", reuse=True):
        pass


def test_a_scope_is_a_name_or_a_scope() -> None:
    with pytest.raises(TypeError, match=r"must be a string or VariableScope, got 3\."):
        tf.variable_scope(3).__enter__()  # type: ignore[arg-type]  # what a user may pass


def test_what_an_initializer_makes_has_the_shape_and_dtype_that_were_requested() -> None:
    with pytest.raises(ValueError, match=r"initial value has shape \(\), expected \[2\]"):
        tf.get_variable("scalar", [2], initializer=lambda *_args, **_kwargs: 1.0)
    with pytest.raises((TypeError, ValueError), match="int32"):
        tf.get_variable("integers", [2], initializer=lambda *_args, **_kwargs: tf.constant([1, 2]))
    assert tf.get_variable("plain", [2], initializer=lambda *_a, **_k: [1, 2]).dtype is tf.float32


def test_default_names_are_unique() -> None:
    names = []
    for _ in range(2):
        with tf.variable_scope(None, "layer"):
            names.append(tf.get_variable("w", [1]).op.name)
    assert names == ["layer/w", "layer_1/w"]


@pytest.mark.asyncio
async def test_initializers() -> None:
    with tf.variable_scope("a", initializer=tf.ones_initializer(), dtype=tf.float64):
        ones = tf.get_variable("ones", [2])
    glorot = tf.get_variable("glorot", [100, 100])
    zeros = tf.get_variable("zeros", [2], tf.int32)
    given = tf.get_variable("given", initializer=np.array([1, 2]))
    from_class: Any = tf.get_variable("class", [2], initializer=tf.ones_initializer)
    from_function = tf.get_variable(
        "function", [2], initializer=lambda shape, dtype: tf.fill(shape, 5.0)
    )
    constant = tf.get_variable("constant", initializer=tf.constant(3.0))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        values = await sess.run([ones, zeros, given, from_class, from_function, constant])
        assert [v.tolist() for v in values] == [[1, 1], [0, 0], [1, 2], [1, 1], [5, 5], 3]
        limit = np.sqrt(6 / 200)
        assert 0.9 * limit < abs(await sess.run(glorot)).max() <= limit
    assert ones.dtype is tf.float64


def test_regularizers_add_losses() -> None:
    with tf.variable_scope("a", regularizer=lambda v: tf.reduce_sum(v)):
        tf.get_variable("w", [2])
        tf.get_variable("none", [2], regularizer=lambda v: None)
    assert len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == 1


def test_local_variables() -> None:
    v = tf.get_local_variable("v", [2])
    assert tf.local_variables() == [v]
    assert tf.trainable_variables() == tf.global_variables() == []


def test_a_scope_entered_again_numbers_its_layers_again() -> None:
    """So a model that is built twice under AUTO_REUSE has one set of weights."""
    x = tf.placeholder(tf.float32, [None, 4])
    for _ in range(2):
        with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
            tf.layers.dense(tf.layers.dense(x, 3), 2)
    assert [v.op.name for v in tf.global_variables()] == [
        "model/dense/kernel",
        "model/dense/bias",
        "model/dense_1/kernel",
        "model/dense_1/bias",
    ]


def test_default_names_count_the_scopes_of_that_name() -> None:
    names = []
    for name, default in (("a", None), (None, "a"), ("a", None), (None, "a"), (None, "b")):
        with tf.variable_scope(name, default, reuse=tf.AUTO_REUSE if name else None) as scope:
            names.append(scope.name)
    assert names == ["a", "a_1", "a", "a_2", "b"]


def test_a_scope_entered_as_an_object_leaves_the_count_as_it_was() -> None:
    with tf.variable_scope("a") as scope, tf.variable_scope(None, "b"):
        pass
    with tf.variable_scope(scope), tf.variable_scope(None, "b") as inner:
        assert inner.name == "a/b"
    with tf.variable_scope(scope), tf.variable_scope(None, "b") as inner:
        assert inner.name == "a/b"


def test_a_scope_keeps_what_was_set_on_it() -> None:
    with tf.variable_scope("a") as scope:
        v = tf.get_variable("v", [1])
        scope.reuse_variables()
        scope.set_initializer(tf.ones_initializer())
        scope.set_dtype(tf.float64)
        scope.set_regularizer(tf.reduce_sum)
        assert tf.get_variable_scope().reuse
    assert not tf.get_variable_scope().reuse
    with tf.variable_scope(scope) as again:
        assert tf.get_variable("v", dtype=tf.float32) is v
        assert again.dtype is tf.float64
        assert again.initializer is scope.initializer
        assert again.regularizer is tf.reduce_sum


def test_the_root_scope_can_be_set_too() -> None:
    v = tf.get_variable("v", [1])
    tf.get_variable_scope().reuse_variables()
    assert tf.get_variable("v", [1]) is v
    with tf.Graph().as_default():
        assert not tf.get_variable_scope().reuse


def test_a_scope_lists_its_variables() -> None:
    tf.get_variable("other", [1])
    with tf.variable_scope("a") as scope:
        v = tf.get_variable("v", [1])
        fixed = tf.get_variable("fixed", [1], trainable=False)
        local = tf.get_local_variable("local", [1])
    assert scope.global_variables() == [v, fixed]
    assert scope.trainable_variables() == [v]
    assert scope.local_variables() == [local]


def test_a_scope_left_before_one_inside_is_an_error() -> None:
    outside, inside = tf.variable_scope("a"), tf.variable_scope("b")
    outside.__enter__()
    inside.__enter__()
    with pytest.raises(RuntimeError, match=r"Improper nesting .* 'a' is left before 'a/b'"):
        outside.__exit__(None, None, None)


def test_scopes_one_after_another_and_again_are_no_error() -> None:
    with tf.variable_scope("a") as a:
        with tf.variable_scope("b"), tf.variable_scope(a):
            pass
        with tf.variable_scope(a), tf.variable_scope("c"):
            tf.get_variable("v", [])
    assert tf.get_variable_scope().name == ""
    with pytest.raises(KeyError), tf.variable_scope("d"):  # an error inside is unchanged
        raise KeyError


def test_name_scopes_of_default_names_and_getters_are_those_of_tf1() -> None:
    with tf.variable_scope(None, "d", auxiliary_name_scope=False):
        tf.get_variable("v", [])
    with tf.variable_scope(None, "d"):
        assert tf.get_variable("v", []).name == "d_1/v:0"
        assert tf.constant(1, name="c").name == "d/c:0"

    def getter(get: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
        return tf.identity(get(*args, **kwargs), name="got")

    with tf.variable_scope("s", custom_getter=getter):
        assert tf.get_variable("v", []).name == "got:0"
    with (
        pytest.raises(TypeError, match="auxiliary_name_scope"),
        tf.variable_scope(
            "s",
            auxiliary_name_scope="x",  # type: ignore[arg-type]  # refused
        ),
    ):
        pass
