"""The cosine decays that start anew, fall along a line, or have noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

train = tf.train
STEPS = np.arange(15)


def _found(ops: Any, decay: Any) -> list[Any]:
    step = tf.placeholder(tf.int32, [])
    rate = decay(step)
    assert rate.shape == ()
    return [ops.evaluate(rate, {step: i}) for i in STEPS]


def _restarts(longer: float, lower: float, alpha: float) -> list[float]:
    rates = []
    for step in STEPS:
        begun, length, height = 0.0, 3.0, 1.0
        while step >= begun + length - 1e-9:
            begun, length, height = begun + length, length * longer, height * lower
        cosine = 0.5 * (1 + np.cos(np.pi * (step - begun) / length))
        rates.append(0.1 * ((1 - alpha) * height * cosine + alpha))
    return rates


@pytest.mark.parametrize(
    ("longer", "lower", "alpha"), [(2.0, 1.0, 0.0), (1.0, 0.5, 0.1), (1.5, 0.9, 0.01)]
)
def test_restarts(ops: Any, longer: float, lower: float, alpha: float) -> None:
    found = _found(ops, lambda s: train.cosine_decay_restarts(0.1, s, 3, longer, lower, alpha))
    np.testing.assert_allclose(found, _restarts(longer, lower, alpha), rtol=1e-4, atol=1e-7)


def test_along_a_line(ops: Any) -> None:
    done = np.minimum(STEPS, 10) / 10
    wanted = 0.1 * ((0.2 + 1 - done) * 0.5 * (1 + np.cos(np.pi * 4 * done)) + 0.01)
    found = _found(ops, lambda s: train.linear_cosine_decay(0.1, s, 10, 2.0, 0.2, 0.01))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_noise_is_added_to_the_line(ops: Any) -> None:
    exact = train.linear_cosine_decay(1.0, 3, 10)
    silent = train.noisy_linear_cosine_decay(1.0, 3, 10, 1e-20)
    noisy = [train.noisy_linear_cosine_decay(1.0, 3, 10, 4.0, 0.5) for _ in range(200)]
    line, *found = ops.evaluate([exact, silent, *noisy])
    assert found[0] == pytest.approx(line, rel=1e-5)
    wave = 0.5 * (1 + np.cos(np.pi * 0.3))
    draws = (np.array(found[1:]) - line) / wave  # of the variance 4 / (1 + 3) ** 0.5
    assert abs(draws.mean()) < 0.4
    assert 1.15 < draws.std() < 1.7


def test_a_step_is_needed() -> None:
    for name in ("cosine_decay_restarts", "linear_cosine_decay", "noisy_linear_cosine_decay"):
        with pytest.raises(ValueError, match=f"global_step is required for {name}"):
            getattr(train, name)(0.1, None, 10)
