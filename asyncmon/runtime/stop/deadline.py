"""The owner of the deadline after a signal, and of the exit status of the process."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import math
import os
import selectors
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from enum import Enum
from typing import Any, NamedTuple

from asyncmon.errors import DeadlineExceededError
from asyncmon.runtime.stop.stop import Stop
from asyncmon.system import clock, portable
from asyncmon.system.error_text import where_it_waits
from asyncmon.system.leavable import Leavable
from asyncmon.system.process import ProcessLocal
from asyncmon.system.signals import SignalHandlers

logger = logging.getLogger(__name__)

FAILED, PREEMPTED, ABORTED = 1, 75, 130
"""Exit statuses; 75 is ``EX_TEMPFAIL`` of ``sysexits.h``: try again later."""

LEAVE_SECS = 0.25
"""The longest time from the deadline of a stage to the end of the wait for code that ignores it."""

DEFAULT_SECS = 120.0
"""The grace period of a process without open sessions."""

OnSignal = Callable[[str, float | None], None]


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


class ProcessShutdown:
    """The shutdown of this process: the signal, the deadline, the sessions and the exit status.

    Handlers are installed while there are callbacks, or after :meth:`hold`. They schedule the callbacks
    in their event loops; the second signal schedules them again, and then has its default action.
    """

    def __init__(self) -> None:
        self.handlers = SignalHandlers(self._handle)
        self._host: tuple[Callable[[float], None], Callable[[int], None]] | None = None
        self._secs: float | None = None
        self._schedules: dict[object, OnSignal] = {}
        self.lost: list[str] = []
        """A sentence for each session that a signal stopped and that lost its last state."""
        self.received: tuple[str, float] | None = None
        """The name of the first signal, and its time on the loop's clock."""
        self.loops: set[asyncio.AbstractEventLoop] = set()
        """The event loops in which ``am.run`` closes sessions that the program has not closed."""
        self.end = math.inf
        """The time at which ``am.run`` ends the process. Without it nothing does."""
        self.sessions: dict[SessionShutdown, None] = {}
        """The open sessions."""
        self.stop: Stop | None = None
        """The stop of a session after which the program is to be started again."""
        self.timeouts: list[BaseException] = []
        """The errors of hooks that exceeded the grace period under ``am.run``, which are no failure."""

    def hold(
        self, first: Callable[[float], None], second: Callable[[int], None], secs: float | None
    ) -> Callable[[], None]:
        """Handle signals for a process that they end. Return a function to undo it.

        Args:
            first: called in the handler of the first signal, with the time at which the process ends.
            second: called in the handlers of later signals, with their numbers.
            secs: the grace period. None: the longest one of the open sessions.
        """
        if not _in_main_thread():
            return lambda: None
        self._host, self._secs, self.stop = (first, second), secs, None
        self.lost.clear()
        self.timeouts.clear()
        self.handlers.install()

        def let_go() -> None:
            self._host = None
            self._schedules.clear()
            self._release()

        return let_go

    def call_on_signal(self, on_signal: OnSignal) -> Callable[[], None]:
        """Call ``on_signal`` in the running loop with the name and the time of each signal.

        For the second signal the time is None. No signal arrives outside of the main thread. Return a
        function that undoes this, once.
        """
        if not _in_main_thread():
            return lambda: None
        loop, key = asyncio.get_running_loop(), object()
        context = contextvars.copy_context()  # a handler has the context of the interrupted code

        def schedule(name: str, at: float | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(on_signal, name, at, context=context)

        self._schedules[key] = schedule
        self.handlers.install()
        if self.received is not None:
            schedule(*self.received)

        def undo() -> None:
            self._schedules.pop(key, None)
            self._release()

        return undo

    def losses(self) -> list[str]:
        """Return a sentence for each session whose last state is lost if the process ends now."""
        present = [one.unsaved() for one in list(self.sessions) if one.is_alive]
        return [*self.lost, *filter(None, present)]

    def status(self) -> int:
        """Return the exit status after a signal. It says whether state was lost, and nothing else."""
        return FAILED if self.losses() else PREEMPTED

    def _release(self) -> None:
        """Restore the earlier handlers, unless something still needs these."""
        if self._host is None and not self._schedules and _in_main_thread():
            self.received, self.end = None, math.inf
            self.handlers.restore()

    def _handle(self, number: int, name: str, frame: object) -> None:
        if self.received is None:
            self.received = name, clock.monotonic()
            for schedule in list(self._schedules.values()):
                schedule(*self.received)
            if self._host is not None:
                graces = [one.grace for one in list(self.sessions)]
                self.end = self.received[1] + (self._secs or max(graces, default=DEFAULT_SECS))
                self._host[0](self.end)
        elif self._host is not None:
            self._host[1](number)
        else:
            for schedule in list(self._schedules.values()):
                schedule(name, None)
            self.received = None
            self.handlers.act_by_default(number, frame)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


process_shutdown: ProcessLocal[ProcessShutdown] = ProcessLocal(ProcessShutdown)
"""The shutdown of this process."""


def _leave_loops() -> None:
    """Give the loops of open sessions a selector of their own in a forked child.

    The child shares the epoll object of its parent. When it closes its copy of the loop, it would
    remove the parent's wake-up pipe from there, and no thread could wake the parent any more.
    """
    for one in process_shutdown.get().sessions:
        loop: Any = one.loop
        if hasattr(loop, "_selector"):
            loop._selector = selectors.DefaultSelector()


portable.after_fork_in_child(_leave_loops)


class SessionShutdown:
    """The shutdown of one session: one deadline after a signal, divided between its stages.

    Without a signal there is no deadline.

    Args:
        grace: the grace period of the session in seconds.
        process: the shutdown of the process, which may end earlier. Default: that of this process.
    """

    def __init__(self, grace: float, process: ProcessShutdown | None = None) -> None:
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
        self._pid = os.getpid()
        self._process = process_shutdown.get() if process is None else process
        self._own_grace = grace
        self._save_secs = 0.0
        self._deadline = math.inf
        self._left = dict.fromkeys(Stage, 0.0)
        self._limits: dict[
            asyncio.Timeout, tuple[Stage, Leavable | None, asyncio.Task[Any] | None]
        ] = {}

    def is_closed_later(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Return whether ``am.run`` closes the sessions of a loop that the program has not closed."""
        return loop in self._process.loops

    def enter(self) -> None:
        """Add the session to the open ones of the process."""
        self.loop = asyncio.get_running_loop()
        self._process.sessions[self] = None

    def leave(self, stop: Stop | None) -> None:
        """Remove it. With a stop that preempted the session, its loss is kept for the exit status."""
        self._process.sessions.pop(self, None)
        if stop is not None:
            self._process.stop = self._process.stop or stop
            self._process.lost += filter(None, [self.unsaved()])

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

        The code before it has ignored its deadline, and the process has not ended. Return whether there
        is another grace period.
        """
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
        """Return the deadline of a stage on the loop's clock; ``math.inf`` without a signal.

        After its save, a session leaves other sessions of its loop, which may close after it, theirs.
        """
        end = self._deadline - self._left[stage]
        if not self.is_running or stage not in _AFTER_SAVE:
            return end
        others = [
            one.until(Stage.ENDS)
            for one in self._process.sessions
            if one.loop is self.loop and one.signalled and not one.is_closing
        ]
        least = clock.monotonic() + stage.share.secs(self.grace, 0.0)
        return min(end, max(min(others, default=math.inf), least))

    def is_over(self, stage: Stage) -> bool:
        """Return whether the time of a stage is over."""
        return self.is_running and clock.monotonic() >= self.until(stage)

    def timeout(self, what: str) -> DeadlineExceededError:
        """Return the error of a hook that exceeded its stage."""
        error = DeadlineExceededError(f"{what} within the grace period after a signal.")
        if self._process.end < math.inf:  # else nothing asks for it
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
