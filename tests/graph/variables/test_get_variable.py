"""What ``get_variable`` does beyond names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from tests.graph.conftest import OpBench


def _clipped(value: Any) -> Any:
    return tf.clip_by_value(value, -1.0, 1.0)


@pytest.mark.parametrize("how", ["get_variable", "Variable", "scope"])
def test_optimizers_apply_the_constraint(how: str, ops: OpBench) -> None:
    start = np.array([5.0, -5.0], np.float32)
    if how == "get_variable":
        v = tf.get_variable("v", initializer=start, constraint=_clipped)
    elif how == "Variable":
        v = tf.Variable(start, constraint=_clipped)
    else:
        with tf.variable_scope("s", constraint=_clipped):
            v = tf.get_variable("v", initializer=start)
    assert v.constraint is _clipped
    step = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(v))
    with tf.control_dependencies([step]):
        after = v.read_value()
    np.testing.assert_array_equal(ops.evaluate(after), [1.0, -1.0])


def test_a_constraint_is_a_function() -> None:
    wrong: Any = 3
    with pytest.raises(ValueError, match="must be a callable"):
        tf.Variable(1.0, constraint=wrong)


def test_a_custom_getter_stands_in_for_the_variable() -> None:
    seen = []

    def doubled(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        return getter(name, *args, **kwargs) * 2.0

    def renamed(getter: Any, name: str, **kwargs: Any) -> Any:
        return getter(f"{name}_x", **kwargs)

    with tf.variable_scope("s", custom_getter=doubled):
        assert tf.get_variable("v", [2]).op.type == "Mul"
        assert tf.get_variable("w", [2], custom_getter=renamed).op.name == "s/w_x"
        with tf.variable_scope("inner", custom_getter=renamed):
            assert tf.get_variable("v", [2]).op.type == "Mul"  # renamed goes around doubled
    assert seen == ["s/v", "s/inner/v_x"]
    assert [v.op.name for v in tf.global_variables()] == ["s/v", "s/w_x", "s/inner/v_x"]


def test_a_regularizer_builds_in_a_scope_of_its_variable() -> None:
    with tf.variable_scope("s"):
        tf.get_variable("v", [2], regularizer=tf.reduce_sum)
    (loss,) = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert loss.op.name == "s/v/Regularizer/Sum"


def test_arguments_come_in_the_original_order() -> None:
    v = tf.get_variable(
        "v", [2], tf.float64, tf.ones_initializer(), None, False, ["c"], None, None, True, False
    )
    assert (v.dtype, v.trainable, tf.get_collection("c")) == (tf.float64, False, [v])
    w = tf.Variable(1.0, False, ["d"], True, None, "w")
    assert (w.op.name, tf.get_collection("d")) == ("w", [w])


def test_a_local_variable_joins_further_collections() -> None:
    v = tf.get_local_variable("v", [2], collections=["mine"])
    assert tf.get_collection("mine") == [v]
    assert tf.local_variables() == [v]
    assert tf.global_variables() == tf.trainable_variables() == []


def test_refusals() -> None:
    wrong: Any = len
    with pytest.raises(TypeError, match="len"):
        tf.get_variable("v", [2], partitioner=wrong)
    with pytest.raises(ValueError, match="needs a name"):
        tf.get_variable("", [2])
    with pytest.raises(ValueError, match="variable_def and import_scope must be None"):
        tf.Variable(1.0, variable_def=wrong)
