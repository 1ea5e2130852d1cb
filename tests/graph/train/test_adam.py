"""Adam and AdamW against their formulas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

train = tf.train


def _reference(steps: Any, decay: float = 0.0) -> Any:
    lr, b1, b2, eps, decay = map(steps.number, (0.1, 0.8, 0.9, 1e-3, decay))

    def follow(w: Any, grads: Any) -> Iterator[Any]:
        m, v = np.zeros_like(w), np.zeros_like(w)
        power1, power2 = np.float32(0.8), np.float32(0.9)
        for grad in grads:
            m = b1 * m + (1 - b1) * grad
            v = b2 * v + (1 - b2) * grad**2
            rate = lr * np.sqrt(1 - float(power2)) / (1 - float(power1))
            w = w - decay * w - rate * m / (np.sqrt(v) + eps)
            power1, power2 = power1 * np.float32(0.8), power2 * np.float32(0.9)
            yield w

    return follow


@pytest.mark.parametrize("sparse", [False, True])
def test_adam(steps: Any, sparse: bool) -> None:
    steps.check(lambda: train.AdamOptimizer(0.1, 0.8, 0.9, 1e-3), _reference(steps), sparse)


def test_hyperparameters_may_be_tensors(steps: Any) -> None:
    def make() -> Any:
        values = [tf.constant(steps.number(v), tf.float64) for v in (0.1, 0.8, 0.9, 1e-3)]
        return train.AdamOptimizer(values[0], lambda: 0.8, 0.9, values[3])

    steps.check(make, _reference(steps))


@pytest.mark.parametrize("sparse", [False, True])
def test_adamw_shrinks_the_weights(steps: Any, sparse: bool) -> None:

    def make() -> Any:
        return train.AdamWOptimizer(0.05, 0.1, 0.8, 0.9, 1e-3)

    steps.check(make, _reference(steps, decay=0.05), sparse)


def test_adamw_shrinks_only_those_it_should(ops: Any) -> None:
    for how in ("minimize", "apply"):
        with tf.Graph().as_default():
            a, b = tf.Variable([1.0, 2.0], name="a"), tf.Variable([1.0, 2.0], name="b")
            loss = tf.reduce_sum(a * 0.0 + b * 0.0)
            optimizer = train.AdamWOptimizer(0.5)
            if how == "minimize":
                step = optimizer.minimize(loss, decay_var_list=[a])
            else:
                pairs = optimizer.compute_gradients(loss)
                step = optimizer.apply_gradients(pairs, decay_var_list=[a])
            with tf.control_dependencies([step]):
                after = [a.read_value(), b.read_value()]
            first, second = ops.evaluate(after)
        assert first.tolist() == [0.5, 1]
        assert second.tolist() == [1, 2]


def test_slots_and_powers_have_the_originals_names() -> None:
    w = tf.Variable([1.0], name="layer/w")
    optimizer = train.AdamOptimizer()
    optimizer.minimize(tf.reduce_sum(w * w))
    assert sorted(v.op.name for v in tf.global_variables()) == [
        "beta1_power",
        "beta2_power",
        "layer/w",
        "layer/w/Adam",
        "layer/w/Adam_1",
    ]
    first, second = optimizer.get_slot(w, "m"), optimizer.get_slot(w, "v")
    assert first is not None
    assert second is not None
    assert (first.op.name, second.op.name) == ("layer/w/Adam", "layer/w/Adam_1")
    assert optimizer.get_slot_names() == ["m", "v"]
    assert [v.op.name for v in optimizer.variables()] == [
        "beta1_power",
        "beta2_power",
        "layer/w/Adam",
        "layer/w/Adam_1",
    ]
    train.AdamOptimizer(name="Second").minimize(tf.reduce_sum(w * w))
    names = [v.op.name for v in tf.global_variables()]
    assert "layer/w/Second" in names
    assert "beta1_power_1" in names


def test_powers_follow_the_steps(ops: Any) -> None:
    w = tf.Variable([1.0])
    step = train.AdamOptimizer(beta1=0.5, beta2=0.25).minimize(tf.reduce_sum(w * w))
    powers = [v for v in tf.global_variables() if "power" in v.name]
    with tf.control_dependencies([step]):
        after = [v.read_value() for v in powers]
    assert ops.evaluate(powers) == [0.5, 0.25]
    assert ops.evaluate(after) == [0.25, 0.0625]


def test_large_variables_are_updated_whole(steps: Any, ops: Any) -> None:
    size = 300_007
    start = np.linspace(-1, 1, size)
    w = tf.Variable(start, name="w")
    step = train.AdamOptimizer(0.1, 0.8, 0.9, 1e-3).minimize(tf.reduce_sum(w * w))
    with tf.control_dependencies([step]):
        after = w.read_value()
    (expected,) = _reference(steps)(start, [2 * start])
    np.testing.assert_allclose(ops.evaluate(after), expected, rtol=1e-12, atol=1e-12)
