"""The deadline of a session after a signal, divided between the stages of its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from enum import Enum
from typing import Any, NamedTuple, Protocol

from asyncmon.errors import DeadlineExceededError
from asyncmon.runtime.stop.stop import Stop
from asyncmon.system import clock
from asyncmon.system.error_text import where_it_waits
from asyncmon.system.leavable import Leavable

logger = logging.getLogger(__name__)

LEAVE_SECS = 0.25
"""The longest time from the deadline of a stage to the end of the wait for code that ignores it."""


class Share(NamedTuple):
    """The share of a stage in the grace period."""

    text: str
    secs: Callable[[float, float], float]
    """Return it in seconds, for a grace period and the expected time of the last save."""


_REST = Share("the rest", lambda period, save: 0.0)
_SAVE = Share(
    "the expected time of the save: at least 1 s, at most half of the period",
    lambda period, save: min(max(save, 1.0), period / 2),  # a disk may be busy
)
_SMALL = Share("4 %, at most 1 s", lambda period, save: min(0.04 * period, 1.0))


class Stage(Enum):
    """The stages of a shutdown, in their order. Each one ends early enough for the later ones.

    docs/operating.md has this table.
    """

    RUNS = "current runs complete or are interrupted", _REST
    ENDS = "`end` of the hooks", _SMALL
    SAVES = "`end` of the hooks that save", _SAVE
    TASKS = "background tasks end or are cancelled", _SMALL
    JOIN = "cancelled tasks are joined, and the raw session is closed", _SMALL
    CLEANUP = "`cleanup` of the hooks", _SMALL
    EXIT = "the event loop is closed, and the process ends", _SMALL

    def __init__(self, what: str, share: Share) -> None:
        self.what = what
        self.share = share


_Limited = tuple[Stage, Leavable | None, asyncio.Task[Any] | None]
_AFTER_SAVE = (Stage.TASKS, Stage.JOIN, Stage.CLEANUP)


class Process(Protocol):
    """What the sessions of a process share: the end of all, which may come before that of one."""

    end: float
    """The time at which the process ends, on the loop's clock, or ``math.inf``."""
    sessions: dict[SessionShutdown, None]
    """The open sessions."""
    timeouts: list[BaseException]
    """The errors of hooks that exceeded the grace period, if the process ends with it."""

    def left(self, session: SessionShutdown, stop: Stop | None) -> None:
        """Keep the stop and the loss of a session that has ended, for the exit status."""


