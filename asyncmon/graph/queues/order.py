"""The elements of a queue in their order."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence, Sized
from typing import Any, TypeAlias

import numpy as np

Element: TypeAlias = tuple[Any, ...]
"""One value for each component of the queue."""


class Order(ABC):
    """The elements of a queue in the order in which they leave."""

    _elements: Sized
    whole: bool = False
    """Whether a request waits for all of its elements, because a later one may be the first."""

    def __len__(self) -> int:
        return len(self._elements)

    @abstractmethod
    def put(self, element: Element) -> None:
        """Add an element."""

    @abstractmethod
    def take(self) -> Element:
        """Remove the next element and return it."""

    @abstractmethod
    def restore(self, elements: Sequence[Element]) -> None:
        """Add elements that were taken, so that they leave first and in this order."""


class FirstInFirstOut(Order):
    """In the order of arrival."""

    def __init__(self) -> None:
        self._elements: deque[Element] = deque()

    def put(self, element: Element) -> None:
        self._elements.append(element)

    def take(self) -> Element:
        return self._elements.popleft()

    def restore(self, elements: Sequence[Element]) -> None:
        self._elements.extendleft(reversed(elements))


class Shuffled(Order):
    """In random order."""

    def __init__(self, seed: int | None) -> None:
        self._elements: list[Element] = []
        self._random = np.random.default_rng(seed)

    def put(self, element: Element) -> None:
        self._elements.append(element)

    def take(self) -> Element:
        elements = self._elements
        chosen = int(self._random.random() * len(elements))
        elements[chosen], elements[-1] = elements[-1], elements[chosen]
        return elements.pop()

    def restore(self, elements: Sequence[Element]) -> None:
        self._elements.extend(elements)  # all places are equal


class ByPriority(Order):
    """Smallest first component first; equal ones in the order of arrival."""

    whole = True

    def __init__(self) -> None:
        self._elements: list[tuple[int, int, Element]] = []  # a heap
        self._last = self._first = 0

    def put(self, element: Element) -> None:
        self._last += 1
        heapq.heappush(self._elements, (int(element[0]), self._last, element))

    def take(self) -> Element:
        return heapq.heappop(self._elements)[2]

    def restore(self, elements: Sequence[Element]) -> None:
        for element in reversed(elements):
            self._first -= 1
            heapq.heappush(self._elements, (int(element[0]), self._first, element))


def order_of(kind: str, seed: int | None) -> Order:
    """Return an empty order for a queue of this kind, ``"PriorityQueue"``."""
    if kind == "RandomShuffleQueue":
        return Shuffled(seed)
    return ByPriority() if kind == "PriorityQueue" else FirstInFirstOut()
