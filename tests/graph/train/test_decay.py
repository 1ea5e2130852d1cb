"""Learning rates against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

train = tf.train
STEPS = np.arange(0, 25, 3)
RATE = 0.5


def _cosine(step: Any, alpha: float) -> Any:
    share = np.minimum(step, 10) / 10
    return RATE * ((1 - alpha) * 0.5 * (1 + np.cos(np.pi * share)) + alpha)


def _polynomial(step: Any, power: float, cycle: bool) -> Any:
    rounds = np.maximum(np.ceil(step / 10), 1) if cycle else 1
    share = step / (10 * rounds) if cycle else np.minimum(step, 10) / 10
    return (RATE - 0.1) * (1 - share) ** power + 0.1


CASES: list[tuple[Any, Any]] = [
    (lambda s: train.exponential_decay(RATE, s, 10, 0.3), RATE * 0.3 ** (STEPS / 10)),
    (
        lambda s: train.exponential_decay(RATE, s, 10, 0.3, staircase=True),
        RATE * 0.3 ** (STEPS // 10),
    ),
    (lambda s: train.natural_exp_decay(RATE, s, 10, 0.3), RATE * np.exp(-0.3 * STEPS / 10)),
    (lambda s: train.inverse_time_decay(RATE, s, 10, 0.3), RATE / (1 + 0.3 * STEPS / 10)),
    (
        lambda s: train.inverse_time_decay(RATE, s, 10, 0.3, True),
        RATE / (1 + 0.3 * (STEPS // 10)),
    ),
    (lambda s: train.cosine_decay(RATE, s, 10), _cosine(STEPS, 0)),
    (lambda s: train.cosine_decay(RATE, s, 10, alpha=0.2), _cosine(STEPS, 0.2)),
    (lambda s: train.polynomial_decay(RATE, s, 10, 0.1), _polynomial(STEPS, 1, False)),
    (lambda s: train.polynomial_decay(RATE, s, 10, 0.1, 2.0), _polynomial(STEPS, 2, False)),
    (lambda s: train.polynomial_decay(RATE, s, 10, 0.1, cycle=True), _polynomial(STEPS, 1, True)),
    (
        lambda s: train.piecewise_constant(s, [3, 9], [0.1, 0.2, 0.3]),
        np.select([STEPS <= 3, STEPS <= 9], [0.1, 0.2], 0.3),
    ),
]


@pytest.mark.parametrize(("function", "expected"), CASES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rates_along_the_steps(ops: Any, function: Any, expected: Any, dtype: Any) -> None:
    found = [ops.compute(function, dtype(step)) for step in STEPS]
    assert all(value.dtype == np.float32 for value in found)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_all_arguments_may_be_tensors(ops: Any) -> None:
    def run(rate: Any, steps: Any, factor: Any) -> Any:
        return train.exponential_decay(rate, tf.constant(5), steps, factor)

    value = ops.compute(run, np.array(RATE), np.array(10, np.int32), np.array(0.3))
    assert value.dtype == np.float64
    np.testing.assert_allclose(value, RATE * 0.3**0.5)


def test_names() -> None:
    step = tf.constant(1)
    assert train.exponential_decay(0.1, step, 10, 0.5).name == "ExponentialDecay:0"
    assert train.cosine_decay(0.1, step, 10, name="rate").name == "rate:0"
    assert train.polynomial_decay(0.1, step, 10).name == "PolynomialDecay:0"


@pytest.mark.parametrize(
    "function",
    [
        lambda: train.exponential_decay(0.1, None, 10, 0.5),
        lambda: train.natural_exp_decay(0.1, None, 10, 0.5),
        lambda: train.inverse_time_decay(0.1, None, 10, 0.5),
        lambda: train.cosine_decay(0.1, None, 10),
        lambda: train.polynomial_decay(0.1, None, 10),
    ],
)
def test_the_step_is_needed(function: Any) -> None:
    with pytest.raises(ValueError, match="global_step is required for"):
        function()


def test_pieces_must_fit() -> None:
    step = tf.constant(1)
    with pytest.raises(ValueError, match="boundaries should be 1 less than the length of values"):
        train.piecewise_constant(step, [1], [0.1])
    with pytest.raises(ValueError, match="must have the same dtype as x"):
        train.piecewise_constant(step, [1.5], [0.1, 0.2])
    with pytest.raises(ValueError, match="Values must have elements all with the same dtype"):
        train.piecewise_constant(step, [1], [0.1, 2])
    assert train.piecewise_constant(step, [], [0.1]).shape == ()
    with pytest.raises(ValueError, match="Shape must be rank 0 but is rank 1"):
        train.piecewise_constant([1, 2], [1], [0.1, 0.2])


@pytest.mark.parametrize("step", [[1], [1, 2], [[1]]])
def test_steps_must_be_scalars_in_the_run_too(ops: Any, step: Any) -> None:
    def run(x: Any) -> Any:
        return train.piecewise_constant(x, [1, 2], [0.1, 0.2, 0.3])

    with pytest.raises(errors.InvalidArgumentError, match="must be rank 0"):
        ops.compute(run, np.array(step), known="nothing")