class SessionShutdown:
    """The shutdown of one session: one deadline after a signal, divided between its stages.

    Args:
        grace: the grace period of the session in seconds.
        process: the process, which may end earlier.
    """

    #   signal                                                                _deadline
    #   |---- RUNS ----|- ENDS -|--- SAVES ---|- TASKS -|- JOIN -|- CLEANUP -|- EXIT -|
    #   |<---------------------------------- grace ---------------------------------->|
    #                  ^ until(RUNS)          |<------------ _left[SAVES] ----------->|
    #
    #   Each stage has its share, RUNS the rest. Without a signal _deadline is inf.

    def __init__(self, grace: float, process: Process) -> None:
        self.grace = grace
        """The grace period in seconds. From a signal on, at most the time that the process has."""
        self.signalled = False
        """Whether a signal came while the session was open."""
        self.is_closing = False
        """Whether the session closes, or is closed."""
        self.unsaved: Callable[[], str | None] = lambda: None
        """Returns which state is lost if the process ends now, or None. Called in any thread."""
        self.close: Callable[[BaseException | None], Coroutine[Any, Any, Any]] | None = None
        """Closes the session, with the error of ``main``, if the program has not closed it."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.is_counted = True
        """Whether the exit status of the process counts the end of the session."""
        self._pid = os.getpid()
        self._process = process
        self._own_grace = grace
        self._save_secs = 0.0
        self._deadline = math.inf
        self._left = dict.fromkeys(Stage, 0.0)
        self._limits: dict[asyncio.Timeout, _Limited] = {}

    def enter(self) -> None:
        """Add the session to the open ones of the process."""
        self.loop = asyncio.get_running_loop()
        self._process.sessions[self] = None

    def leave(self, stop: Stop | None) -> None:
        """Remove it. With a stop that preempted the session, its loss is kept for the exit status."""
        self._process.sessions.pop(self, None)
        self._process.left(self, stop if self.is_counted else None)

    @property
    def is_alive(self) -> bool:
        """Whether the session's event loop is not closed."""
        return self.loop is not None and not self.loop.is_closed()

    @property
    def is_foreign(self) -> bool:
        """Whether this is a forked child of the process that made and continues the session."""
        return self._pid != os.getpid()

    @property
    def is_running(self) -> bool:
        """Whether there is a deadline, after a signal."""
        return self._deadline < math.inf

    def start(self, at: float, save_secs: float) -> None:
        """Start the grace period after a signal.

        Args:
            at: the time of the signal on the loop's clock.
            save_secs: the expected time of the last save.
        """
        self.signalled, self._save_secs = True, save_secs
        self._divide(at, min(at + self._own_grace, self._process.end))

    def cut_short(self) -> None:
        """End the grace period, after a second signal."""
        now = clock.monotonic()
        self._divide(now, now)

    def extend(self, stage: Stage) -> bool:
        """Start another grace period if the time of a stage is over before it begins.

        Return whether there is another grace period.
        """
        # The code before it has ignored its deadline, and the process has not ended.
        now = clock.monotonic()
        end = min(now + self._own_grace, self._process.end)
        if not self.is_over(stage) or self.grace <= 0 or end <= now:
            return False
        self._divide(now, end)
        return True

    def _divide(self, start: float, end: float) -> None:
        self.grace, self._deadline = max(end - start, 0.0), end
        if end == math.inf:
            return
        later = 0.0
        for stage in reversed(Stage):
            self._left[stage] = later
            later += stage.share.secs(self.grace, self._save_secs)
        for limit, (stage, _, _) in self._limits.items():
            if not limit.expired():
                limit.reschedule(self.until(stage))
                self._leave_later(limit)

    def until(self, stage: Stage) -> float:
        """Return the deadline of a stage on the loop's clock; ``math.inf`` without a signal."""
        end = self._deadline - self._left[stage]
        if not self.is_running or stage not in _AFTER_SAVE:
            return end
        # Sessions of one loop close one after another, as their blocks nest. After its save, each
        # leaves the next ones the time for theirs, and takes only the least that its stage needs.
        others = [
            one.until(Stage.ENDS)
            for one in self._process.sessions
            if one.loop is self.loop and one.signalled and not one.is_closing
        ]
        least = clock.monotonic() + stage.share.secs(self.grace, 0.0)
        return min(end, max(min(others, default=math.inf), least))

    def end_of_body(self) -> float:
        """Return when a body that waits outside of runs is cancelled, after these are interrupted."""
        return (self.until(Stage.RUNS) + self.until(Stage.ENDS)) / 2

    @property
    def is_hosted(self) -> bool:
        """Whether ``am.run`` ends the process after a signal, and cancels ``main`` before that."""
        return self._process.end < math.inf

    def is_over(self, stage: Stage) -> bool:
        """Return whether the time of a stage is over."""
        return self.is_running and clock.monotonic() >= self.until(stage)

    def timeout(self, what: str) -> DeadlineExceededError:
        """Return the error of a hook that exceeded its stage."""
        error = DeadlineExceededError(f"{what} within the grace period after a signal.")
        if self.is_hosted:  # else nothing asks for it
            self._process.timeouts.append(error)
        return error

    @contextlib.asynccontextmanager
    async def limit(
        self, stage: Stage, caller: Leavable | None = None
    ) -> AsyncIterator[asyncio.Timeout]:
        """Cancel the block at the deadline of its stage, also if the signal comes during the block.

        Args:
            stage: of the block.
            caller: awaits user code by ``leavable``. It leaves that soon after the deadline, if the
                code ignores its cancellation.

        Raises:
            TimeoutError: the deadline was exceeded.
        """
        when = self.until(stage)
        async with asyncio.timeout_at(when if when < math.inf else None) as limit:
            task = asyncio.current_task()
            self._limits[limit] = stage, caller, task
            self._leave_later(limit)
            try:
                yield limit
            finally:
                del self._limits[limit]
                if caller is not None and caller.is_left and task is not None:
                    task.uncancel()  # the second request

    def _leave_later(self, limit: asyncio.Timeout) -> None:
        when = limit.when()
        if when is not None and self._limits[limit][1] is not None:
            secs = min(LEAVE_SECS, 0.01 * self.grace)
            asyncio.get_running_loop().call_at(when + secs, self._leave, limit)

    def _leave(self, limit: asyncio.Timeout) -> None:
        stage, caller, task = self._limits.get(limit, (None, None, None))
        if caller is not None and task is not None and limit.expired() and not caller.is_left:
            logger.warning(
                "A part of the end, %s, ignores its cancellation and is left behind: %s.",
                "" if stage is None else stage.what, where_it_waits(task),
            )  # fmt: skip
            caller.is_left = True
            task.cancel()
