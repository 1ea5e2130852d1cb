"""Pooling: a few images at a time, which stay in the cache, on several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import repeat
from math import prod
from typing import Any

import numpy as np

from asyncmon.graph.kernels.arrays import Array
from asyncmon.graph.kernels.parallel import parallel_for
from asyncmon.graph.kernels.replaced import replaceable
from asyncmon.graph.kernels.windows import Padding, Pair, Windows, check_gradient, check_rank


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _combined(ufunc: np.ufunc, windows: Windows, x: Array) -> Array:
    """Return the elements of each window of padded images combined, first in rows, then in columns."""
    (height, width), (down, across), (rows, columns) = windows.size, windows.strides, windows.counts
    x = reduce(ufunc, [x[:, :, j : j + across * columns : across] for j in range(width)])
    return reduce(ufunc, [x[:, i : i + down * rows : down] for i in range(height)])


def _for_blocks(windows: Windows, part: Callable[[slice], None]) -> None:
    blocks = windows.blocks(prod(windows.strides) * windows.images[3])
    parallel_for(partial(part, block) for block in blocks)


def _pooled(x: Array, windows: Windows, out: Array | None) -> Array:
    return np.empty((len(x), *windows.counts, x.shape[3]), x.dtype) if out is None else out


@replaceable
def max_pool(
    x: Array, out: Array | None = None, *, ksize: Pair, strides: Pair, padding: Padding
) -> Array:
    """Return the greatest element of each window."""
    windows = Windows(x.shape, ksize, strides, padding)
    result = _pooled(x, windows, out)

    def part(block: slice) -> None:
        result[block] = _combined(np.maximum, windows, windows.pad(x[block], _lowest(x.dtype)))

    _for_blocks(windows, part)
    return result


@replaceable
def max_pool_grad(
    x: Array,
    y: Array,
    grad: Array,
    out: Array | None = None,
    *,
    ksize: Pair,
    strides: Pair,
    padding: Padding,
) -> Array:
    """Give the gradient of each window to the first of its greatest elements."""
    windows = Windows(x.shape, ksize, strides, padding)
    result = np.empty(x.shape, grad.dtype) if out is None else out

    def flows(block: slice) -> Iterator[Array]:
        left = grad[block].copy()
        *places, _ = windows.taps(windows.pad(x[block], _lowest(x.dtype)))
        for elements in places:
            taken = np.multiply(left, np.equal(elements, y[block]))
            yield taken
            left -= taken
        yield left  # what no other element took

    _for_blocks(windows, lambda block: windows.scatter(flows(block), result[block]))
    return result


def max_pool_grad_grad(
    x: Array, y: Array, grad: Array, *, ksize: Pair, strides: Pair, padding: Padding
) -> Array:
    """Return what ``grad``, an array like ``x``, has at the first greatest element of each window."""
    windows = Windows(x.shape, ksize, strides, padding)
    result, open_ = np.zeros_like(y), np.ones(y.shape, bool)
    padded, others = windows.pad(x, _lowest(x.dtype)), windows.pad(grad, slot="others")
    for elements, other in zip(windows.taps(padded), windows.taps(others), strict=True):
        here = np.equal(elements, y) & open_
        result += other * here
        open_ &= ~here
    return result


def _counts_inside(windows: Windows, dtype: np.dtype[Any]) -> Array:
    """Return how many elements of each window are not padding."""
    one = Windows((1, *windows.images[1:3], 1), windows.size, windows.strides, windows.around)
    return _combined(np.add, one, one.pad(np.ones(one.images, dtype)))


@replaceable
def avg_pool(
    x: Array, out: Array | None = None, *, ksize: Pair, strides: Pair, padding: Padding
) -> Array:
    """Return the mean of each window, padding not counted."""
    windows = Windows(x.shape, ksize, strides, padding)
    result, inside = _pooled(x, windows, out), _counts_inside(windows, x.dtype)

    def part(block: slice) -> None:
        np.divide(_combined(np.add, windows, windows.pad(x[block])), inside, out=result[block])

    _for_blocks(windows, part)
    return result


@replaceable
def avg_pool_grad(
    shape: Array,
    grad: Array,
    out: Array | None = None,
    *,
    ksize: Pair,
    strides: Pair,
    padding: Padding,
) -> Array:
    """Spread the gradient of each window evenly over its elements."""
    images = tuple(shape.tolist())
    check_rank("Images", images)
    windows = Windows(images, ksize, strides, padding)
    check_gradient(grad, windows, images[3])
    result = np.empty(windows.images, grad.dtype) if out is None else out
    inside = _counts_inside(windows, grad.dtype)

    def part(block: slice) -> None:
        windows.scatter(repeat(np.divide(grad[block], inside), prod(ksize)), result[block])

    _for_blocks(windows, part)
    return result
