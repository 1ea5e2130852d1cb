"""Which elements of a source the committed steps of a session have consumed."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from asyncmon.checkpoint.stateful import SourceMembers
from asyncmon.data.stage import Mark
from asyncmon.runtime.frontier_batch import NOT_BEGUN, Batch, Task
from asyncmon.runtime.intervals import Interval, merged, without
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


class Recoveries(Protocol):
    """The recoveries of a session. See :class:`~asyncmon.runtime.recoverable.Recoverable`."""

    number: int
    repeated: Task | None
    step_before: int | None
    current: Any
    """The raw session in use with its layers; None during a recovery."""

    def step_of_data(self) -> int | None: ...
    async def has_outlasted_run(self, task: Task | None) -> bool: ...


class Frontier:
    """The elements of one source that committed steps have consumed, as each checkpoint has it.

    Elements have numbers in the order of the source, over all passes. One that was given to the body is
    outstanding until a run commits a step that its task began after it had received the element. The
    state has the outstanding numbers, and the position before the first of them.

    Args:
        source: has ``state_dict()`` and ``load_state_dict(state)``. The iterators keep it alive.
        steps: returns the number of completed steps; while a recovery restores a state, that before the
            interrupted run.
        recoveries: has the number of recoveries, and the task whose run the present one repeats.
        reads_ahead: whether elements are pending until :meth:`give`.
        rewinds: whether the source follows its positions, so that its elements can be read again.
    """

    #   element   0 1 2 3 4 5 6 7 8 9      c  consumed by a committed step: skipped if it comes again
    #             c c c h c h p p f -      h  in a batch of _held: with a task of the body
    #                   |         |        p  pending: a pipeline has read it ahead of the body
    #               position   _cursor     f  being fetched; _fetching is the position before it
    #
    #   A recovery that loses steps moves the source back. The body keeps its batches:
    #
    #             c c c a a h a a - -      a  in _again: outstanding, and read again from _cursor on
    #                   |         |
    #                _cursor    _taken     else both are equal, and _again is empty

    def __init__(
        self,
        source: Any,
        steps: Callable[[], int | None],
        recoveries: Recoveries,
        *,
        reads_ahead: bool = False,
        rewinds: bool = True,
    ) -> None:
        self._step_of_data = steps
        self.reads_ahead = reads_ahead
        self._rewinds = rewinds
        self.pending: dict[int, Mark] = {}
        """The positions before the elements that the body does not have yet, by their numbers."""
        self.newest = -1
        """The number of the element that was read last."""
        self.returned: Callable[[Batch], None] | None = None
        """Called with a batch whose run is not repeated: pending again. None: it is read again."""
        self._recoveries = recoveries
        self._recovery = recoveries.number  # the last recovery that restored a state
        self._moved_in_recovery = False
        self._taken = 0
        self._cursor = 0
        self._again: deque[Interval] = deque()
        self._held: list[Batch] = []
        self._fetching: Mark | None = None
        self._asker: Task | None = None  # the task that asked last
        self._askers = weakref.WeakSet[Task]()
        self._runner: Task | None = None  # the task that began the last run with elements of its own
        self._runners = weakref.WeakSet[Task]()
        self._readers = 0
        self._last: Any = None  # the position of a source that does not exist any more
        self.moves = 0  # of the source
        self._moved_to: tuple[int, Any] | None = None  # the last one, of a source that does not follow
        self._skipped = 0  # passes
        self._source_revision = 0
        self.has_ended = False
        """Whether the end of a pass was found since the last element."""
        self.counts_passes = False
        """Whether the number of passes has a meaning for the body: no other source continues it."""
        self._use(source)
        self._first = steps(), self._start
        self._restored: int | None = None  # the step of the last move

    def __repr__(self) -> str:
        return f"<position in {self.description}>"

    def _steps(self) -> int | None:
        now = self._recoveries
        if now.current is None and self._moved_in_recovery and now.number == self._recovery:
            return self._restored  # a recovery may save the state that it has restored
        return self._step_of_data()

    # -- the source

    @property
    def source(self) -> Any:
        """The source, or None if it does not exist any more."""
        return self._source()

    def _use(self, source: Any) -> None:
        # A strong reference would keep each dataset of a body that makes a new one for each pass.
        self._source: Callable[[], Any]
        try:
            self._source = weakref.ref(source)
        except TypeError:
            self._source = lambda: source
        members = members_of(SourceMembers, source)
        self.follows = members.mark is not None
        """Whether the iterators of the source follow when it is moved."""
        self.description = repr(source) if self.follows else type(source).__qualname__
        """The same for a source that another process makes with the same code."""
        self._start = self._mark()

    def is_free(self) -> bool:
        """Return whether the source does not exist any more, and another one may take its place."""
        if self.source is not None or self.counts_passes:
            return False
        step = self._steps()
        return all(batch.is_consumed(step) for batch in self._held)

    def continue_with(self, source: Any) -> None:
        """Read another source in the place of one that does not exist any more. Numbers continue.

        If a pass has ended, the new source begins at its start, otherwise at the position.

        Raises:
            ValueError: the position is one of another pipeline.
        """
        gone = self._source
        self._use(source)
        if not self.has_ended and self._last is not None:
            try:
                source.load_state_dict(self._last)
            except ValueError:
                self._source = gone
                raise
        self.has_ended = False

    def begin_reading(self) -> None:
        """Record an iterator, which refers to the source."""
        self._readers += 1

    def end_reading(self) -> None:
        """Record the end of an iterator: the source may cease to exist."""
        self._readers -= 1
        source = self.source
        if self._readers == 0 and source is not None:
            try:
                self._last = source.state_dict()
            except Exception:  # this is called by a finalizer
                logger.exception("The position of %s is unknown.", self.description)

    def _mark(self) -> Mark:
        source = self.source
        if source is None:
            return partial(_same, None if self.has_ended and not self.counts_passes else self._last)
        return marks_of(source)()

    # -- elements

    def ask(self, task: Task | None) -> None:
        """Record that a task of the body asks for an element, and so has used its earlier ones."""
        if task is not self._asker and task is not None:
            self._asker = task
            self._askers.add(task)
        held = self._held
        # An element may be used for several steps. It is consumed with the first, and stays with the
        # body until its task asks for another.
        if len(held) == 1 and held[0].task is task:  # the usual case
            held[0].ahead = None
            if held[0].at is not NOT_BEGUN and held[0].is_consumed(self._steps()):
                held.clear()
        elif held:
            step = self._steps()
            self._held = [b for b in held if not (b.is_consumed(step) and b.is_of(task))]
            for batch in self._held:
                if batch.is_of(task):
                    batch.ahead = None

    def fetch(self, task: Task | None, mark: Mark) -> Task | None:
        """Record that an element is fetched that a task has asked for, with the position before it.

        Returns:
            The ``ahead`` of its batch.
        """
        self._fetching = mark
        return None if self.reads_ahead else self.ahead_of(task)

    def ahead_of(self, task: Task | None) -> Task | None:
        """Return the calling task if it fetches for another one that has elements for its next run."""
        if not self._held:
            return None
        fetching = asyncio.current_task()
        waiting = [batch for batch in self._held if batch.at is NOT_BEGUN]
        if fetching is task and any(batch.task is task for batch in waiting):
            return None  # the task collects elements for one run
        return fetching if waiting else None

    async def outlast_run(self, task: Task | None, mark: Mark) -> None:
        """Wait for the run of a task for which another one has found the end of the data.

        A double buffer gets the end after the run of the element before. A recovery of that run may
        move the source back, and a checkpoint of it has the position before the end, ``mark``.
        """
        self._fetching = mark
        try:
            await self._recoveries.has_outlasted_run(task)
        finally:
            self._fetching = None

    def not_fetched(self) -> None:
        """Record that a fetch has ended without an element."""
        self._fetching = None

    def reads_again(self) -> bool:
        """Return whether the source gives again what a fetch found that a move has overtaken."""
        if not self._rewinds:
            return False
        self._fetching, self.has_ended = None, False
        if self._moved_to is not None:
            number, position = self._moved_to
            if self._cursor == number:  # the fetch may have read on from there
                self.source.load_state_dict(position)
        return True

    def fetched(self, task: Task | None, mark: Mark, ahead: Task | None) -> bool:
        """Record an element, and return whether it is given to the body.

        Args:
            task: that has asked for it.
            mark: as for :meth:`fetch`, which returned ``ahead``.
        """
        self._fetching, self.has_ended = None, False
        number = self._cursor
        self._cursor = number + 1
        if number == self._taken:
            self._taken = number + 1
        elif any(first <= number < end for first, end in self._again):
            self._again = deque(without(self._again, number, number + 1))
        else:
            # A batch keeps no position of the pass before a move: the order of later elements that
            # complete as they come is recorded in the positions of the present pass.
            for batch in self._held:
                if number in batch.elements:
                    batch.elements[number] = mark
            return False
        self.newest = number
        if self.reads_ahead:
            self.pending[number] = mark
        else:
            self._hold({number: mark}, task, ahead)
        return True

    def _hold(self, elements: dict[int, Mark], task: Task | None, ahead: Task | None) -> None:
        held = self._held
        if held and held[-1].goes_on(task, ahead):  # several elements are collected for one step
            held[-1].elements |= elements
        else:
            held.append(Batch(elements, task, ahead))

    def give(self, numbers: Iterable[int], task: Task | None, ahead: Task | None) -> None:
        """Give pending elements to a task of the body. ``ahead`` is that of :meth:`ahead_of`."""
        self._hold({number: self.pending.pop(number) for number in numbers}, task, ahead)

    def runs_before(self, task: Task | None, ahead: Task | None) -> list[Task]:
        """Return the tasks of the runs with elements that precede that of a task's next elements."""
        step, is_running = self._steps(), asyncio.current_task() is not task
        # A task that asks itself makes no run now. One that has ended has left its elements to others.
        return [
            batch.task
            for batch in self._held
            if not (batch.is_consumed(step) or batch.goes_on(task, ahead))
            and (is_running or batch.task is not task)
            and not (batch.task is None or batch.task.done())
        ]

    def held(self) -> set[int]:
        """Return the elements that are with the body."""
        return {number for batch in self._held for number in batch.elements}

    def outstanding(self) -> set[int]:
        """Return the elements below the cursor that no committed step has consumed."""
        step = self._steps()
        held = (batch.elements for batch in self._held if not batch.is_consumed(step))
        return set(self.pending).union(*held)

    def end_pass(self) -> None:
        """Record that the source has no more elements in this pass."""
        self._fetching, self.has_ended = None, True

    def skip_pass(self) -> None:
        """Leave out the rest of a pass, and the elements that the body has received and not used."""
        self._held, self._again, self._fetching = [], deque(), None
        self.pending.clear()
        self._cursor = self._taken
        self._skipped += 1
        self.source.skip_pass()

    @property
    def revision(self) -> int:
        """See ``StatefulMembers.revision``. The source may have changes of its own, such as items."""
        source = self.source
        if source is not None:
            self._source_revision = members_of(SourceMembers, source).revision or 0
        return self._skipped + self._source_revision

    @property
    def cursor(self) -> int:
        """The number of the next element."""
        return self._cursor

    @property
    def taken(self) -> int:
        """The number of elements that the source has given, over all restarts."""
        return self._taken

    @property
    def to_read_again(self) -> int:
        """The number of outstanding elements that the source is going to give again."""
        return sum(end - first for first, end in self._again)

    # -- runs

    def run_begins(self, task: Task) -> None:
        """Record which elements a run consumes if it commits a step. Called in each run."""
        # It consumes the elements received before it: one that is fetched during a run is of the next.
        held = self._held
        if len(held) == 1 and (batch := held[0]).task is task:
            if batch.at is NOT_BEGUN:
                batch.at = self._steps()
                if self._runner is not task:
                    self._runner = task
                    self._runners.add(task)
        elif held:
            self._assign(task)

    def _assign(self, task: Task) -> None:
        """Find the batches of a run among those of several tasks."""
        waiting = [batch for batch in self._held if batch.at is NOT_BEGUN]
        # A task that has returned has passed its elements on to the next run of another task.
        mine = [batch for batch in waiting if batch.task is task or batch.is_passed_on()]
        if task not in self._askers:
            # Others received the elements for it: a task that makes no runs, or one that awaits this
            # run as a task of its own.
            mine = [batch for batch in waiting if batch in mine or batch.task not in self._runners]
        # A double buffer has received the element of the next run already if its fetch was fast.
        mine = [batch for batch in mine if batch.ahead is None or batch.ahead is task]
        if not mine:
            return
        step = self._steps()
        if any(batch.task is task for batch in mine):
            self._runners.add(task)
        self._held = [
            batch for batch in self._held if not (batch.task is task and batch.is_consumed(step))
        ]
        for batch in mine:
            batch.at, batch.task = step, task

    # -- the state

    def state_dict(self) -> dict[str, Any]:
        """Return the position before the first outstanding element, and the numbers of all."""
        step, at, mark = self._steps(), self._cursor, self._fetching
        elements = dict(self.pending)
        for batch in self._held:
            if not batch.is_consumed(step):
                elements |= batch.elements
        if elements and (first := min(elements)) < at:
            at, mark = first, elements[first]
        outstanding = [*self._again, *((number, number + 1) for number in elements)]
        if mark is None:
            mark = self._mark()
        return {
            "step": step, "at": at, "position": mark(), "taken": self._taken,
            "outstanding": list(map(list, merged(outstanding))), "source": self.description,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Move the source to a saved position, unless a recovery has lost no step."""
        recoveries, step = self._recoveries, self._step_of_data()
        if recoveries.number != self._recovery:  # the first attempt of a recovery
            self._recovery, self._moved_in_recovery = recoveries.number, False
        repeated = recoveries.repeated
        if recoveries.current is not None:  # no recovery: the program restores a checkpoint
            repeated, self._moved_in_recovery = None, True
        # The body uses these in the repeated run or a later one: they are not given again.
        kept = [
            batch
            for batch in self._held
            if batch.at is NOT_BEGUN or (repeated is not None and batch.task is repeated)
        ]
        if not self._moved_in_recovery and state["step"] == step:
            unused = [b for b in self._held if b.at == step and b not in kept]
            if step is None or not unused:
                return
            if self.returned is not None:
                for batch in unused:
                    self._held.remove(batch)
                    self.pending |= batch.elements
                    self.returned(batch)
                return
            state = self.state_dict()  # the run is not repeated: its elements are outstanding
        self._moved_in_recovery = True
        self._move(state, kept)

    def restart(self, step: int | None) -> None:
        """Set the first position if it belongs to this step, that of a state initialised again."""
        if state := self.first_state(step):
            self.load_state_dict(state)

    def first_state(self, step: int | None) -> dict[str, Any] | None:
        """Return the first position if it belongs to this step."""
        first, start = self._first
        if step is None or step != first:
            return None
        return {"step": step, "at": 0, "position": start(), "taken": 0, "outstanding": []}

    def _move(self, state: dict[str, Any], held: list[Batch]) -> None:
        self._restored = state["step"]
        source, saved = self.source, state["position"]
        position = self._start() if saved is None else saved
        marks = {number: mark for batch in held for number, mark in batch.elements.items()}
        later = [number for number in marks if number >= state["at"]]
        if later and self.follows and self._rewinds and source is not None:
            try:
                position = source.aligned(position, marks[min(later)]())
            except ValueError as error:
                logger.warning(
                    "The body holds elements of steps that a recovery has lost, and the data comes in "
                    "another order: elements may count twice or never. %s",
                    error,
                )
        if source is None:
            self._last, self.has_ended = position, False
        else:
            source.load_state_dict(position)
        taken, outstanding = state["taken"], [(first, end) for first, end in state["outstanding"]]
        self._taken = max(self._cursor if not self._rewinds else 0, taken, *(n + 1 for n in marks))
        for batch in held:
            is_outstanding = any(
                n >= taken or any(first <= n < end for first, end in outstanding)
                for n in batch.elements
            )
            if batch.at is not NOT_BEGUN:
                batch.at = state["step"] if is_outstanding else None
        again = merged([*outstanding, (taken, self._taken)])
        for number in marks:
            again = without(again, number, number + 1)
        self._held, self._fetching, self._cursor = held, None, state["at"]
        self._again, self.pending = deque(again), {}
        if not self._rewinds:  # it continues where it is, and the pipeline has the elements
            self.pending = {n: self._start for first, end in again for n in range(first, end)}
            self._again, self._cursor = deque(), self._taken
        self._moved_to = None if self.follows else (self._cursor, position)
        self.moves += 1


def marks_of(source: Any) -> Callable[[], Mark]:
    """Return a function that returns the position of the next element of a source."""
    make = members_of(SourceMembers, source).mark
    return make or (lambda: partial(_same, source.state_dict()))


def _same(state: Any) -> Any:
    return state
