"""How convolutions are computed: a few images at a time, that stay in the cache, by several threads."""

from __future__ import annotations

import threading
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.kernels.matmul import matmul_tall, matmul_tn
from asyncmon.graph.kernels.parallel import parallel_for
from asyncmon.graph.kernels.windows import Padding, Pair, check_rank, check_shape, paddings

if TYPE_CHECKING:
    from asyncmon.graph.kernels.arrays import Array

__all__ = ["convolve", "filter_gradient", "input_gradient"]

_BLOCK = 1 << 20  # elements of temporaries at a time: 4 MB, which stay in the cache

_scratch = threading.local()


def _workspace(slot: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a temporary that this thread keeps, so that its memory is not mapped anew in each run."""
    size = prod(shape) * dtype.itemsize
    if size > 8 * _BLOCK * 4:
        return np.empty(shape, dtype)
    kept = getattr(_scratch, slot, None)
    if kept is None or kept.nbytes < size:
        kept = np.empty(size, np.uint8)
        setattr(_scratch, slot, kept)
    return kept[:size].view(dtype).reshape(shape)


class _Geometry:
    """The sizes of one convolution, which fit each other: windows are cut out of memory by them."""

    def __init__(
        self,
        images: tuple[int, ...],
        filters: tuple[int, ...],
        strides: Pair,
        padding: Padding,
        dilations: Pair,
    ) -> None:
        check_rank("Images", images)
        check_rank("Filters", filters)
        if images[3] != filters[2]:
            raise InvalidArgumentError(
                f"Depth of input ({images[3]}) is not the depth of the filter ({filters[2]}); "
                "grouped convolution is not supported"
            )
        self.images, self.filters = images, filters
        self.strides, self.dilations = strides, dilations
        rows, columns = filters[:2]
        reach = ((rows - 1) * dilations[0] + 1, (columns - 1) * dilations[1] + 1)
        self.counts, self.around = paddings(images, reach, strides, padding)
        (top, bottom), (left, right) = self.around
        self.padded = (images[1] + top + bottom, images[2] + left + right, images[3])
        self.output = (images[0], *self.counts, filters[3])
        self.plain = (rows, columns) == (1, 1) == strides and not (top + bottom + left + right)

    def blocks(self, width: int) -> list[slice]:
        """Return slices of the batch for temporaries of ``width`` elements a window."""
        step = max(1, _BLOCK // max(1, prod(self.counts) * width))
        return [slice(i, min(i + step, self.images[0])) for i in range(0, self.images[0], step)]

    def inside(self) -> tuple[slice, slice, slice]:
        """Return where the image lies in its padded copy."""
        (top, _), (left, _) = self.around
        return slice(None), slice(top, top + self.images[1]), slice(left, left + self.images[2])

    def tap(self, row: int, column: int) -> tuple[slice, slice, slice]:
        """Return the pixels of padded images that one element of the filter meets."""
        (down, right), (rows, columns) = self.strides, self.counts
        top, left = row * self.dilations[0], column * self.dilations[1]
        return (
            slice(None),
            slice(top, top + down * (rows - 1) + 1, down),
            slice(left, left + right * (columns - 1) + 1, right),
        )

    def pad(self, x: Array) -> Array:
        """Return some images with zeros around them."""
        if self.padded == self.images[1:]:
            return x
        padded = _workspace("padded", (len(x), *self.padded), x.dtype)
        padded[...] = 0
        padded[self.inside()] = x
        return padded

    def windows(self, x: Array) -> Array:
        """Return the matrix of the windows of some images, a row each."""
        depth = prod(self.filters[:3])
        if self.plain:
            return np.ascontiguousarray(x).reshape(-1, depth)
        x = self.pad(x)
        n, h, w, c = x.strides
        (down, right), (dilate_h, dilate_w) = self.strides, self.dilations
        shape = (len(x), *self.counts, *self.filters[:3])
        view = as_strided(x, shape, (n, h * down, w * right, h * dilate_h, w * dilate_w, c))
        matrix = _workspace("windows", shape, x.dtype)
        np.copyto(matrix, view)
        return matrix.reshape(-1, depth)


def _wide(*arrays: Array) -> list[Array]:
    return [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays]


def _target(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return what to compute into: half precision is computed in single."""
    return np.empty(shape, dtype) if out is None or out.dtype != dtype else out


def _given_back(result: Array, out: Array | None, dtype: np.dtype[Any]) -> Array:
    if out is None or out is result:
        return result.astype(dtype, copy=False)
    out[...] = result
    return out


def convolve(
    images: Array,
    filters: Array,
    out: Array | None = None,
    *,
    strides: Pair,
    padding: Padding,
    dilations: Pair,
) -> Array:
    """The convolution: windows gathered into a matrix, times the filters."""
    x, w = _wide(images, filters)
    geometry = _Geometry(x.shape, w.shape, strides, padding, dilations)
    matrix = np.ascontiguousarray(w).reshape(-1, w.shape[3])
    result = _target(out, geometry.output, x.dtype)

    def part(block: slice) -> None:
        matmul_tall(geometry.windows(x[block]), matrix, result[block].reshape(-1, w.shape[3]))

    parallel_for(partial(part, block) for block in geometry.blocks(len(matrix)))
    return _given_back(result, out, images.dtype)


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
    """The gradient of the filters: images times gradients, added up over all windows."""
    x, g = _wide(images, grad)
    shape = tuple(sizes.tolist())
    geometry = _Geometry(x.shape, shape, strides, padding, dilations)
    check_shape("gradient", g.shape, geometry.output)
    result = _target(out, shape, x.dtype)
    result[...] = 0
    lock = threading.Lock()

    def part(block: slice) -> None:
        flat = np.ascontiguousarray(g[block]).reshape(-1, shape[3])
        share_of_it = matmul_tn(geometry.windows(x[block]), flat)
        with lock:
            np.add(result, share_of_it.reshape(shape), out=result)

    parallel_for(partial(part, block) for block in geometry.blocks(shape[2] + shape[3]))
    return _given_back(result, out, images.dtype)


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
    """The gradient of the images: gradients times filters, added up where windows overlap."""
    w, g = _wide(filters, grad)
    shape = tuple(sizes.tolist())
    geometry = _Geometry(shape, w.shape, strides, padding, dilations)
    check_shape("gradient", g.shape, geometry.output)
    result = _target(out, shape, g.dtype)
    if g.size:
        _input_by_elements(geometry, w, g, result)
    else:
        result[...] = 0
    return _given_back(result, out, grad.dtype)


def _input_by_elements(geometry: _Geometry, w: Array, g: Array, result: Array) -> None:
    """Multiply the gradient by each element of the filter, and add that up where its windows lie."""
    rows, columns, depth, channels = w.shape
    turned = np.ascontiguousarray(w.swapaxes(2, 3))

    def part(block: slice) -> None:
        flat = np.ascontiguousarray(g[block]).reshape(-1, channels)
        count = block.stop - block.start
        padded = _workspace("padded", (count, *geometry.padded), g.dtype)
        padded[...] = 0
        product = _workspace("part", (count, *geometry.counts, depth), g.dtype)
        for row in range(rows):
            for column in range(columns):
                matmul_tall(flat, turned[row, column], product.reshape(-1, depth))
                padded[geometry.tap(row, column)] += product
        result[block] = padded[geometry.inside()]

    parallel_for(partial(part, block) for block in geometry.blocks(2 * depth + channels))
