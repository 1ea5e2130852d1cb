"""Normalization over neighbouring channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

RNG = np.random.default_rng(23)
nn = tf.nn
IMAGES = RNG.normal(size=(2, 4, 3, 6))


@pytest.mark.parametrize("settings", [(5, 1, 1, 0.5), (2, 1.5, 1e-2, 0.75), (0, 2.0, 1.0, 1.0)])
def test_local_response_normalization(ops: Any, settings: Any) -> None:
    radius, bias, alpha, beta = settings
    sums = np.zeros_like(IMAGES)
    for i in range(6):
        sums[..., i] = (IMAGES[..., max(i - radius, 0) : i + radius + 1] ** 2).sum(-1)
    wanted = IMAGES / (bias + alpha * sums) ** beta

    def run(x: Any) -> Any:
        return nn.lrn(x, *settings)

    np.testing.assert_allclose(ops.compute(run, IMAGES), wanted, rtol=1e-10)
    np.testing.assert_allclose(ops.compute(run, IMAGES, known="nothing"), wanted, rtol=1e-10)
    ops.differentiate(run, IMAGES[:1, :1], order=1, known=True, max_elements=6)
    assert nn.local_response_normalization is nn.lrn
    half = ops.compute(run, IMAGES.astype(np.float16))
    np.testing.assert_allclose(half, wanted, rtol=0.01, atol=0.01)
    with pytest.raises(ValueError, match="rank 4"):
        nn.lrn(tf.zeros([2, 3]))
