"""TF1's deprecated ways to create and initialize variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

pytestmark = pytest.mark.usefixtures("graph")


def test_create_partitioned_variables() -> None:
    made = tf.create_partitioned_variables([4, 6], [1, 3], tf.zeros_initializer(), name="cp")
    assert [(v.name, v.shape.as_list()) for v in made] == [(f"cp/part_{i}:0", [4, 2]) for i in range(3)]
    more = tf.create_partitioned_variables([4, 6], [1, 3], tf.zeros_initializer())
    assert more[0].op.name == "PartitionedVariable/part_0"
    with pytest.raises(ValueError, match="must have the length"):
        tf.create_partitioned_variables([4, 6], [3], tf.zeros_initializer())
    with pytest.raises(ValueError, match="rank at least 1"):
        tf.create_partitioned_variables([], [], tf.zeros_initializer())


def test_uniform_unit_scaling(evaluate: Callable[..., Any]) -> None:
    values = evaluate(tf.uniform_unit_scaling_initializer(0.5)([200, 300], dtype=tf.float64))
    assert abs(values.std() * np.sqrt(200) / 0.5 - 1) < 0.03
    assert np.abs(values).max() <= 0.5 * np.sqrt(3 / 200)
    halves = tf.fixed_size_partitioner(2)
    uniform = tf.uniform_unit_scaling_initializer(seed=1)
    scaled = tf.get_variable("u", [1000, 4], initializer=uniform, partitioner=halves)
    limit = np.sqrt(3 / 1000)  # of the whole variable
    assert 0.95 * limit < np.abs(evaluate(scaled.as_tensor())).max() < limit
