"""How pooling is computed: a few images at a time, which stay in the cache, by several threads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.kernels.parallel import parallel_for
from asyncmon.graph.kernels.windows import Padding, Pair, check_rank, check_shape, paddings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asyncmon.graph.kernels.arrays import Array

__all__ = ["avg_pool", "avg_pool_grad", "max_pool", "max_pool_grad", "max_pool_grad_grad"]

_BLOCK = 1 << 18  # elements of images at a time: 1 MB, which stays in the cache of a core


def _in_blocks(shape: tuple[int, ...], part: Callable[[slice], None]) -> None:
    """Call a function for slices of a batch of images of this shape."""
    count, height, width, depth = shape
    step = max(1, _BLOCK // max(1, height * width * depth))
    parallel_for(partial(part, slice(i, i + step)) for i in range(0, count, step))


def _steps(start: int, count: int, stride: int) -> slice:
    return slice(start, start + stride * (count - 1) + 1, stride)


def _padded(x: Array, around: tuple[Pair, Pair], value: Any) -> Array:
    """Return the images with a value around them; themselves where nothing is added."""
    (top, bottom), (left, right) = around
    if not top + bottom + left + right:
        return x
    n, height, width, depth = x.shape
    result = np.full((n, height + top + bottom, width + left + right, depth), value, x.dtype)
    result[:, top : top + height, left : left + width] = x
    return result


def _unpadded(x: Array, shape: tuple[int, ...], around: tuple[Pair, Pair]) -> Array:
    (top, _), (left, _) = around
    return x[:, top : top + shape[1], left : left + shape[2]]


def _reduce(ufunc: np.ufunc, x: Array, ksize: Pair, strides: Pair, out: Array) -> None:
    """Combine the elements of each window: first within rows, then the rows."""
    across = x[:, :, _steps(0, out.shape[2], strides[1])]
    for i in range(1, ksize[1]):
        other = x[:, :, _steps(i, out.shape[2], strides[1])]
        across = ufunc(across, other, out=across if i > 1 else None)
    down = across[:, _steps(0, out.shape[1], strides[0])]
    for i in range(1, ksize[0]):
        down = ufunc(down, across[:, _steps(i, out.shape[1], strides[0])], out=out)
    if ksize[0] == 1:
        out[...] = down


def _taps(x: Array, ksize: Pair, strides: Pair, counts: Pair) -> Iterator[Array]:
    """Yield for each place in a window the elements there, of all windows, as a view."""
    for i in range(ksize[0]):
        rows = x[:, _steps(i, counts[0], strides[0])]
        for j in range(ksize[1]):
            yield rows[:, :, _steps(j, counts[1], strides[1])]


def _windows(
    shape: tuple[int, ...],
    ksize: Pair,
    strides: Pair,
    padding: Padding,
    **like_output: Array,
) -> tuple[Pair, tuple[Pair, Pair]]:
    """Return what :func:`paddings` does, of images; refuse what is not of the output's shape."""
    check_rank("Images", shape)
    counts, around = paddings(shape, ksize, strides, padding)
    for what, array in like_output.items():
        check_shape(what, array.shape, (shape[0], *counts, shape[3]))
    return counts, around


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _result(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.empty(shape, dtype) if out is None else out


def max_pool(
    x: Array, out: Array | None = None, *, ksize: Pair, strides: Pair, padding: Padding
) -> Array:
    """The greatest element of each window."""
    counts, around = _windows(x.shape, ksize, strides, padding)
    result = _result(out, (len(x), *counts, x.shape[3]), x.dtype)

    def part(block: slice) -> None:
        padded = _padded(x[block], around, _lowest(x.dtype))
        _reduce(np.maximum, padded, ksize, strides, result[block])

    _in_blocks(x.shape, part)
    return result


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
    counts, around = _windows(x.shape, ksize, strides, padding, output=y, gradient=grad)
    apart = strides[0] >= ksize[0] and strides[1] >= ksize[1]
    result = _result(out, x.shape, grad.dtype)

    def part(block: slice) -> None:
        values = _padded(x[block], around, _lowest(x.dtype))
        target = (
            result[block] if values.shape[1:] == x.shape[1:] else np.empty(values.shape, grad.dtype)
        )
        target[...] = 0
        left = grad[block].copy()
        places = zip(
            _taps(values, ksize, strides, counts), _taps(target, ksize, strides, counts), strict=True
        )
        for found, place in list(places)[:-1]:
            taken = np.multiply(left, np.equal(found, y[block]), out=place if apart else None)
            if not apart:
                place += taken
            left -= taken
        *_, last = _taps(target, ksize, strides, counts)
        last += left  # what no other element took
        if target.shape[1:] != x.shape[1:]:
            result[block] = _unpadded(target, x.shape, around)

    _in_blocks(x.shape, part)
    return result


def max_pool_grad_grad(
    x: Array, y: Array, grad: Array, *, ksize: Pair, strides: Pair, padding: Padding
) -> Array:
    """Pick, of a tensor like the input, what lies at the first greatest element of each window."""
    counts, around = _windows(x.shape, ksize, strides, padding, output=y)
    check_shape("gradient", grad.shape, x.shape)
    padded = _padded(x, around, _lowest(x.dtype))
    result, open_ = np.zeros_like(y), np.ones(y.shape, bool)
    for values, other in zip(
        _taps(padded, ksize, strides, counts),
        _taps(_padded(grad, around, 0), ksize, strides, counts),
        strict=True,
    ):
        here = np.equal(values, y) & open_
        result += other * here
        open_ &= ~here
    return result


def _counts_inside(shape: tuple[int, ...], ksize: Pair, strides: Pair, padding: Padding) -> Any:
    """Return how many elements of each window are not padding."""
    counts, around = paddings(shape, ksize, strides, padding)
    if around == ((0, 0), (0, 0)):
        return ksize[0] * ksize[1]
    sizes = []
    for i in (0, 1):
        start = np.arange(counts[i]) * strides[i] - around[i][0]
        sizes.append(np.minimum(start + ksize[i], shape[1 + i]) - np.maximum(start, 0))
    return (sizes[0][:, None] * sizes[1])[None, :, :, None]


def avg_pool(
    x: Array, out: Array | None = None, *, ksize: Pair, strides: Pair, padding: Padding
) -> Array:
    """The mean of each window, padding not counted."""
    counts, around = _windows(x.shape, ksize, strides, padding)
    result = _result(out, (len(x), *counts, x.shape[3]), x.dtype)
    inside = _counts_inside(x.shape, ksize, strides, padding)

    def part(block: slice) -> None:
        target = result[block]
        _reduce(np.add, _padded(x[block], around, 0), ksize, strides, target)
        np.divide(target, inside, out=target, dtype=x.dtype)

    _in_blocks(x.shape, part)
    return result


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
    sizes = tuple(shape.tolist())
    counts, around = _windows(sizes, ksize, strides, padding, gradient=grad)
    inside = _counts_inside(sizes, ksize, strides, padding)
    (top, bottom), (left, right) = around
    result = _result(out, sizes, grad.dtype)

    def part(block: slice) -> None:
        each = np.divide(grad[block], inside, dtype=grad.dtype)
        frame = (len(each), sizes[1] + top + bottom, sizes[2] + left + right, sizes[3])
        padded = np.zeros(frame, grad.dtype)
        for place in _taps(padded, ksize, strides, counts):
            place += each
        result[block] = _unpadded(padded, sizes, around)

    _in_blocks(sizes, part)
    return result
