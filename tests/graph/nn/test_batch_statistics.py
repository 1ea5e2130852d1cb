"""Normalization over neighbouring channels, fused batch normalization, moments with weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

RNG = np.random.default_rng(23)
nn = tf.nn
IMAGES = RNG.normal(size=(2, 4, 3, 6))
SCALE, OFFSET, MEAN, VARIANCE = RNG.random((4, 6)) + 0.1


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


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_fused_batch_norm(ops: Any, layout: str) -> None:
    mean, biased = IMAGES.mean((0, 1, 2)), IMAGES.var((0, 1, 2))
    count = IMAGES.size // 6
    last = layout == "NHWC"
    given = IMAGES if last else IMAGES.transpose(0, 3, 1, 2)

    def run(x: Any, *arguments: Any, **settings: Any) -> Any:
        found = nn.fused_batch_norm(x, SCALE, OFFSET, *arguments, data_format=layout, **settings)
        return [found[0] if last else tf.transpose(found[0], [0, 2, 3, 1]), *found[1:]]

    y, moved, spread = ops.compute(run, given)
    wanted = (IMAGES - mean) / np.sqrt(biased + 1e-3) * SCALE + OFFSET
    np.testing.assert_allclose(y, wanted, rtol=1e-8)
    unbiased = biased * count / (count - 1)
    np.testing.assert_allclose([moved, spread], [mean, unbiased], rtol=1e-8)
    y, moved, spread = ops.compute(lambda x: run(x, MEAN, VARIANCE, is_training=False), given)
    np.testing.assert_allclose(
        y, (IMAGES - MEAN) / np.sqrt(VARIANCE + 1e-3) * SCALE + OFFSET, rtol=1e-8
    )
    np.testing.assert_allclose([moved, spread], [MEAN, VARIANCE])
    _, moved, spread = ops.compute(lambda x: run(x, MEAN, VARIANCE, exponential_avg_factor=0.25), given)
    np.testing.assert_allclose(moved, 0.25 * mean + 0.75 * MEAN, rtol=1e-8)
    np.testing.assert_allclose(spread, 0.25 * unbiased + 0.75 * VARIANCE, rtol=1e-8)


def test_fused_batch_norm_needs_moments_outside_of_training() -> None:
    for settings in ({"is_training": False}, {"exponential_avg_factor": 0.5}):
        with pytest.raises(ValueError, match="Both `mean` and `variance` must be a 1D tensor"):
            nn.fused_batch_norm(IMAGES, SCALE, OFFSET, **settings)


def test_batch_norm_under_older_names(ops: Any) -> None:
    x, arguments = tf.constant(IMAGES), (MEAN, VARIANCE, OFFSET, SCALE, 1e-3)
    plain = nn.batch_normalization(x, MEAN, tf.constant(VARIANCE), OFFSET, SCALE, 1e-3)
    older = nn.batch_norm_with_global_normalization(
        x, MEAN, tf.constant(VARIANCE), *arguments[2:], True
    )
    np.testing.assert_allclose(*ops.evaluate([plain, older]))


@pytest.mark.parametrize("axes", [[0], [1, 2], [0, 1, 2, 3], [-1]])
@pytest.mark.parametrize("keepdims", [True, False])
def test_moments_with_weights(ops: Any, axes: Any, keepdims: bool) -> None:
    weights = RNG.random(IMAGES.shape)
    along = tuple(axes)
    mean = np.average(IMAGES, along, weights, keepdims=True)
    variance = np.average((IMAGES - mean) ** 2, along, weights, keepdims=True)
    if not keepdims:
        mean, variance = mean.squeeze(along), variance.squeeze(along)
    found = ops.compute(lambda x: nn.weighted_moments(x, axes, weights, keepdims=keepdims), IMAGES)
    np.testing.assert_allclose(found[0], mean, rtol=1e-8)
    np.testing.assert_allclose(found[1], variance, rtol=1e-8)


def test_weights_broadcast_and_may_be_zero(ops: Any) -> None:
    found = ops.compute(lambda x: nn.weighted_moments(x, [0, 1], np.arange(6)), IMAGES)
    np.testing.assert_allclose(found[0][:, 1:], IMAGES.mean((0, 1))[:, 1:], rtol=1e-8)
    assert (found[0][:, 0] == 0).all()


@pytest.mark.parametrize("shift", [None, 2.0])
@pytest.mark.parametrize("known", ["all", "rank"])
def test_statistics_make_moments(ops: Any, shift: float | None, known: str) -> None:
    def run(x: Any) -> Any:
        count, total, squares, by = nn.sufficient_statistics(x, [0, -1], shift)
        return [count, *nn.normalize_moments(count, total, squares, by)]

    count, mean, variance = ops.compute(run, IMAGES, known=known)
    assert count == 12
    np.testing.assert_allclose(mean, IMAGES.mean((0, 3)), rtol=1e-6)
    np.testing.assert_allclose(variance, IMAGES.var((0, 3)), rtol=1e-6)


def test_crelu(ops: Any) -> None:
    for axis in (-1, 1):
        wanted = np.maximum(np.concatenate([IMAGES, -IMAGES], axis), 0)

        def run(x: Any, axis: int = axis) -> Any:
            return nn.crelu(x, axis=axis)

        ops.agree(run, wanted, IMAGES)


def test_log_poisson_loss(ops: Any) -> None:
    counts = np.abs(IMAGES) * 3
    plain = np.exp(IMAGES) - IMAGES * counts
    rest = counts * np.log(counts) - counts + 0.5 * np.log(2 * np.pi * counts)
    ops.agree(lambda x: nn.log_poisson_loss(tf.cast(counts, x.dtype), x), plain, IMAGES)
    full = plain + np.where(counts <= 1, 0, rest)
    ops.agree(lambda x: nn.log_poisson_loss(tf.cast(counts, x.dtype), x, True), full, IMAGES)
    with pytest.raises(ValueError, match="must have the same shape"):
        nn.log_poisson_loss(IMAGES, IMAGES[:1])
