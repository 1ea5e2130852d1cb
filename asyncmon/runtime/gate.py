"""The state of a session, and the gate through which its runs pass."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident

from asyncmon.runtime.run_lock import RunLock
from asyncmon.runtime.session_state import NOT_OPEN, OTHER_LOOP, SessionState
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.runtime.stop.stop import Stop
from asyncmon.system import clock
from asyncmon.system.loop_budget import LoopBudget

logger = logging.getLogger(__name__)


class Gate:
    """The state of one session. It refuses calls in a wrong state, and holds runs in a pause.

    Attributes:
        lock: runs hold it, one at a time.
    """

    def __init__(self, stops: StopControl) -> None:
        self.state = SessionState.NEW
        self.closed = asyncio.Event()
        """Set at the end of the close."""
        self.lock = RunLock(stops.scopes)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.started: float | None = None
        """The time of the opening, in seconds since 1970."""
        self.thread = 0
        """The thread of the loop. A comparison takes less time than looking up the running loop."""
        self.budget: LoopBudget
        self.gated = False
        """Whether runs are refused or held: after a hook's stop, and in a pause."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the session is open, and at a pause and its end."""
        self._stops = stops
        self._resumed: asyncio.Event | None = None  # set during a pause only

    def bind(self) -> None:
        """Bind the session to the running loop: it is being opened.

        Raises:
            RuntimeError: it was opened before.
        """
        if self.state is not SessionState.NEW:
            raise self.refusal()
        self.state = SessionState.OPENING
        self.loop, self.thread = asyncio.get_running_loop(), get_ident()
        self.started = clock.wall()
        self.budget = LoopBudget.of_running_loop()

    def open(self) -> None:
        """Let runs begin."""
        self.state = SessionState.OPEN
        self.on_change()

    def close(self) -> None:
        """Refuse all calls from now on."""
        self.state = SessionState.CLOSED
        self.lock.holder = None
        self.closed.set()

    # -- calls in a wrong state

    def check_log(self) -> None:
        """Refuse to log before the opening and after the close. Thread-safe."""
        if self.state in (SessionState.NEW, SessionState.CLOSED):
            raise self.refusal()

    def check_open(self) -> None:
        """Refuse a call before the opening, after the close, or in another event loop."""
        if self.state is not SessionState.OPEN:
            raise self.refusal()
        if self.loop is not asyncio.get_running_loop():
            raise RuntimeError(OTHER_LOOP)

    def check_run(self) -> None:
        """Refuse a run in the same cases, and after a hook's stop."""
        self.check_open()
        if self._stops.stopped_by_hook:
            raise self._stops.refused_run()

    def check_save(self) -> None:
        """Refuse a save in the same cases, and from inside a run or a save, which it would wait for."""
        self.check_open()
        scopes = self._stops.scopes
        if self.lock.is_mine() or scopes.is_awaited() or scopes.listens("before_save"):
            raise RuntimeError(
                "save() was called from inside a run or a save, which it waits for. Call it later: in "
                "the body, in the `background` of a hook or in a task of the body."
            )

    def refusal(self) -> RuntimeError:
        """Return the error of a call in the present state."""
        message = NOT_OPEN[self.state]
        closing = self.state is SessionState.CLOSING
        return self._stops.closed_error(message) if closing else RuntimeError(message)

    # -- runs

    def stop_by_hook(self, stop: Stop) -> None:
        """Request a stop, after which runs are refused."""
        self._stops.stopped_by_hook = self.gated = True
        self._stops.request(stop)

    @property
    def paused(self) -> bool:
        """Whether the next run is held. A stop and the close end a pause."""
        is_open = self.state is SessionState.OPEN
        return is_open and self._resumed is not None and not self._stops.is_requested()

    def pause(self, reason: str | None) -> None:
        """Hold runs. See ``MonitoredSession.pause``."""
        self.check_open()
        if self._stops.is_requested():
            raise RuntimeError(
                f"The session is to stop ({self._stops.reason}), so that it cannot be paused."
            )
        if self._resumed is None:
            logger.info("Paused: %s.", reason or "a pause was requested")
            self._resumed, self.gated = asyncio.Event(), True
            self.on_change()

    def resume(self) -> None:
        """Release held runs. See ``MonitoredSession.resume``."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            logger.info("Resumed.")
            resumed.set()
            self.gated = self._stops.stopped_by_hook
            self.on_change()

    async def acquire(self) -> None:
        """Take the run lock after all earlier runs, outside a pause."""
        # Runs acquire the lock before they wait for the end of a pause, so that it keeps their order.
        # They release it during the pause, for other users of the lock.
        await self.lock.acquire()
        while (resumed := self._resumed) is not None and self.paused:
            self.lock.release()
            # A stop ends the wait, and check_run() raises its error for a run.
            with suppress(StopAsyncIteration), CallScope(self._stops.scopes, "pause"):
                await resumed.wait()
            self.check_run()
            await self.lock.acquire()
