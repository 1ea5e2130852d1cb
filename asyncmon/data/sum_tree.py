"""Numbers whose sums are known, so that one is drawn in proportion to its size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SumTree:
    """``count`` numbers, all 0 at first. Setting and finding take a time of log2(count)."""

    #   node n has the sum of nodes 2n and 2n + 1; the root is 1, the numbers begin at _first

    def __init__(self, count: int) -> None:
        self._levels = max(1, (count - 1).bit_length())
        self._first = 1 << self._levels
        self._nodes = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self._nodes[1])

    def clear(self) -> None:
        """Set all numbers to 0."""
        self._nodes[:] = 0

    def values(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return numbers by their places."""
        return self._nodes[self._first + places]

    def set(self, places: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Set numbers; of equal places the last one counts."""
        nodes = self._first + places
        self._nodes[nodes] = values
        for _ in range(self._levels):
            nodes = np.unique(nodes >> 1)
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, fractions: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the places at which the running sum exceeds these fractions of the total.

        A number of 0 is never found, unless all are: then it is the first one.
        """
        rest = fractions * self.total
        nodes = np.ones(len(rest), np.int64)
        for _ in range(self._levels):
            nodes = 2 * nodes
            left = self._nodes[nodes]
            # rounding may leave more than a sum: then the last number that is not 0 is found
            right = ((rest >= left) | (left <= 0)) & (self._nodes[nodes + 1] > 0)
            rest = np.where(right, rest - left, rest)
            nodes = nodes + right
        return nodes - self._first
