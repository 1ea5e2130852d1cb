"""Windows over images, for convolution and pooling."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.numerics.arrays import Array

Pair = tuple[int, int]
Padding = str | tuple[Pair, Pair]
"""``"SAME"``, ``"VALID"``, or the padding before and after rows, and columns."""

_BLOCK = 1 << 18  # elements of a block: 1 MB, which stays in the cache of a core
_SCRATCH = 1 << 25  # bytes: the greatest scratch array of a thread


def dilated(size: Sequence[Any], dilations: Pair) -> Any:
    """Return the rows and columns of dilated windows, None for an unknown number."""
    return tuple(None if k is None else (k - 1) * d + 1 for k, d in zip(size, dilations, strict=True))


def output_sizes(
    sizes: Sequence[int | None], windows: Sequence[int | None], strides: Pair, padding: Padding
) -> list[int | None]:
    """Return the numbers of windows in the rows and columns of images, None if unknown.

    Args:
        sizes: the rows and columns of the images.
        windows: the rows and columns of a window with dilation.
        strides: the distances of windows.
        padding: that of the images.

    Raises:
        ValueError: the window is larger than the image.
    """
    counts: list[int | None] = []
    for i, (size, window, stride) in enumerate(zip(sizes, windows, strides, strict=True)):
        if size is None or window is None:
            counts.append(None)
        elif padding == "SAME":
            counts.append(-(-size // stride))
        else:
            total = size if isinstance(padding, str) else size + sum(padding[i])
            if total < window:
                raise ValueError(
                    f"Negative dimension size caused by subtracting {window} from {total}: the window "
                    "is larger than the input"
                )
            counts.append((total - window) // stride + 1)
    return counts


class Windows:
    """Windows over a batch of images.

    Attributes:
        images: the shape of the images, ``(n, height, width, depth)``.
        counts: the numbers of windows in rows and columns.
        around: the padding before and after rows, and columns.
        dilated: the rows and columns of a window with dilation.
    """

    def __init__(
        self,
        images: tuple[int, ...],
        ksize: Sequence[int],
        strides: Pair,
        padding: Padding,
        dilations: Pair = (1, 1),
    ) -> None:
        self.images, self.strides, self.dilations = images, strides, dilations
        self.size: Pair = (ksize[0], ksize[1])
        self.dilated: Pair = dilated(ksize, dilations)
        rows, columns = output_sizes(images[1:3], self.dilated, strides, padding)
        self.counts: Pair = (rows or 0, columns or 0)
        self.around = (self._around(0, padding), self._around(1, padding))

    def _around(self, axis: int, padding: Padding) -> Pair:
        if not isinstance(padding, str):
            return padding[axis]
        wanted = (self.counts[axis] - 1) * self.strides[axis] + self.dilated[axis]
        total = max(wanted - self.images[1 + axis], 0) if padding == "SAME" else 0
        return total // 2, total - total // 2

    def blocks(self, width: int) -> list[slice]:
        """Return slices of the batch for temporaries of ``width`` elements per window."""
        each = prod(self.counts)
        step, count = max(1, _BLOCK // max(1, each * width)), self.images[0] if each else 0
        return [slice(i, min(i + step, count)) for i in range(0, count, step)]

    def pad(self, x: Array, value: Any = 0, slot: str = "padded") -> Array:
        """Return padded images in a scratch array, or ``x`` without padding."""
        if self.around == ((0, 0), (0, 0)):
            return x
        (top, bottom), (left, right) = self.around
        n, height, width, depth = x.shape
        padded = scratch(slot, (n, height + top + bottom, width + left + right, depth), x.dtype)
        padded[...] = value
        self._inside(padded)[...] = x
        return padded

    def _inside(self, padded: Array) -> Array:
        (top, _), (left, _) = self.around
        return padded[:, top : top + self.images[1], left : left + self.images[2]]

    def taps(self, padded: Array) -> Iterator[Array]:
        """Yield a view of each element of a window in all windows."""
        (down, across), (rows, columns) = self.strides, self.counts
        for top in range(0, self.dilated[0], self.dilations[0]):
            for left in range(0, self.dilated[1], self.dilations[1]):
                yield padded[:, top : top + down * rows : down, left : left + across * columns : across]

    def scatter(self, parts: Iterable[Array], images: Array) -> None:
        """Set images to the sum of arrays, one for each tap."""
        images[...] = 0
        padded = self.pad(images, slot="sum")
        for place, part in zip(self.taps(padded), parts, strict=True):
            place += part
        if padded is not images:
            images[...] = self._inside(padded)


def check_rank(what: str, shape: tuple[int, ...]) -> None:
    """Raise InvalidArgumentError unless a shape of the run has four dimensions."""
    if len(shape) != 4:
        raise InvalidArgumentError(f"{what} must have 4 dimensions, got shape {list(shape)}")


def check_gradient(grad: Array, windows: Windows, depth: int) -> None:
    """Raise InvalidArgumentError unless a gradient has the shape of the output of the windows."""
    expected = (windows.images[0], *windows.counts, depth)
    if grad.shape != expected:
        raise InvalidArgumentError(
            f"The gradient has shape {list(grad.shape)}, for these windows it must have "
            f"{list(expected)}"
        )


def checked_windows(
    images: tuple[int, ...], filters: tuple[int, ...], grad: Array, **attrs: Any
) -> Windows:
    """Check the shapes of a convolution, one of which is a value of the run; return its windows."""
    check_rank("Images", images)
    check_rank("Filters", filters)
    if images[3] != filters[2]:
        raise InvalidArgumentError(
            f"Depth of input ({images[3]}) is not the depth of the filter ({filters[2]}); "
            "grouped convolution is not supported"
        )
    windows = Windows(images, filters[:2], **attrs)
    check_gradient(grad, windows, filters[3])
    return windows


_local = threading.local()


def scratch(slot: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialised array in memory that the thread reuses, which avoids page faults."""
    size = prod(shape) * dtype.itemsize
    if size > _SCRATCH:
        return np.empty(shape, dtype)
    memory = getattr(_local, slot, None)
    if memory is None or memory.nbytes < size:
        memory = np.empty(size, np.uint8)
        setattr(_local, slot, memory)
    return memory[:size].view(dtype).reshape(shape)
