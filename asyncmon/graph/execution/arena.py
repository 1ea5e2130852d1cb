"""Memory for the values of a run, and where in it each value lies."""

from __future__ import annotations

from bisect import bisect, insort
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.core.spec import Spec
    from asyncmon.graph.execution.update import UpdateGroup

__all__ = ["Arena", "Layout", "Space", "numpy_dtype", "size_of"]

_ALIGN = 64  # bytes: a cache line
_MOST = 256  # layouts: of more, those in use are made anew


class Arena:
    """Memory for the values of one run at a time."""

    __slots__ = ("_memory", "_views")

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._views: dict[Layout, list[tuple[int, Any]]] = {}

    def views(self, layout: Layout) -> list[tuple[int, Any]]:
        """Return registers with the arrays to put there."""
        views = self._views.get(layout)
        if views is None:
            if layout.nbytes > self._memory.nbytes or len(self._views) >= _MOST:
                self._views.clear()  # they keep the old memory alive
            if layout.nbytes > self._memory.nbytes:
                self._memory = _aligned(layout.nbytes)
            views = self._views[layout] = layout.views(self._memory)
        return views


class Layout:
    """Where the values of a plan lie, for feeds of certain shapes.

    Attributes:
        nbytes: of memory that it takes.
        heavy: whether products are split, see :func:`~asyncmon.graph.kernels.parallel.split_products`.
    """

    __slots__ = ("_homes", "_places", "heavy", "nbytes")

    def __init__(
        self,
        places: Sequence[tuple[int, int, Spec]],
        homes: Sequence[tuple[UpdateGroup, int, int, Sequence[int | None]]],
        nbytes: int,
        *,
        heavy: bool,
    ) -> None:
        self._places = places
        self._homes = homes
        self.nbytes = nbytes
        self.heavy = heavy

    def views(self, memory: Any) -> list[tuple[int, Any]]:
        """Return registers with the arrays to put there."""
        found: list[tuple[int, Any]] = [
            (register, memory[at : at + size_of(spec)].view(numpy_dtype(spec)).reshape(spec.shape))
            for register, at, spec in self._places
        ]
        for group, home, at, members in self._homes:
            flat = group.flat(memory[at : at + group.nbytes].view(group.dtype))
            found.append((home, flat))
            found += [(i, part) for i, part in zip(members, flat.parts, strict=True) if i is not None]
        return found


class Space:
    """Free stretches of memory, in order, and the size of it all."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []  # from, to

    def take(self, size: int) -> int:
        """Return where the smallest stretch begins that is large enough."""
        size = _rounded(size)
        fits = [(to - start, i) for i, (start, to) in enumerate(self._free) if to - start >= size]
        if fits:
            _, i = min(fits)
            start, to = self._free.pop(i)
        elif self._free and self._free[-1][1] == self.size:
            start, _ = self._free.pop()
            to = self.size = start + size
        else:
            start = self.size
            to = self.size = start + size
        if to - start > size:
            insort(self._free, (start + size, to))
        return start

    def give(self, start: int, size: int) -> None:
        """Take a stretch back."""
        to = start + _rounded(size)
        i = bisect(self._free, (start, to))
        if i < len(self._free) and self._free[i][0] == to:
            to = self._free.pop(i)[1]
        if i and self._free[i - 1][1] == start:
            i -= 1
            start = self._free.pop(i)[0]
        self._free.insert(i, (start, to))


def _rounded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _aligned(nbytes: int) -> Any:
    memory = np.empty(nbytes + _ALIGN, np.uint8)
    return memory[-memory.ctypes.data % _ALIGN :][:nbytes]


def numpy_dtype(spec: Spec) -> np.dtype[Any]:
    """Return the dtype of arrays of a spec."""
    return spec.dtype.as_numpy_dtype


def size_of(spec: Spec) -> int:
    """Return how many bytes a value of a known shape has."""
    return prod(d for d in spec.shape or () if d is not None) * numpy_dtype(spec).itemsize
