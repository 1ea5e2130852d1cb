"""Histograms with TF1's buckets, of arrays of any size, in a few milliseconds a million elements."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon.summary.events import HistogramProto

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["bucket_limits", "check_numbers", "histogram_proto"]

_SMALL = 8192  # up to here a binary search for each element is the faster way
_BLOCK = 65536  # elements that stay in the cache while they are converted and summed


@cache
def bucket_limits() -> NDArray[np.float64]:
    """Return TF1's limits: 1e-12 growing by a tenth up to 1e20, the same below zero, and the ends."""
    growing = []
    limit = 1e-12
    while limit < 1e20:
        growing.append(limit)
        limit *= 1.1
    growing.append(np.finfo(np.float64).max)
    return np.array([-limit for limit in reversed(growing)] + [0.0] + growing)


def histogram_proto(values: ArrayLike) -> HistogramProto:
    """Return the histogram of all elements of an array. Takes about 5 ms a million.

    ``bucket[i]`` counts the elements from ``bucket_limit[i - 1]`` up to, not including,
    ``bucket_limit[i]``; runs of empty buckets are one bucket.

    Args:
        values: numbers of any shape; booleans count as 0 and 1.

    Raises:
        TypeError: these are no real numbers.
        ValueError: one of them is NaN or infinite.
    """
    flat = _as_floats(values)
    if flat.size == 0:
        largest = float(bucket_limits()[-1])
        return HistogramProto(min=largest, max=-largest, bucket_limit=(largest,), bucket=(0.0,))
    low, high = float(flat.min()), float(flat.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("Nan in summary histogram" if np.isnan(low) else "Infinity in Histogram")
    limits, counts = bucket_limits(), _counts(flat)
    empty = counts == 0
    kept = ~(empty & np.append(empty[1:], False))  # of a run of empty ones the last
    total, squares = _sums(flat)
    return HistogramProto(
        min=low,
        max=high,
        num=float(flat.size),
        sum=total,
        sum_squares=squares,
        bucket_limit=tuple(limits[kept].tolist()),
        bucket=tuple(counts[kept].astype(float).tolist()),
    )


def check_numbers(dtype: Any) -> None:
    """Check that a histogram can be made of arrays of a dtype. TypeError if not."""
    if np.dtype(dtype).kind not in "biuf":
        raise TypeError(f"A histogram of {np.dtype(dtype)} was asked for; expected real numbers.")


def _as_floats(values: ArrayLike) -> NDArray[Any]:
    array = np.ravel(np.asarray(values))
    check_numbers(array.dtype)
    if array.dtype in (np.float32, np.float64):
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)


def _counts(flat: NDArray[Any]) -> NDArray[Any]:
    """Return how many elements are in each bucket."""
    buckets = len(bucket_limits())
    if flat.size <= _SMALL:
        return _counts_one_by_one(flat)
    cells = _cells(flat.dtype == np.float64)
    if flat.dtype == np.float64:
        codes = (flat.view(np.uint32)[_HIGH_HALF::2] >> 12).astype(np.intp)
    else:
        codes = (flat.view(np.uint32) >> 13).astype(np.intp)
    in_cell = np.bincount(codes, minlength=len(cells.is_split))
    in_cell[cells.split] = 0
    in_run = np.add.reduceat(in_cell, cells.run_start)
    counts = np.bincount(cells.run_bucket, weights=in_run, minlength=buckets)
    return counts + _counts_one_by_one(flat[cells.is_split[codes]])


def _counts_one_by_one(flat: NDArray[Any]) -> NDArray[np.intp]:
    limits = bucket_limits()
    bucket = np.searchsorted(limits, flat, side="right")
    # The greatest double is the last limit; it goes below it all the same.
    return np.bincount(np.minimum(bucket, len(limits) - 1), minlength=len(limits))


class _Cells(NamedTuple):
    """Numbers whose leading bits are the same: sign, exponent and the first bits of the fraction."""

    is_split: NDArray[np.bool_]
    """Whether a bucket ends within the cell, so that its elements must be looked at one by one."""
    split: NDArray[np.intp]
    """The cells of which that is true."""
    run_start: NDArray[np.intp]
    """Where runs of cells of one bucket begin."""
    run_bucket: NDArray[np.intp]
    """The bucket of each run."""


_HIGH_HALF = int(np.little_endian)


@cache
def _cells(double: bool) -> _Cells:
    bits, shift = (20, 44) if double else (19, 13)
    kind: Any = np.float64 if double else np.float32
    dtype: Any = np.uint64 if double else np.uint32
    first: NDArray[Any] = np.arange(1 << bits, dtype=dtype) << dtype(shift)
    last = first | dtype((1 << shift) - 1)
    with np.errstate(invalid="ignore"):
        below = np.searchsorted(bucket_limits(), first.view(kind).astype(np.float64), side="right")
        above = np.searchsorted(bucket_limits(), last.view(kind).astype(np.float64), side="right")
    is_split = below != above
    run_start = np.flatnonzero(np.append(True, below[1:] != below[:-1]))
    # Infinity and NaN have no bucket; nor have they elements, so bucket 0 will do.
    run_bucket = below[run_start] % len(bucket_limits())
    return _Cells(is_split, np.flatnonzero(is_split), run_start, run_bucket)


def _sums(flat: NDArray[Any]) -> tuple[float, float]:
    total = squares = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # sums of the greatest numbers are infinite
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK].astype(np.float64, copy=False)
            total += float(block.sum())
            # Not block @ block: BLAS would wake its threads, and on a busy machine wait for them.
            squares += float(np.einsum("i,i->", block, block))
    return total, squares
