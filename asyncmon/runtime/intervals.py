"""Sets of numbers as intervals of consecutive ones."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]
"""The numbers of consecutive elements: the first one, and the one after the last."""


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return intervals in order, with adjacent ones joined and without empty ones."""
    result: list[Interval] = []
    for first, end in sorted(intervals):
        if result and first <= result[-1][1]:
            result[-1] = result[-1][0], max(end, result[-1][1])
        elif first < end:
            result.append((first, end))
    return result


def without(intervals: Iterable[Interval], first: int, end: int) -> list[Interval]:
    """Return the parts of intervals that are outside another one."""
    parts = [part for a, b in intervals for part in ((a, min(b, first)), (max(a, end), b))]
    return [(a, b) for a, b in parts if a < b]
