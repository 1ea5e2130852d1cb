"""Where the elements of a queue lie, and which one is next."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ByPriority", "Element", "FirstInFirstOut", "Shelf", "Shuffled"]

Element: TypeAlias = tuple[Any, ...]
"""One value for each component of the queue."""


class Shelf(ABC):
    """Where elements lie, and which one is next."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def put(self, element: Element) -> None:
        """Add an element."""

    @abstractmethod
    def take(self) -> Element:
        """Remove the next element."""

    @abstractmethod
    def put_back(self, elements: Sequence[Element]) -> None:
        """Add elements that were taken, such that they come first and in this order."""


class FirstInFirstOut(Shelf):
    """In the order in which they came."""

    def __init__(self) -> None:
        self._elements: deque[Element] = deque()

    def __len__(self) -> int:
        return len(self._elements)

    def put(self, element: Element) -> None:
        self._elements.append(element)

    def take(self) -> Element:
        return self._elements.popleft()

    def put_back(self, elements: Sequence[Element]) -> None:
        self._elements.extendleft(reversed(elements))


class Shuffled(Shelf):
    """In random order."""

    def __init__(self, seed: int | None) -> None:
        self._elements: list[Element] = []
        self._random = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._elements)

    def put(self, element: Element) -> None:
        self._elements.append(element)

    def take(self) -> Element:
        elements = self._elements
        chosen = int(self._random.integers(len(elements)))
        elements[chosen], elements[-1] = elements[-1], elements[chosen]
        return elements.pop()

    def put_back(self, elements: Sequence[Element]) -> None:
        self._elements.extend(elements)  # any place is as good as another


class ByPriority(Shelf):
    """The smallest first component first; among equals, in the order in which they came."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Element]] = []
        self._last = 0
        self._first = 0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, element: Element) -> None:
        self._last += 1
        heapq.heappush(self._heap, (int(element[0]), self._last, element))

    def take(self) -> Element:
        return heapq.heappop(self._heap)[2]

    def put_back(self, elements: Sequence[Element]) -> None:
        for element in reversed(elements):
            self._first -= 1
            heapq.heappush(self._heap, (int(element[0]), self._first, element))
