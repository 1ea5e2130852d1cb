"""The run that a session makes now, and the code that is part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_inside: ContextVar[Phase | tuple[CurrentRun] | None] = ContextVar("asyncmon_inside_run", default=None)
# A mark of the run or phase, and not the run: a context stays as long as a timer that was cancelled in
# it, minutes after the close, and would keep the session and the feeds.
# Tasks inherit it. One that a hook starts, and that waits for the run that waits for it, is then an
# error and not a deadlock. A task may outlive its run: the value counts only while this is the current
# one.

_entered: ContextVar[tuple[object, Phase | tuple[CurrentRun] | None] | None] = ContextVar(
    "asyncmon_entered", default=None
)  # the owner, and the run that the code was part of then: a run that begins later is nearer

_get_inside, _set_inside = _inside.get, _inside.set  # bound once: each run calls them


class Phase:
    """An opening, a recovery or a close, in the place of a run.

    The tasks of a coordinator that are started in it are not part of it: it does not wait for them.

    Args:
        current: of the session.
    """

    __slots__ = ("current",)

    def __init__(self, current: CurrentRun) -> None:
        self.current = current


class CurrentRun:
    """The current run with hooks, step function, opening, recovery or close of one session."""

    __slots__ = ("_mark", "owner", "run")

    def __init__(self) -> None:
        self.owner: object = None
        """What stands for the session."""
        self.run: object = None
        """The context of a run or of a step function, a :class:`Phase`, or None."""
        self._mark: Phase | tuple[CurrentRun] | None = None

    def begin(self, run: object) -> _Outer:
        """Make a run the current one, inside of an outer one maybe. Return what :meth:`end` takes."""
        outer = _get_inside(), self.run, self._mark
        mark = run if isinstance(run, Phase) else (self,)  # each tuple is another one
        _set_inside(mark)
        self.run, self._mark = run, mark
        return outer

    def end(self, run: object, outer: _Outer) -> bool:
        """Continue the outer run. Return False for a run that was left behind before."""
        # Not by a token: a coroutine that was left behind ends in another context.
        _set_inside(outer[0])
        if self.run is not run:  # another one has begun since
            return False
        _, self.run, self._mark = outer
        return True

    @property
    def is_step(self) -> bool:
        """Whether a run or a step function is the current one, and no phase."""
        return self.run is not None and not isinstance(self.run, Phase)

    def leave(self) -> None:
        """End the current run, the coroutine of which was left behind."""
        self.run = self._mark = None

    def become(self, phase: Phase) -> None:
        """Make a phase the current run for good, in which other tasks may be already."""
        self.run = self._mark = phase

    def has_caller(self) -> bool:
        """Return whether the calling code is part of the current run."""
        mark = self._mark
        return mark is not None and _inside.get() is mark

    @contextmanager
    def phase(self) -> Iterator[None]:
        """Make an opening or a recovery the current run inside the block."""
        phase = Phase(self)
        outer = self.begin(phase)
        try:
            yield
        finally:
            self.end(phase, outer)


def join_phase(phase: Phase | None) -> None:
    """Make the calling task part of a phase, before or after this is the current run."""
    _inside.set(phase)


def leave_phase() -> None:
    """End the part that the calling task has inherited of a phase."""
    if isinstance(_inside.get(), Phase):
        _inside.set(None)


def enter(owner: object) -> object:
    """Make the calling code part of the work of a session. Return what :func:`leave` takes."""
    before = _entered.get()
    _entered.set((owner, _inside.get()))
    return before


def leave(owner: object, before: Any) -> None:
    """Continue what the calling code was part of before, unless it has entered another session."""
    # Not by a token: the end of `async with` may come in another task than its start.
    entered = _entered.get()
    if entered is not None and entered[0] is owner:
        _entered.set(before)


def owner_of_caller() -> object:
    """Return the owner of the session that the calling code works for, or None.

    It is that of the innermost run or :func:`enter`. A task inherits it.
    """
    entered, mark = _entered.get(), _inside.get()
    if mark is None or (entered is not None and entered[1] is mark):
        return entered and entered[0]
    current = mark.current if isinstance(mark, Phase) else mark[0]
    return current.owner


def is_in_run() -> bool:
    """Return whether the calling code was begun in a run with hooks, a step function or a phase."""
    return _inside.get() is not None


_Outer = tuple[Phase | tuple[CurrentRun] | None, object, Phase | tuple[CurrentRun] | None]
