"""Sets of numbers as spans of consecutive ones."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]
"""The numbers of consecutive elements: the first one, and the one after the last."""


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, with adjacent ones joined and without empty ones."""
    result: list[Span] = []
    for first, end in sorted(spans):
        if result and first <= result[-1][1]:
            result[-1] = result[-1][0], max(end, result[-1][1])
        elif first < end:
            result.append((first, end))
    return result


def without(spans: Iterable[Span], first: int, end: int) -> list[Span]:
    """Return the parts of spans that are outside another one."""
    parts = [part for a, b in spans for part in ((a, min(b, first)), (max(a, end), b))]
    return [(a, b) for a, b in parts if a < b]
