"""Compute histograms with TF1's buckets, at a few milliseconds per million elements."""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asyncmon.protobuf import delimited

_SMALL = 8192  # up to this size a binary search of each element is faster
_BLOCK = 65536  # elements that fit in the cache while they are converted and summed


@cache
def bucket_limits() -> NDArray[np.float64]:
    """Return TF1's limits: 1e-12 * 1.1**n up to 1e20, their negatives, zero and the largest doubles."""
    growing = []
    limit = 1e-12
    while limit < 1e20:
        growing.append(limit)
        limit *= 1.1
    growing.append(np.finfo(np.float64).max)
    return np.array([-limit for limit in reversed(growing)] + [0.0] + growing)


def encode_histogram(values: ArrayLike) -> bytes:
    """Return a serialized :class:`~asyncmon.summary.events.HistogramProto` of an array.

    ``bucket[i]`` counts the elements from ``bucket_limit[i - 1]`` up to, not including,
    ``bucket_limit[i]``. Adjacent empty buckets are merged. Takes about 6 ms per million elements.

    Args:
        values: numbers of any shape; booleans count as 0 and 1.

    Raises:
        TypeError: the elements are no real numbers.
        ValueError: one of them is NaN or infinite.
    """
    flat = _as_floats(values)
    limits = bucket_limits()
    if flat.size == 0:
        return _encoded(limits[-1], -limits[-1], 0, 0.0, 0.0, limits[-1:], np.zeros(1))
    low, high = float(flat.min()), float(flat.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("Nan in summary histogram" if math.isnan(low) else "Infinity in Histogram")
    counts = _counts(flat)
    full = counts > 0
    kept = full.copy()
    kept[:-1] |= full[1:]  # the last one of adjacent empty buckets
    kept[-1] = True
    return _encoded(low, high, flat.size, *_sums(flat), limits[kept], counts[kept])


_NUMBERS = struct.Struct("<BdBdBdBdBd")


def _encoded(
    low: float,
    high: float,
    count: int,
    total: float,
    squares: float,
    limits: NDArray[Any],
    counts: NDArray[Any],
) -> bytes:
    numbers = _NUMBERS.pack(0x09, low, 0x11, high, 0x19, count, 0x21, total, 0x29, squares)
    doubles = [delimited(n, array.astype("<f8").tobytes()) for n, array in ((6, limits), (7, counts))]
    return numbers + b"".join(doubles)


def check_numbers(dtype: Any) -> None:
    """Raise TypeError unless a dtype is one of real numbers."""
    if np.dtype(dtype).kind not in "biuf":
        raise TypeError(f"A histogram of {np.dtype(dtype)} was asked for; expected real numbers.")


def _as_floats(values: ArrayLike) -> NDArray[Any]:
    array = np.ravel(np.asarray(values))
    check_numbers(array.dtype)
    if array.dtype in (np.float32, np.float64):
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)


def _counts(flat: NDArray[Any]) -> NDArray[Any]:
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
    counts = np.bincount(cells.run_bucket, weights=in_run, minlength=len(bucket_limits()))
    return counts + _counts_one_by_one(flat[cells.is_split[codes]])


def _counts_one_by_one(flat: NDArray[Any]) -> NDArray[np.intp]:
    limits = bucket_limits()
    bucket = np.searchsorted(limits, flat.astype(np.float64, copy=False), side="right")
    # The largest double is the last limit itself, and counts below it.
    return np.bincount(np.minimum(bucket, len(limits) - 1), minlength=len(limits))


class _Cells(NamedTuple):
    """Classes of floats with equal leading bits: sign, exponent and the first bits of the fraction."""

    is_split: NDArray[np.bool_]
    """Whether a cell contains a limit, so that its elements are counted one by one."""
    split: NDArray[np.intp]
    """The numbers of these cells."""
    run_start: NDArray[np.intp]
    """The first cell of each run of cells in one bucket."""
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
    # The cells of infinity and NaN have no elements, so any bucket will do.
    run_bucket = below[run_start] % len(bucket_limits())
    return _Cells(is_split, np.flatnonzero(is_split), run_start, run_bucket)


def _sums(flat: NDArray[Any]) -> tuple[float, float]:
    total = squares = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # sums of huge numbers are infinite
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK].astype(np.float64, copy=False)
            total += float(block.sum())
            # block @ block would wake the threads of BLAS, and wait for them on a busy machine.
            squares += float(np.einsum("i,i->", block, block))
    return total, squares
