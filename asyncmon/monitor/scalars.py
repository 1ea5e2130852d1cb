"""Scalars in memory: three columns a tag, bounded, downsampled so that peaks remain."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asyncmon.monitor.quota import Bounded

MOST_POINTS = 200_000
"""Points of one tag. Beyond this limit the older half is downsampled to its minima and maxima."""

MOST_TAGS = 1_000
MOST_IN_ALL = 2_000_000
_MARKS = 2_000  # publications that a cursor may be behind


class Series(NamedTuple):
    """Points of one tag in the order of arrival: steps, values, seconds since 1970."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    wall_times: NDArray[np.float64]

    def at(self, where: slice | NDArray[np.intp]) -> Series:
        """Return some of the points: views for a slice, copies for indices."""
        return Series(self.steps[where], self.values[where], self.wall_times[where])


class Part(NamedTuple):
    """The points from ``low`` to ``high`` of the steps or the wall times."""

    by: Literal["steps", "wall_times"]
    low: float
    high: float

    def of(self, series: Series) -> Series:
        """Return the points, with one more on each side, so that lines reach the edges."""
        column = getattr(series, self.by)
        from_low, to_high = np.flatnonzero(column >= self.low), np.flatnonzero(column <= self.high)
        begin = from_low[0] if len(from_low) else len(column)
        end = to_high[-1] + 1 if len(to_high) else 0
        kept = slice(max(0, begin - 1), end + 1)
        return series.at(kept)


class LastPoint(NamedTuple):
    """A tag, its number of points, and the last one."""

    tag: str
    points: int
    step: int
    value: float
    wall_time: float


