"""Convolution of each channel by itself: a few images at a time, which stay in the cache."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.kernels.arrays import in_single
from asyncmon.graph.kernels.parallel import parallel_for
from asyncmon.graph.kernels.windows import Padding, Pair, Windows, check_gradient, check_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncmon.graph.kernels.arrays import Array


def _windows(
    images: tuple[int, ...], filters: tuple[int, ...], strides: Pair, padding: Padding, dilations: Pair
) -> Windows:
    check_rank("Images", images)
    check_rank("Filters", filters)
    if images[3] != filters[2]:
        raise InvalidArgumentError(
            f"Depth of input ({images[3]}) is not the depth of the filter ({filters[2]})"
        )
    return Windows(images, filters[:2], strides, padding, dilations)


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
    """Add up what each element of the filters makes of its channel."""
    depth, times = filters.shape[2:]
    windows = _windows(images.shape, filters.shape, strides, padding, dilations)
    if out is None:
        out = np.empty((len(images), *windows.counts, depth * times), images.dtype)
    elements = filters.reshape(-1, depth, times)

    def part(block: slice) -> None:
        total = out[block].reshape(-1, *windows.counts, depth, times)
        total[...] = 0
        for place, element in zip(windows.taps(windows.pad(images[block])), elements, strict=True):
            total += np.multiply(place[..., None], element)

    parallel_for(partial(part, block) for block in windows.blocks(depth * (times + 1)))
    return out


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
    """Give each channel what the elements of its filters make of the gradients."""
    shape = tuple(sizes.tolist())
    depth, times = filters.shape[2:]
    windows = _windows(shape, filters.shape, strides, padding, dilations)
    check_gradient(grad, windows, depth * times)
    result = np.empty(shape, grad.dtype) if out is None else out
    elements = filters.reshape(-1, depth, times)

    def products(flows: Array) -> Iterator[Array]:
        for element in elements:
            yield np.einsum("nyxcm,cm->nyxc", flows, element)

    def part(block: slice) -> None:
        flows = grad[block].reshape(-1, *windows.counts, depth, times)
        windows.scatter(products(flows), result[block])

    parallel_for(partial(part, block) for block in windows.blocks(depth * (times + 2)))
    return result


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
    """Add up, for each element of the filters, products of its channel with the gradients."""
    shape = tuple(sizes.tolist())
    depth, times = shape[2:]
    windows = _windows(images.shape, shape, strides, padding, dilations)
    check_gradient(grad, windows, depth * times)
    total = np.zeros((shape[0] * shape[1], depth, times), images.dtype)
    for block in windows.blocks(depth * (times + 1)):
        flows = grad[block].reshape(-1, *windows.counts, depth, times)
        for i, place in enumerate(windows.taps(windows.pad(images[block]))):
            total[i] += np.einsum("nyxc,nyxcm->cm", place, flows)
    if out is None:
        return total.reshape(shape)
    out[...] = total.reshape(shape)
    return out
