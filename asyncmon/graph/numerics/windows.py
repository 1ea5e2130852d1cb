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
"""``"SAME"``, ``"VALID"``, or what to add before and after rows, and columns."""

_BLOCK = 1 << 18  # elements at a time: 1 MB, which stays in the cache of a core
_SCRATCH = 1 << 25  # bytes that a thread keeps of one kind


def dilated(size: Sequence[Any], dilations: Pair) -> Any:
    """Return rows and columns of dilated windows; None for a number gives None."""
    return tuple(None if k is None else (k - 1) * d + 1 for k, d in zip(size, dilations, strict=True))


def output_sizes(
    sizes: Sequence[int | None], windows: Sequence[int | None], strides: Pair, padding: Padding
) -> list[int | None]:
    """Return how many windows fit into the rows, and into the columns, of images.

    Args:
        sizes: of the images; None gives None.
        windows: rows and columns of a window, dilation included; likewise.
        strides: from one window to the next.
        padding: of the images.

    Raises:
        ValueError: not even one fits.
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
    """The windows of a size over a batch of images.

    Attributes:
        images: the shape of the images, ``(n, height, width, depth)``.
        counts: how many windows there are, in rows and columns.
        around: what is added before and after rows, and columns.
        dilated: rows and columns of a window, dilation included.
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
        """Return slices of the batch, for temporaries of ``width`` elements a window."""
        each = prod(self.counts)
        step, count = max(1, _BLOCK // max(1, each * width)), self.images[0] if each else 0
        return [slice(i, min(i + step, count)) for i in range(0, count, step)]

    def pad(self, x: Array, value: Any = 0, slot: str = "padded") -> Array:
        """Return images with a value around them, in a scratch array; ``x`` if nothing is added."""
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
        """Yield for each element of a window a view of it in all windows."""
        (down, across), (rows, columns) = self.strides, self.counts
        for top in range(0, self.dilated[0], self.dilations[0]):
            for left in range(0, self.dilated[1], self.dilations[1]):
                yield padded[:, top : top + down * rows : down, left : left + across * columns : across]

    def scatter(self, parts: Iterable[Array], images: Array) -> None:
        """Set images to the sum of arrays, each added at one of the taps."""
        images[...] = 0
        padded = self.pad(images, slot="sum")
        for place, part in zip(self.taps(padded), parts, strict=True):
            place += part
        if padded is not images:
            images[...] = self._inside(padded)


def check_rank(what: str, shape: tuple[int, ...]) -> None:
    """Check that a shape, which is a value of the run, has four dimensions.

    Raises:
        InvalidArgumentError: another number.
    """
    if len(shape) != 4:
        raise InvalidArgumentError(f"{what} must have 4 dimensions, got shape {list(shape)}")


def check_gradient(grad: Array, windows: Windows, depth: int) -> None:
    """Check that a gradient has the shape of the output, which depends on a value of the run.

    Raises:
        InvalidArgumentError: another shape.
    """
    expected = (windows.images[0], *windows.counts, depth)
    if grad.shape != expected:
        raise InvalidArgumentError(
            f"The gradient has shape {list(grad.shape)}, for these windows it must have "
            f"{list(expected)}"
        )


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


_local = threading.local()


def scratch(slot: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialised array that the thread reuses: its memory is mapped once."""
    size = prod(shape) * dtype.itemsize
    if size > _SCRATCH:
        return np.empty(shape, dtype)
    memory = getattr(_local, slot, None)
    if memory is None or memory.nbytes < size:
        memory = np.empty(size, np.uint8)
        setattr(_local, slot, memory)
    return memory[:size].view(dtype).reshape(shape)
