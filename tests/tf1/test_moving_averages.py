"""``assign_moving_average`` with TF1's default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import asyncmon.tf1 as tf

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(("arguments", "wanted"), [({}, 4.0), ({"zero_debias": False}, 1.75)])
def test_an_average_that_began_at_zero(
    evaluate: Callable[..., Any], arguments: Any, wanted: float
) -> None:
    v = tf.Variable(0.0, trainable=False, name="v")
    moved = tf.train.assign_moving_average(v, 4.0, 0.75, **arguments)
    assert evaluate(moved, moved) == pytest.approx(wanted)
    names = [other.op.name for other in tf.global_variables()]
    assert names == (["v"] if arguments else ["v", "v/biased", "v/local_step"])
