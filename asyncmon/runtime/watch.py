"""Notice a training that hangs, and one that has died and left its session open."""

from __future__ import annotations

import asyncio
import logging
import statistics
from collections import deque
from collections.abc import Callable

from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.interrupt import RUNS, CallScope, Kind
from asyncmon.system.error_text import phrase

logger = logging.getLogger(__name__)

LOOK_SECS = 15.0
"""The time between two looks. A step costs nothing: it is the looks that compare."""

HANG_SECS = 60.0
HANG_FACTOR = 10
"""A call hangs if it takes longer than both, the factor times the median of the time for a step."""

FIRST_SECS = 1800.0
"""The same before a step is done, which may compile."""

DEAD_SECS = 1.0
"""A training has died if nothing follows for this time after the error of a run."""

# Calls that a session makes beside the training.
_BESIDE: tuple[Kind, ...] = ("evaluation", "listener", "before_save", "sample")

_WATCHED: tuple[Kind, ...] = (*RUNS, "data")


class RunWatch:
    """Checks the runs of one session and its waits for data, and warns once of each that hangs.

    Args:
        stops: of the session, with its open calls.
        progress: returns what changes with each run: the step, and the number of awaited runs.
        describe: returns the name of a call, and where it waits.
    """

    def __init__(
        self,
        stops: StopControl,
        progress: Callable[[], tuple[int | None, int]],
        describe: Callable[[CallScope], tuple[str, str]],
    ) -> None:
        self.last_error: Exception | None = None
        """The error that the last failed run has raised, until the session is closed."""
        self._stops = stops
        self._progress = progress
        self._describe = describe
        self._secs: deque[float] = deque(maxlen=20)  # for a step, as the last looks have found it
        self._step: tuple[int, float] | None = None  # the step of the last look that found a new one
        # The calls that the last look has found: their number, and when it was found first.
        self._seen: dict[CallScope, tuple[int, float]] = {}
        self._warned: set[tuple[CallScope, int]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._is_reported_dead = self._has_ended = False

    def start(self) -> None:
        """Look from now on, in the running loop."""
        self._later("look", LOOK_SECS, self._look)

    def end(self) -> None:
        """Stop to look: the session closes."""
        self._has_ended = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._seen.clear()
        self._warned.clear()
        self.last_error = None  # its traceback keeps the frames of the body alive

    def _later(self, name: str, secs: float, call: Callable[..., None], *args: object) -> None:
        if (timer := self._timers.get(name)) is not None:
            timer.cancel()
        loop, context = asyncio.get_running_loop(), self._stops.context
        self._timers[name] = loop.call_later(secs, call, *args, context=context)

    # -- a training that hangs

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now, scopes = loop.time(), self._stops.scopes.open
        self._measure(now)
        median = statistics.median(self._secs) if self._secs else None
        limit = FIRST_SECS if median is None else max(HANG_SECS, HANG_FACTOR * median)
        seen: dict[CallScope, tuple[int, float]] = {}
        for scope in scopes:
            if scope.kind not in _WATCHED:
                continue
            number, since = self._seen.get(scope, (-1, now))
            if number != scope.number:  # another call by now
                since = now
            seen[scope] = scope.number, since
            if now - since >= limit and (scope, scope.number) not in self._warned:
                self._warned.add((scope, scope.number))
                self._warn(scope, now - since, median)
        self._seen = seen
        self._warned &= {(scope, number) for scope, (number, _) in seen.items()}
        self.start()

    def _measure(self, now: float) -> None:
        step = self._progress()[0]
        if step is None:
            return
        if self._step is None or step < self._step[0]:
            self._step = step, now
        elif step > self._step[0]:
            self._secs.append((now - self._step[1]) / (step - self._step[0]))
            self._step = step, now

    def _warn(self, scope: CallScope, secs: float, median: float | None) -> None:
        subject, place = self._describe(scope)
        step = self._progress()[0]
        usual = "" if median is None else f"; a step takes {median:.3g} s"
        logger.warning(
            "%s hangs%s: for more than %d s%s. %s. Pass step_timeout_secs to the session to end and "
            "recover from such a run.",
            subject, "" if step is None else f" after step {step}", secs, usual,
            place[:1].upper() + place[1:],
        )  # fmt: skip

    # -- a training that has died

    def failed(self, error: Exception) -> None:
        """Note that a run has raised an error to its caller."""
        if self._has_ended:  # the close has interrupted the run
            return
        self.last_error = error
        if not self._is_reported_dead:
            self._later("dead", DEAD_SECS, self._look_for_end, error, self._progress())

    def _look_for_end(self, error: Exception, before: tuple[int | None, int]) -> None:
        step = self._progress()[0]
        if self._progress() != before or self._stops.is_requested():
            return
        if any(scope.kind not in _BESIDE for scope in self._stops.scopes.open):
            self._later("dead", DEAD_SECS, self._look_for_end, error, before)  # some task continues
            return
        self._is_reported_dead = True
        logger.warning(
            "A run has failed%s, and nothing has run or closed the session since: %s. Where the task "
            "that trains has died with it, start it by sess.coord.create_task: its error then stops "
            "the session.",
            "" if step is None else f" after step {step}", phrase(error), exc_info=error,
        )  # fmt: skip
