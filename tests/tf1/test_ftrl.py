"""Follow the regularized leader, against its formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from tests.graph.train.conftest import steps as steps

train = tf.train
SETTINGS: list[dict[str, Any]] = [
    {},
    {"l1_regularization_strength": 0.5, "l2_regularization_strength": 0.1},
    {"learning_rate_power": -0.7, "initial_accumulator_value": 0.3},
    {"l2_shrinkage_regularization_strength": 0.1},
    {"beta": 0.2},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_steps(steps: Any, settings: dict[str, Any], sparse: bool) -> None:
    def reference(var: Any, grads: Any) -> Iterator[Any]:
        number = {key: steps.number(value) for key, value in settings.items()}
        rate, power = steps.number(0.1), -number.get("learning_rate_power", -0.5)
        l1 = number.get("l1_regularization_strength", 0)
        l2 = number.get("l2_regularization_strength", 0) + settings.get("beta", 0) / (2 * 0.1)
        shrinkage = number.get("l2_shrinkage_regularization_strength", 0)
        accum = np.full_like(var, settings.get("initial_accumulator_value", 0.1))
        linear = np.zeros_like(var)
        for grad in grads:
            after = accum + grad**2
            slope = (after**power - accum**power) / rate
            towards = linear + grad + 2 * shrinkage * var - slope * var
            size = after**power / rate + 2 * l2
            new = np.where(abs(towards) > l1, (np.sign(towards) * l1 - towards) / size, 0)
            touched = (grad != 0) if sparse else np.ones_like(var, bool)
            accum, linear = after, np.where(touched, towards, linear)
            var = np.where(touched, new, var)
            yield var

    steps.check(lambda: train.FtrlOptimizer(0.1, **settings), reference, sparse)


def test_slots_have_the_names_of_tf1() -> None:
    for names, slots in [
        ({}, ["v/Ftrl:0", "v/Ftrl_1:0"]),
        ({"accum_name": "a", "linear_name": "b"}, ["v/a:0", "v/b:0"]),
    ]:
        with tf.Graph().as_default():
            v = tf.Variable([1.0], name="v")
            optimizer = train.FtrlOptimizer(0.1, **names)
            optimizer.minimize(tf.reduce_sum(v))
            assert optimizer.get_slot_names() == ["accum", "linear"]
            found = [optimizer.get_slot(v, slot) for slot in ("accum", "linear")]
            assert [slot.name for slot in found if slot is not None] == slots


@pytest.mark.parametrize(
    ("argument", "value", "sign"),
    [
        ("learning_rate_power", 0.1, "negative"),
        ("initial_accumulator_value", -1.0, "positive"),
        ("l1_regularization_strength", -1.0, "positive"),
        ("l2_regularization_strength", -1.0, "positive"),
        ("l2_shrinkage_regularization_strength", -1.0, "positive"),
    ],
)
def test_numbers_out_of_range_are_refused(argument: str, value: float, sign: str) -> None:
    with pytest.raises(ValueError, match=f"{argument} {value} needs to be {sign} or zero"):
        train.FtrlOptimizer(0.1, **{argument: value})  # type: ignore[arg-type]  # an argument by name
