"""Convolution: a few images at a time, which stay in the cache, on several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.kernels.arrays import Array, in_single
from asyncmon.graph.kernels.blas import single_threaded_blas
from asyncmon.graph.kernels.parallel import CORES, parallel_for
from asyncmon.graph.kernels.replaced import replaceable
from asyncmon.graph.kernels.windows import Padding, Pair, Windows, check_gradient, check_rank, scratch


def checked_windows(
    images: tuple[int, ...], filters: tuple[int, ...], grad: Array, *args: Any, **attrs: Any
) -> Windows:
    """Check shapes, one of which is a value of the run, and return the windows."""
    check_rank("Images", images)
    check_rank("Filters", filters)
    if images[3] != filters[2]:
        raise InvalidArgumentError(
            f"Depth of input ({images[3]}) is not the depth of the filter ({filters[2]}); "
            "grouped convolution is not supported"
        )
    windows = Windows(images, filters[:2], *args, **attrs)
    check_gradient(grad, windows, filters[3])
    return windows


def _matrix(windows: Windows, x: Array) -> Array:
    """Return the im2col matrix of some images: a row for each window."""
    depth = windows.images[3]
    if windows.size == windows.strides == (1, 1) and windows.counts == x.shape[1:3]:
        return np.ascontiguousarray(x).reshape(-1, depth)
    (down, across), (dilate_h, dilate_w) = windows.strides, windows.dilations
    view = sliding_window_view(windows.pad(x), windows.dilated, (1, 2))
    view = view[:, ::down, ::across, :, ::dilate_h, ::dilate_w].transpose(0, 1, 2, 4, 5, 3)
    matrix = scratch("windows", view.shape, x.dtype)
    np.copyto(matrix, view)
    return matrix.reshape(-1, prod(windows.size) * depth)


def _in_parallel(part: Callable[[Any], None], blocks: Iterable[Any]) -> None:
    """Call a function for each block, on several threads with BLAS on one each."""
    with single_threaded_blas():
        parallel_for(partial(part, block) for block in blocks)


@replaceable
@in_single
def convolve(
    images: Array,
    filters: Array,
    out: Array | None = None,
    *,
    strides: Pair,
    padding: Padding,
    dilations: Pair,
) -> Array:
    """Multiply the im2col matrix by the filters."""
    channels = filters.shape[3]
    windows = Windows(images.shape, filters.shape[:2], strides, padding, dilations)
    matrix = np.ascontiguousarray(filters).reshape(-1, channels)
    if out is None:
        out = np.empty((len(images), *windows.counts, channels), images.dtype)

    def part(block: slice) -> None:
        np.dot(_matrix(windows, images[block]), matrix, out[block].reshape(-1, channels))

    _in_parallel(part, windows.blocks(len(matrix)))
    return out


@replaceable
@in_single
def filter_gradient(
    images: Array,
    sizes: Array,
    grad: Array,
    out: Array | None = None,
    *,
    strides: Pair,
    padding: Padding,
    dilations: Pair,
) -> Array:
    """Multiply the transposed im2col matrix by the gradients."""
    shape = tuple(sizes.tolist())
    windows = checked_windows(images.shape, shape, grad, strides, padding, dilations)
    blocks = windows.blocks(prod(shape[:3]))
    count = min(len(blocks), CORES)
    sums = np.zeros((count, *shape), images.dtype)  # added in order: bits do not depend on threads

    def part(i: int) -> None:
        total = sums[i].reshape(-1, shape[3])
        for block in blocks[i::count]:
            flat = np.ascontiguousarray(grad[block]).reshape(-1, shape[3])
            total += np.dot(_matrix(windows, images[block]).T, flat)

    _in_parallel(part, range(count))
    return np.add.reduce(sums, axis=0, out=out)


@replaceable
@in_single
def input_gradient(
    sizes: Array,
    filters: Array,
    grad: Array,
    out: Array | None = None,
    *,
    strides: Pair,
    padding: Padding,
    dilations: Pair,
) -> Array:
    """Multiply the gradients by each element of the filters, and add up where windows overlap."""
    shape = tuple(sizes.tolist())
    windows = checked_windows(shape, filters.shape, grad, strides, padding, dilations)
    depth, channels = filters.shape[2:]
    result = np.empty(shape, grad.dtype) if out is None else out
    elements = np.ascontiguousarray(filters.reshape(-1, depth, channels).swapaxes(1, 2))

    def products(flat: Array, product: Array) -> Iterator[Array]:
        for element in elements:
            np.dot(flat, element, product.reshape(-1, depth))
            yield product

    def part(block: slice) -> None:
        flat = np.ascontiguousarray(grad[block]).reshape(-1, channels)
        product = scratch("product", (*grad[block].shape[:3], depth), grad.dtype)
        windows.scatter(products(flat, product), result[block])

    _in_parallel(part, windows.blocks(2 * depth + channels))
    return result
