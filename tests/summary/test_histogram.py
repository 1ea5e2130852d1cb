"""Histograms are TF1's, bucket by bucket, whichever way they are counted."""

from __future__ import annotations

import sys
from bisect import bisect_right
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from asyncmon.summary.events import HistogramProto
from asyncmon.summary.histogram import bucket_limits, check_numbers, encode_histogram

LIMITS = bucket_limits().tolist()
MAX = sys.float_info.max


def histogram_proto(values: Any) -> HistogramProto:
    return HistogramProto.FromString(encode_histogram(values))


def tf1_histogram(values: Any) -> HistogramProto:
    """TF1's Histogram::Add and EncodeToProto, one value after the other."""
    buckets = [0.0] * len(LIMITS)
    for value in values:
        buckets[min(bisect_right(LIMITS, float(value)), len(LIMITS) - 1)] += 1
    limit, bucket, i = [], [], 0
    while i < len(buckets):
        end, count = LIMITS[i], buckets[i]
        i += 1
        while count == 0 and i < len(buckets) and buckets[i] == 0:
            end = LIMITS[i]
            i += 1
        limit.append(end)
        bucket.append(count)
    return HistogramProto(bucket_limit=limit, bucket=bucket)


def test_it_is_what_tf1_gives() -> None:
    """Recorded from TensorFlow 2.21, tf.compat.v1.summary.histogram."""
    histogram = histogram_proto([-2.5, -1, -1e-13, 0, 0, 0.1, 0.1, 1, 1.5, 7e20])
    recorded = [
        (-2.6170109961884593, 0),
        (-2.379100905625872, 1),
        (-1.0089710279437536, 0),
        (-0.917246389039776, 1),
        (-1e-12, 0),
        (0, 1),
        (1e-12, 2),
        (0.09312398815580714, 0),
        (0.10243638697138786, 2),
        (0.917246389039776, 0),
        (1.0089710279437536, 1),
        (1.47723448201245, 0),
        (1.624957930213695, 1),
        (9.920775621859783e19, 0),
        (MAX, 1),
    ]
    assert list(zip(histogram.bucket_limit, histogram.bucket, strict=True)) == recorded
    assert (histogram.min, histogram.max, histogram.num) == (-2.5, 7e20, 10)
    assert (histogram.sum, histogram.sum_squares) == (7e20, 4.9e41)


def test_nothing_has_tf1s_histogram_of_nothing() -> None:
    expected = HistogramProto(min=MAX, max=-MAX, bucket_limit=(MAX,), bucket=(0.0,))
    assert histogram_proto([]) == expected


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([*LIMITS, *np.nextafter(LIMITS[:-1], MAX).tolist(), 0.0, -0.0]),
)


@given(st.lists(numbers, max_size=30))
def test_small_arrays_are_counted_as_tf1_counts(values: list[float]) -> None:
    histogram = histogram_proto(np.array(values, np.float64))
    expected = tf1_histogram(values)
    assert (histogram.bucket_limit, histogram.bucket) == (expected.bucket_limit, expected.bucket)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_large_arrays_are_counted_as_tf1_counts(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    edges = np.concatenate([LIMITS, np.nextafter(LIMITS, 0), np.nextafter(LIMITS, MAX)])
    edges = edges[np.abs(edges) < np.finfo(dtype).max]
    spread = rng.choice([-1, 1], 20_000) * np.exp(rng.normal(size=20_000) * 20)
    values = np.concatenate([rng.normal(size=20_000), spread, edges, [0.0, -0.0]]).astype(dtype)
    extremes = [np.finfo(dtype).max, -np.finfo(dtype).max, np.finfo(dtype).tiny]
    values = np.append(values, extremes).astype(dtype)
    histogram = histogram_proto(values)
    expected = tf1_histogram(values)
    assert (histogram.bucket_limit, histogram.bucket) == (expected.bucket_limit, expected.bucket)
    assert histogram.num == values.size


@given(hnp.arrays(np.float32, st.integers(8193, 9000), elements=st.floats(-4, 4, width=32)))
def test_the_sums_are_those_of_double_precision(values: Any) -> None:
    histogram = histogram_proto(values)
    doubles = values.astype(np.float64)
    assert histogram.sum == pytest.approx(doubles.sum(), abs=1e-6)
    assert histogram.sum_squares == pytest.approx((doubles**2).sum(), abs=1e-6)
    assert (histogram.min, histogram.max) == (values.min(), values.max())


@pytest.mark.parametrize(
    "values",
    [
        np.arange(20_000, dtype=np.int64),
        np.arange(20_000, dtype=">f4"),
        np.arange(2_000, dtype=np.float16),
        np.ones((3, 4, 5), np.uint8),
        np.array([True, False]),
        np.arange(40_000.0)[::2],
        3,
    ],
)
def test_any_real_numbers_of_any_shape_will_do(values: Any) -> None:
    histogram = histogram_proto(values)
    expected = tf1_histogram(np.ravel(values).tolist())
    assert (histogram.bucket_limit, histogram.bucket) == (expected.bucket_limit, expected.bucket)


@pytest.mark.parametrize("size", [3, 20_000])
@pytest.mark.parametrize(
    ("bad", "message"),
    [(np.nan, "Nan in summary"), (np.inf, "Infinity in Histogram"), (-np.inf, "Infinity in")],
)
def test_nan_and_infinity_are_refused_su_5(size: int, bad: float, message: str) -> None:
    """SU-5."""
    values = np.ones(size)
    values[1] = bad
    with pytest.raises(ValueError, match=message):
        histogram_proto(values)


def test_other_things_than_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match="complex64 was asked for; expected real numbers"):
        check_numbers(np.complex64)
