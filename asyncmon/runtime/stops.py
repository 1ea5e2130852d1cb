"""Whether and why a session is to stop, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.interrupts import Interrupts
from asyncmon.runtime.patience import Patience

if TYPE_CHECKING:
    from asyncmon.runtime.hook_set import HookSet
    from asyncmon.runtime.recoverable import Recoverable
    from asyncmon.runtime.turn import Turn

__all__ = ["Stops"]


class Stops:
    """What was requested of the whole session, over the coordinators that recoveries bring.

    Args:
        preemption: errors of tasks that mean a recovery and not a stop.
    """

    def __init__(self, preemption: tuple[type[Exception], ...]) -> None:
        self.whole = Coordinator(())
        """The stop of the session itself; a coordinator without tasks."""
        self.current: Coordinator | None = None
        """The coordinator of the tasks beside the steps."""
        self.waits = Interrupts()
        """Those who wait for data, which a stop ends."""
        self.patience: Patience | None = None
        """What ends runs that do not end; there from the beginning of the session on."""
        self._preemption = preemption
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False

    def begin(self, grace: float, hooks: HookSet, turn: Turn, sessions: Recoverable) -> None:
        """Act on stops from now on."""
        self._loop = asyncio.get_running_loop()
        self.patience = Patience(grace, hooks, turn, sessions, lambda: self.reason)
        if self.whole.should_stop():
            self._spread(False)

    def end(self) -> None:
        """No run is to be stopped any more, nor is anybody to wait for data."""
        self._ended = True
        if self.patience is not None:
            self.patience.forget()
        self.waits.interrupt(StopAsyncIteration())

    def gave_up(self, error: BaseException | None) -> bool:
        """Return whether an error is that of a run which did not end in time after a stop."""
        return error is not None and self.patience is not None and error is self.patience.error

    def adopt(self, coord: Coordinator) -> None:
        """Go on with a new coordinator, which inherits what the one before was asked for."""
        before, self.current = self.current, coord
        if before is not None:
            before.samples.move_to(coord.samples)
            if before.stopped_by_request:
                coord.request_stop(reason=before.stop_reason)
        if self.whole.should_stop():
            coord.request_stop(reason=self.whole.stop_reason)
        coord.when_stopped(self._act)

    def request(self, reason: str) -> None:
        """Ask the session to stop. Safe in any thread and signal handler."""
        self.whole.request_stop(reason=reason)
        if self._loop is not None:
            excused = self.patience is not None and self.patience.excuse_caller()
            with contextlib.suppress(RuntimeError):  # a closed loop has nobody to wake
                self._loop.call_soon_threadsafe(self._spread, excused)

    def _spread(self, excused: bool) -> None:
        if self.current is not None:
            self.current.request_stop(reason=self.whole.stop_reason)
        self._act(excused)

    def _act(self, excused: bool | None = None) -> None:
        """Wake who waits for data, and begin to lose patience.

        Args:
            excused: whether a run itself asked for the stop. None: a coordinator was asked.
        """
        if excused is None and self.whole.should_stop():
            return  # the coordinator was only told of it
        if self.patience is not None and not self._ended and self.is_requested():
            self.waits.interrupt(StopAsyncIteration())
            self.patience.watch(bool(excused))

    def is_requested(self) -> bool:
        """Return whether there is a stop.

        An error that the next run recovers from is none, nor is the end of a session that a recovery
        replaces.
        """
        if self.whole.should_stop():
            return True
        coord = self.current
        if coord is None or self._recovers(coord):
            return False
        return coord.stopped_by_request or coord.error is not None

    def raise_pending(self) -> None:
        """Raise what failed beside the steps, unless the next run recovers from it."""
        coord = self.current
        if coord is not None and not self._recovers(coord):
            coord.raise_requested_exception()

    @property
    def reason(self) -> str | None:
        """Why, by whoever was first to say."""
        coord = self.current
        return self.whole.stop_reason or (coord.stop_reason if coord is not None else None)

    def _recovers(self, coord: Coordinator) -> bool:
        return isinstance(coord.error, self._preemption) and not coord.stopped_by_request
