"""The parts of a pipeline: nodes describe it, stages run it.

A :class:`Node` is one step of the description: immutable, shared by every dataset built on it. Opening
it gives a :class:`Stage`, which opens the stages before it. Consumers pull: each stage calls
:meth:`Stage.pull` on the stage above it and gets a chunk of elements, so no element is made early.

A position is a :data:`Mark`: cheap to take for every chunk, turned into a state (JSON values and
arrays) only for a save. Between two marks a position is a mark and a number of elements after it:
resuming opens the pipeline at the mark and skips these elements.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias

from asyncmon.system import clock
from asyncmon.system.cancellation import shielded

Chunk: TypeAlias = Sequence[Any]
"""Elements: a list, or :class:`~asyncmon.data.indexed.Rows`, which are read later."""

State: TypeAlias = dict[str, Any]
"""A position at rest: JSON values and arrays."""

Mark: TypeAlias = Callable[[], State]
"""A position: call it for its state, at once or later."""

Epoch: TypeAlias = tuple[int, ...]
"""The number of the pass over the data: of the dataset, then of each enclosing ``repeat``."""

FRESH = "fresh"
"""The member of a position at the start of a pass, which has those of the sources."""

CHUNK = 1024
"""The maximum number of elements of a chunk."""

CLOSE_SECONDS = 5.0
"""Seconds after which a task or thread that does not end is abandoned."""

close_by: ContextVar[float] = ContextVar("close_by", default=math.inf)
"""The time, on the monotonic clock, at which they are abandoned if that is earlier."""

logger = logging.getLogger("asyncmon.data")


class Stage(ABC):
    """One running step of a pipeline. One consumer at a time."""

    read_ahead: int = 1
    """The default number of elements of a pull."""

    @abstractmethod
    async def pull(self, most: int, least: int = 1) -> Chunk:
        """Return the available elements, at least one and at most ``most``.

        An empty chunk is the end, also in later calls. Cancellation loses no element.

        Args:
            most: the maximum number of elements.
            least: a hint that fewer elements are of no use to the caller.
        """

    @abstractmethod
    def mark(self) -> Mark:
        """Return the position before the next element that :meth:`pull` returns."""

    async def skip(self, count: int) -> int:
        """Skip consumed elements; return how many, fewer only at the end.

        Overridden by stages that can skip without making the elements.
        """
        passed = 0
        while passed < count and (chunk := await self.pull(min(count - passed, CHUNK))):
            passed += len(chunk)
        return passed

    @abstractmethod
    async def aclose(self) -> None:
        """Stop this stage and those above it, waiting at most :func:`close_secs`."""


class StageOver(Stage):
    """A stage over one other stage, with the same positions unless overridden."""

    def __init__(self, above: Stage) -> None:
        self._above = above

    def mark(self) -> Mark:
        return self._above.mark()

    async def aclose(self) -> None:
        await self._above.aclose()


class Node(ABC):
    """One step of the description of a pipeline."""

    kind: str | None = None
    """Its name in positions. None for a node whose positions are those of the node above."""
    above: tuple[Node, ...] = ()

    @abstractmethod
    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        """Open this step and those above it, at a saved state or at the start."""

    @abstractmethod
    def __repr__(self) -> str: ...

    def signature(self) -> State:
        """Return the members that a state must share with this node to be one of its positions."""
        return {"stage": self.kind}

    def check(self, state: State | None) -> None:
        """Check that a state is a position of this node.

        Raises:
            ValueError: another pipeline saved it.
        """
        if state is None or FRESH in state:
            return
        if "skip" in state:
            self.check(state["from"])
            return
        if self.kind is None:
            self.above[0].check(state)
            return
        expected = self.signature()
        found = {key: state.get(key) for key in expected}
        if found != expected:
            raise ValueError(
                f"The position was saved by a pipeline with {_words(found)} where this one has "
                f"{_words(expected)}. Build the same dataset as when the position was saved."
            )
        for node, inner in zip(self.above, self._states_above(state), strict=True):
            node.check(inner)

    def is_of_other_shards(self, state: State | None) -> bool:
        """Return whether a state was saved with another number of shards."""
        if state is None or FRESH in state:
            return False
        if "skip" in state:
            return self.is_of_other_shards(state["from"])
        if self.kind is None:
            return self.above[0].is_of_other_shards(state)
        if state.get("stage") != self.kind or "from" not in state:
            return False  # `check` refuses it, or it is that of a source
        pairs = zip(self.above, self._states_above(state), strict=False)
        return any(node.is_of_other_shards(inner) for node, inner in pairs)

    def resharded(self, state: State, skip: int = 0) -> State:
        """Return the position a number of elements after one that has another number of shards.

        Raises:
            ValueError: this node comes after the shard, and its positions are of one process.
        """
        if "skip" in state:
            return self.resharded(state["from"], skip + state["skip"])
        if self.kind is None:
            return self.above[0].resharded(state, skip)
        return self._resharded(state, skip)

    def _resharded(self, state: State, skip: int) -> State:
        raise ValueError(
            f"The position was saved with another number of shards, and {self!r} has one of its own in "
            "each. Let only map, batch, repeat and prefetch come after shard."
        )

    def fresh(self) -> State | None:
        """Return the position at the start of the next pass, or None: it is where a new source begins.

        Called when the pass before has ended or is left. Sources whose passes differ override it.
        """
        states = [node.fresh() for node in self.above]
        return {FRESH: states} if any(states) else None

    def begin_at(self, state: State) -> None:
        """Let the next pass begin at a position that :meth:`fresh` returned."""
        for node, inner in zip(self.above, state[FRESH], strict=True):
            if inner is not None:
                node.begin_at(inner)

    def _states_above(self, state: State) -> Iterable[State | None]:
        return [state["from"]] if self.above else []

    @property
    def is_unordered(self) -> bool:
        """Whether another reading from the same position may return another order."""
        return any(node.is_unordered for node in self.above)

    def aligned(
        self, state: State | None, later: State | None, passed: int, later_passed: int
    ) -> State | None:
        """Return a state from which the elements from a later one on have the same places.

        Args:
            state: a position of this node.
            later: a later one of the same pass.
            passed: the number of elements returned after ``state``, up to the position.
            later_passed: the same for ``later``.

        Raises:
            ValueError: this node cannot repeat its order.
        """
        if not self.is_unordered or (state is not None and FRESH in state):
            return state
        if state is not None and "skip" in state:
            skip = state["skip"]
            return {
                "skip": skip,
                "from": self.aligned(state["from"], later, passed + skip, later_passed),
            }
        if later is not None and "skip" in later:
            return self.aligned(state, later["from"], passed, later_passed + later["skip"])
        return self._aligned(state, later, passed, later_passed)

    def _aligned(
        self, state: State | None, later: State | None, passed: int, later_passed: int
    ) -> State | None:
        if self.kind is None:
            return self.above[0].aligned(state, later, passed, later_passed)
        raise ValueError(f"{self!r} mixes the results of map(ordered=False), so its order differs.")


def too_short(found: str) -> ValueError:
    """Return the error of a position beyond the end of the data."""
    return ValueError(
        f"The data ended before the position that was loaded: {found}. A source must give the same "
        "elements in the same order each time it is read."
    )


async def open_node(node: Node, state: State | None, epoch: Epoch) -> Stage:
    """Open a node at a state, which may be a mark and a number of elements after it."""
    if state is not None and FRESH in state:
        node.begin_at(state)
        state = None
    if state is None or "skip" not in state:
        return await node.open(state, epoch)
    stage = await node.open(state["from"], epoch)
    try:
        missing = int(state["skip"]) - await stage.skip(int(state["skip"]))
        if missing:
            raise too_short(f"{missing} elements were missing")
    except BaseException:
        await shielded(stage.aclose, name="asyncmon.data closing")
        raise
    return stage


def skipped(mark: Mark, count: int) -> Mark:
    """Return the mark ``count`` elements after another."""
    if count == 0:
        return mark

    def resolve() -> State:
        state = mark()
        if "skip" in state:
            return {"skip": state["skip"] + count, "from": state["from"]}
        return {"skip": count, "from": state}

    return resolve


def mark_before(number: int, marks: deque[tuple[int, Mark]], stage: Stage) -> Mark:
    """Return the mark before an element, given the number of the element in its stage.

    ``marks`` are pairs of the first number of a chunk and its mark; earlier pairs are removed.
    """
    while len(marks) > 1 and marks[1][0] <= number:
        marks.popleft()
    if not marks:
        return stage.mark()
    first, mark = marks[0]
    return skipped(mark, number - first)


class Backlog:
    """Pulled elements that are not consumed yet, with the position of each."""

    __slots__ = ("_count", "_parts", "_used")

    def __init__(self) -> None:
        self._parts: deque[tuple[Mark, Chunk]] = deque()
        self._used = 0  # consumed elements of the first part
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, mark: Mark, chunk: Chunk) -> None:
        """Append a chunk that was pulled at a mark."""
        self._parts.append((mark, chunk))
        self._count += len(chunk)

    def mark(self) -> Mark | None:
        """Return the position before the first element, or None if there is none."""
        return skipped(self._parts[0][0], self._used) if self._parts else None

    def some(self, most: int) -> Chunk:
        """Return the first elements, as many as are in one chunk."""
        return self._parts[0][1][self._used : self._used + most]

    def first(self, count: int) -> list[Chunk]:
        """Return the chunks of the first ``count`` elements, or of all if there are fewer."""
        chunks: list[Chunk] = []
        used = self._used
        for _, chunk in self._parts:
            if count <= 0:
                break
            chunks.append(chunk[used : used + count] if used or count < len(chunk) else chunk)
            count -= len(chunks[-1])
            used = 0
        return chunks

    def drop(self, count: int) -> None:
        """Drop the first ``count`` elements, which must exist."""
        self._count -= count
        self._used += count
        while self._parts and self._used >= len(self._parts[0][1]):
            self._used -= len(self._parts.popleft()[1])


class Waiter:
    """An event for one waiting task, set by another task of the same loop.

    A wake without a waiter is lost: check the condition first, then wait.
    """

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait for the next :meth:`wake`."""
        if self._future is None or self._future.done():
            self._future = asyncio.get_running_loop().create_future()
        await self._future

    def wake(self) -> None:
        """Wake the waiting task, if any."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


async def end_tasks(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and wait for them; a task that does not end is logged and abandoned."""
    running = [task for task in tasks if task is not None and not task.done()]
    for task in running:
        task.cancel()
    if running:
        secs = close_secs()
        _, stuck = await asyncio.wait(running, timeout=secs)
        for task in stuck:
            logger.warning("%s did not end within %.3g s of its cancellation.", task.get_name(), secs)


def close_secs() -> float:
    """Return the seconds that a task or thread has to end."""
    return max(0.0, min(CLOSE_SECONDS, close_by.get() - clock.monotonic()))


def _words(signature: State) -> str:
    options = ", ".join(f"{key}={value!r}" for key, value in signature.items() if key != "stage")
    return f"{signature['stage'] or 'nothing'}({options})"