class _Column:
    """The points of one tag: arrays that grow by doubling."""

    def __init__(self) -> None:
        self.length = 0
        self.published = 0
        self.marks: deque[tuple[int, int]] = deque(maxlen=_MARKS)  # cursor, published points
        self.known_from: int | None = 0  # the first cursor covered by the marks; None: the next one
        self._arrays = Series(np.empty(64, np.int64), np.empty(64), np.empty(64))

    def extend(self, points: Series) -> None:
        end = self.length + len(points.steps)
        if end > len(self._arrays.steps):
            self._resize(1 << end.bit_length())
        for column, more in zip(self._arrays, points, strict=True):
            column[self.length : end] = more
        self.length = end

    def series(self, begin: int, end: int) -> Series:
        """Return views of some points."""
        return self._arrays.at(slice(begin, end))

    def thin(self) -> None:
        """Reduce the older half to half its points, its minima and maxima."""
        half = self.length // 2
        kept = extremes(self._arrays.values[:half], half // 2)
        self.keep(np.concatenate([kept, np.arange(half, self.length)]))

    def keep(self, kept: NDArray[np.intp]) -> None:
        """Keep only the points at these indices. Earlier cursors become invalid."""
        unpublished = self.length - self.published
        left = self._arrays.at(kept)
        self.length = len(kept)
        self.published = max(0, self.length - unpublished)
        self.marks.clear()
        self.known_from = None
        self._resize(max(64, 1 << self.length.bit_length()))
        for column, values in zip(self._arrays, left, strict=True):
            column[: self.length] = values

    def publish(self, cursor: int) -> None:
        self.published = self.length
        if self.known_from is None:
            self.known_from = cursor
        elif len(self.marks) == _MARKS:
            self.known_from = self.marks[1][0]
        self.marks.append((cursor, self.length))

    def begin_after(self, cursor: int) -> int:
        """Return the number of points published up to a cursor."""
        return next((length for mark, length in reversed(self.marks) if mark <= cursor), 0)

    def _resize(self, capacity: int) -> None:
        old = self._arrays
        self._arrays = Series(np.empty(capacity, np.int64), np.empty(capacity), np.empty(capacity))
        count = min(self.length, len(old.steps))
        for column, values in zip(self._arrays, old, strict=True):
            column[:count] = values[:count]


class Scalars(Bounded):
    """The scalars of one run, by tag. Not thread-safe: use it on the event loop's thread.

    Added points become visible when they are *published* under a number, the cursor. So a response and
    the events after its cursor neither overlap nor have a gap.

    Args:
        most_points: of one tag.
        most_tags: further tags are dropped, with a warning.
        most_in_all: points of all tags together; beyond it the longest columns are downsampled.
    """

    def __init__(
        self,
        most_points: int = MOST_POINTS,
        most_tags: int = MOST_TAGS,
        most_in_all: int = MOST_IN_ALL,
    ) -> None:
        super().__init__("scalars", most_tags)
        self.broken = False
        """Whether published points have changed since :meth:`publish`, so that readers must reload."""
        self._most_points = most_points
        self._most_in_all = most_in_all
        self._columns: dict[str, _Column] = {}
        self._new: set[str] = set()

    def add(self, tag: str, step: int, value: float, wall_time: float) -> None:
        """Add a point."""
        self.extend(tag, Series(np.array([step]), np.array([value]), np.array([wall_time])))

    def extend(self, tag: str, points: Series) -> None:
        """Add points of one tag."""
        column = self._columns.get(tag)
        if column is None:
            if not self._has_place(tag):
                return
            column = self._columns[tag] = _Column()
        column.extend(points)
        self._new.add(tag)
        self._count(len(points.steps))
        while column.length > self._most_points:
            self._thin(tag)
        self._fit(self._most_in_all)

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of points and tags, published or not."""
        return self._total, len(self._columns)

    def thin_longest(self) -> None:
        """Downsample the longest column."""
        self._thin(max(self._columns, key=lambda one: self._columns[one].length))

    def _thin(self, tag: str) -> None:
        column = self._columns[tag]
        self._changed(tag, column.length, column.thin)

    def purge(self, step: int, tags: Iterable[str]) -> None:
        """Drop points from a step on: a session was restored there and repeats these steps."""
        for tag in tags:
            column = self._columns[tag]
            kept = np.flatnonzero(column.series(0, column.length).steps < step)
            if len(kept) < column.length:
                self._changed(tag, column.length, column.keep, kept)

    def _changed(self, tag: str, before: int, change: Callable[..., None], *args: Any) -> None:
        column = self._columns[tag]
        self.broken = self.broken or column.published > 0
        change(*args)
        self._new.add(tag)
        self._count(column.length - before)

    def pending(self) -> int:
        """Return the number of points added since the last :meth:`publish`."""
        return sum(self._columns[tag].length - self._columns[tag].published for tag in self._new)

    def publish(self, cursor: int) -> dict[str, Series]:
        """Publish the added points under a cursor, and return them as views by tag."""
        found = {}
        for tag in self._new:
            column = self._columns[tag]
            if column.length > column.published:
                found[tag] = column.series(column.published, column.length)
            column.publish(cursor)
        self._new.clear()
        self.broken = False
        return found

    def tags(self, wanted: Iterable[str] | None = None) -> list[LastPoint]:
        """Return the last published point of each tag, or of the wanted ones, sorted by tag."""
        found = []
        for tag in sorted(self._columns if wanted is None else self._columns.keys() & set(wanted)):
            column = self._columns[tag]
            if count := column.published:
                steps, values, times = column.series(count - 1, count)
                found.append(LastPoint(tag, count, int(steps[0]), float(values[0]), float(times[0])))
        return found

    def points(self, tags: Iterable[str], after: int | None = None) -> dict[str, Series]:
        """Return published points of some tags as immutable views; unknown tags are skipped.

        Args:
            tags: the tags.
            after: only points that were published after this cursor; None for all.
        """
        found = {}
        for tag in tags:
            column = self._columns.get(tag)
            if column is not None:
                begin = 0 if after is None else column.begin_after(after)
                found[tag] = column.series(begin, column.published)
        return found

    def knows(self, tags: Iterable[str], cursor: int) -> bool:
        """Return whether :meth:`points` knows the points of these tags after a cursor."""
        found = [self._columns[tag].known_from for tag in tags if tag in self._columns]
        return all(first is not None and cursor >= first for first in found)


def downsample(series: Series, most: int) -> Series:
    """Return copies of at most ``most`` (8 or more) points: extremes, NaNs and both ends."""
    if len(series.steps) <= most:
        return series.at(np.arange(len(series.steps)))
    return series.at(extremes(series.values, most))


def means(series: Series, most: int) -> Series:
    """Return the means of equal buckets at their middles (NaN: none is finite), and the last point."""
    count = len(series.steps) - 1
    if count < most:
        return downsample(series, most)
    starts = np.arange(0, count, -(-count // (most - 1)))
    sizes = np.diff(starts, append=count)
    finite = np.isfinite(series.values[:count])
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.reduceat(np.where(finite, series.values[:count], 0.0), starts)
    counts = np.add.reduceat(finite, starts, dtype=np.int64)
    values = np.divide(sums, counts, out=np.full(len(starts), np.nan), where=counts > 0)
    kept = np.append(starts + (sizes - 1) // 2, count)
    return Series(series.steps[kept], np.append(values, series.values[count]), series.wall_times[kept])


def extremes(values: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """Return the indices of the minimum, the maximum and a NaN of each bucket, and of both ends."""
    count = len(values)
    if count <= most:
        return np.arange(count)
    missing = np.isnan(values)
    any_missing = bool(missing.any())
    buckets = max(1, (most - 2) // (3 if any_missing else 2))
    size = -(-count // buckets)
    buckets = -(-count // size)
    starts = np.arange(buckets) * size
    picked = [np.array([0, count - 1])]
    for fill, choose in ((np.inf, np.argmin), (-np.inf, np.argmax)):
        padded = np.full(buckets * size, fill)
        padded[:count] = np.where(missing, fill, values)
        picked.append(starts + choose(padded.reshape(buckets, size), axis=1))
    if any_missing:
        flags = np.zeros(buckets * size, bool)
        flags[:count] = missing
        rows = flags.reshape(buckets, size)
        picked.append((starts + rows.argmax(axis=1))[rows.any(axis=1)])
    return np.unique(np.concatenate(picked))
