"""The hooks of ``tf.contrib.estimator``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

pytestmark = pytest.mark.asyncio


async def test_in_memory_evaluations_before_at_intervals_and_at_the_end() -> None:
    training, testing = tf.Graph(), tf.Graph()
    with training.as_default():
        w = tf.get_variable("w", initializer=np.float32(0))
        train = tf.group(tf.assign_add(w, 1.0), tf.assign_add(tf.train.create_global_step(), 1))
    with testing.as_default():
        x = tf.placeholder(tf.float32, [], name="x")
        product = tf.get_variable("w", initializer=np.float32(-1)) * x
    feeds = [{x: 1.0}, {x: 3.0}]
    hook = tf.contrib.estimator.InMemoryEvaluatorHook(
        testing, {"wx": product}, lambda: feeds, every_n_iter=2
    )
    found: list[tuple[int, float]] = []
    hook.add_listener(lambda step, metrics: found.append((step, metrics["wx"])))
    with training.as_default():
        async with tf.train.MonitoredTrainingSession(hooks=[hook]) as sess:
            for _ in range(3):
                await sess.run(train)
    assert found == [(0, 0), (2, 4), (3, 6)]


@pytest.mark.parametrize(
    ("name", "limit", "last_step"),
    [
        ("stop_if_higher_hook", 2.5, 3),
        ("stop_if_lower_hook", 1.5, 1),
        ("stop_if_no_decrease_hook", 2, 2),
        ("stop_if_no_increase_hook", 1, 4),
    ],
)
async def test_stops_by_a_metric(name: str, limit: Any, last_step: int) -> None:
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        train = tf.assign_add(step, 1)
        evaluation = tf.contrib.estimator.InMemoryEvaluatorHook(
            tf.get_default_graph(), {"n": tf.minimum(tf.to_float(step), 3.0)}, every_n_iter=1
        )
        stop = getattr(tf.contrib.estimator, name)(evaluation, "n", limit, min_steps=1)
        async with tf.train.MonitoredTrainingSession(hooks=[evaluation, stop]) as sess:
            while not sess.should_stop():
                await sess.run(train)
            assert sess.global_step == last_step
