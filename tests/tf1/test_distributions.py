"""``tf.distributions``; the values beside TensorFlow's are in ``values``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf


@pytest.mark.usefixtures("graph")
def test_samples_have_the_moments_of_the_distribution(evaluate: Callable[..., Any]) -> None:
    normal = tf.distributions.Normal([1.0, -2.0], [0.5, 2.0])
    classes = tf.contrib.distributions.Categorical(probs=[[0.2, 0.8], [0.7, 0.3]])
    draws, picked = evaluate([normal.sample(20_000, seed=1), classes.sample([20_000], seed=2)])
    np.testing.assert_allclose(draws.mean(0), [1.0, -2.0], atol=0.06)
    np.testing.assert_allclose(draws.std(0), [0.5, 2.0], rtol=0.03)
    np.testing.assert_allclose(picked.mean(0), [0.8, 0.3], atol=0.02)


@pytest.mark.usefixtures("graph")
def test_gradients_flow_through_samples_and_probabilities(evaluate: Callable[..., Any]) -> None:
    loc, logits = tf.constant([0.0]), tf.constant([[0.0, 0.0]])
    by_loc = tf.gradients(tf.distributions.Normal(loc, [1.0]).sample(3, seed=1), loc)[0]
    by_logits = tf.gradients(tf.distributions.Categorical(logits).log_prob([1]), logits)[0]
    found = evaluate([by_loc, by_logits])
    assert found[0].tolist() == [3.0]
    assert found[1].tolist() == [[-0.5, 0.5]]


@pytest.mark.usefixtures("graph")
def test_parameters_are_checked(evaluate: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="Must pass probs or logits, but not both"):
        tf.distributions.Categorical()
    wrong = tf.distributions.Normal(0.0, -1.0, validate_args=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="scale must be positive"):
        evaluate(wrong.entropy())
