"""An accumulator of gradients, independent of graphs: applied gradients and requests for them.

One instance belongs to one session and lives on its event loop's thread. Runs are transactions: what a
run applies counts from its commit on, for the run itself at once. What a run took is restored if it
fails. A gradient that would be stale only if such a run commits is kept until it ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from asyncmon.errors import CancelledError, InvalidArgumentError
from asyncmon.graph.execution.run import Run
from asyncmon.system.files import in_thread

LARGE = 1 << 18
"""Bytes above which arrays are added in a worker thread."""


@dataclass(slots=True, eq=False)
class GradientSum:
    """The sum of some gradients. Its arrays are its own.

    Attributes:
        values: the elements, or the rows of slices.
        count: of how many gradients.
        indices: of the rows, ascending; None where the gradients are dense.
        counts: of how many gradients each row is.
        shape: the shape of the dense form of slices; -1 for unknown dimensions.
    """

    values: Any
    count: int = 1
    indices: Any = None
    counts: Any = None
    shape: tuple[int, ...] = ()

    @classmethod
    def of_rows(cls, indices: Any, values: Any, shape: tuple[int, ...]) -> GradientSum:
        """Return the sum of one gradient. Equal rows of it are added up."""
        one = cls(values, 1, indices, np.ones(len(indices), np.int64), shape)
        one._join_rows()
        one.counts[:] = 1
        return one

    def add(self, other: GradientSum) -> None:
        """Add the gradients of another sum."""
        self.count += other.count
        if self.indices is None:
            self.values = np.add(self.values, other.values, self.values)
            return
        self.values = np.concatenate([self.values, other.values])
        self.indices = np.concatenate([self.indices, other.indices])
        self.counts = np.concatenate([self.counts, other.counts])
        self.shape = tuple(map(max, zip(self.shape, other.shape, strict=True)))
        self._join_rows()

    def copy(self) -> GradientSum:
        """Return a sum that shares nothing with this one."""
        return replace(self, values=self.values.copy())  # the others are replaced, not written

    @property
    def element_shape(self) -> tuple[int, ...]:
        """The common shape of all gradients, or of their rows."""
        found: tuple[int, ...] = self.values.shape
        return found if self.indices is None else found[1:]

    def _join_rows(self) -> None:
        order = np.argsort(self.indices, kind="stable")
        self.indices, starts = np.unique(self.indices[order], return_index=True)
        if len(starts):
            self.values = np.add.reduceat(self.values[order], starts, axis=0, dtype=self.values.dtype)
            self.counts = np.add.reduceat(self.counts[order], starts)

    def mean(self) -> Any:
        """Return the elements over ``count``, or each row over its own, as a fresh array."""
        if self.indices is None:
            return self.values / self.values.dtype.type(self.count)
        counts = self.counts.astype(self.values.dtype)
        return self.values / counts.reshape(-1, *[1] * (self.values.ndim - 1))


@dataclass(slots=True, eq=False)
class Entry:
    """What a run applied, or waits for, or has taken.

    Attributes:
        owner: the run.
        count: how many gradients are asked for.
        step: the local step of a gradient.
        sums: the gradients.
        own: of those taken, the ones that the same run had applied.
        future: done when they are there.
    """

    owner: Run
    count: int = 1
    step: int = 0
    sums: list[GradientSum] = field(default_factory=list)
    own: list[GradientSum] = field(default_factory=list)
    future: asyncio.Future[None] | None = None

    def total(self) -> GradientSum:
        """Return the read-only sum of the taken gradients. May be called in a worker thread."""
        _add_up(self.sums)
        if self.own:
            _add_up(self.own)
            if not self.sums:
                return self.own[0]
            total = self.sums[0].copy()  # restored alone if the run fails
            total.add(self.own[0])
            return total
        return self.sums[0]

    @property
    def is_large(self) -> bool:
        """Whether a thread should add up the taken gradients."""
        return _are_large([*self.sums, *self.own])


def _add_up(sums: list[GradientSum]) -> None:
    while len(sums) > 1:
        sums[0].add(sums[1])
        del sums[1]


def _are_large(sums: list[GradientSum]) -> bool:
    return any(one.values.nbytes > LARGE for one in sums)


class Accumulator:
    """The gradients that the runs of one session applied, of no earlier step than its own.

    ``spec`` is its specification. A committed take advances the step by one.
    """

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self._step = 0  # without the takes of current runs
        self._count = 0
        self._sums: list[GradientSum] = []
        self._applied: list[Entry] = []  # by current runs
        self._taken: list[Entry] = []  # likewise
        self._late: list[Entry] = []  # stale if these takes commit
        self._takers: deque[Entry] = deque()
        self._adding = False  # a thread adds the first two sums

    def count(self, owner: Run) -> int:
        """Return the number of gradients; for a run, including its own."""
        return self._count + len(self._own(owner))

    def _own(self, owner: Run) -> list[Entry]:
        return [one for one in self._applied if one.owner is owner and self._is_fresh(one)]

    def _is_fresh(self, entry: Entry) -> bool:
        return entry.step >= self._step + len(self._taken)

    def set_step(self, step: int) -> None:
        """Change the step. Present gradients stay."""
        self._step = step

    # -- putting

    def apply(self, run: Run, step: int, gradient: GradientSum) -> None:
        """Add a gradient at the run's commit, unless it is stale.

        InvalidArgumentError if its shape is not that of the others.
        """
        if step < self._step:
            return
        for one in (*self._sums, *(one for entry in self._applied for one in entry.sums)):
            if one.element_shape != gradient.element_shape:
                raise shape_mismatch(one.element_shape, gradient.element_shape)
        entry = Entry(run, step=step, sums=[gradient])
        self._applied.append(entry)
        run.on_commit(partial(self._commit, entry))
        run.on_abort(partial(self._forget, entry))
        self._serve()

    def _commit(self, entry: Entry) -> None:
        if entry in self._applied:  # else the run has taken it
            self._applied.remove(entry)
            self._add(entry)
            self._serve()

    def _forget(self, entry: Entry) -> None:
        if entry in self._applied:
            self._applied.remove(entry)

    def _add(self, entry: Entry) -> None:
        if self._is_fresh(entry):
            self._sums += entry.sums
            self._count += 1
            if not self._adding and not _are_large(self._sums):
                _add_up(self._sums)
        elif entry.step >= self._step:
            self._late.append(entry)

    async def add_up(self) -> None:
        """Add up large gradients in a worker thread, so that they do not pile up."""
        if self._adding or len(self._sums) < 2:
            return
        self._adding = True  # blocks takes; more gradients may arrive
        try:
            await in_thread(self._sums[0].add, self._sums[1])
        finally:
            del self._sums[1]
            self._adding = False
            self._serve()

    # -- taking

    def take_nowait(self, run: Run, count: int) -> Entry | None:
        """Return all gradients if there are at least ``count``, or None.

        InvalidArgumentError if the number is not positive.
        """
        if count <= 0:
            raise InvalidArgumentError(f"Argument num_required must be positive, but was {count}")
        if self._takers or self._adding or self.count(run) < count:
            return None
        return self._collect(Entry(run, count))

    async def take(self, run: Run, count: int) -> Entry:
        """Wait for ``count`` gradients, and return all present ones, in the order of the calls.

        A cancelled call takes nothing.
        """
        taken = self.take_nowait(run, count)
        if taken is not None:
            return taken
        taken = Entry(run, count)
        taken.future = future = asyncio.get_running_loop().create_future()
        self._takers.append(taken)
        try:
            await future
        except BaseException:
            if taken in self._takers:
                self._takers.remove(taken)
            if taken in self._taken:
                self.settle(taken, committed=False)
            self._serve()
            raise
        finally:
            taken.future = None  # it may refer to the error, and that to the request
        return taken

    def _collect(self, taken: Entry) -> Entry:
        own = self._own(taken.owner)
        taken.sums, self._sums, self._count = self._sums, [], 0
        for entry in own:
            self._applied.remove(entry)
            taken.own += entry.sums
        self._taken.append(taken)
        return taken

    def settle(self, taken: Entry, *, committed: bool) -> None:
        """At the end of a run: advance the step, or restore the taken gradients."""
        self._taken.remove(taken)
        if committed:
            self._step += 1
        else:
            self._sums[:0] = taken.sums
            self._count += sum(one.count for one in taken.sums)
        late, self._late = self._late, []
        for entry in late:
            self._add(entry)
        self._serve()

    def session_closed(self) -> None:
        """Cancel all pending requests."""
        while self._takers:
            future = self._takers.popleft().future
            if future is not None and not future.done():
                future.set_exception(CancelledError("TakeGrad operation was cancelled"))

    def _serve(self) -> None:
        while self._takers and not self._adding:
            taken = self._takers[0]
            if self.count(taken.owner) < taken.count:
                return
            self._takers.popleft()
            if taken.future is not None and not taken.future.done():
                self._collect(taken)
                taken.future.set_result(None)


def shape_mismatch(expected: Sequence[int | None], found: Sequence[int]) -> InvalidArgumentError:
    """Return the error of a gradient of another shape."""
    texts = [",".join("?" if n is None else str(n) for n in shape) for shape in (expected, found)]
    return InvalidArgumentError(f"Shape mismatch: expected [{texts[0]}], got [{texts[1]}]")
