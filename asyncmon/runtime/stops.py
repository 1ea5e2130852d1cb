"""Whether and why a session is to stop, from its start to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.interrupts import Interrupts
from asyncmon.runtime.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.runtime.hook_set import HookSet
    from asyncmon.runtime.turn import Turn

__all__ = ["Stops"]


class Stops:
    """What was requested of the whole session, over the coordinators that recoveries bring.

    Args:
        preemption: errors of tasks that mean a recovery and not a stop.
        is_open: whether the session is.
    """

    def __init__(self, preemption: tuple[type[Exception], ...], is_open: Callable[[], bool]) -> None:
        self.whole = Coordinator(())
        """The stop of the session itself; a coordinator without tasks."""
        self.current: Coordinator | None = None
        """The coordinator of the tasks beside the steps."""
        self.waits = Interrupts()
        """Those who wait for data, which a stop ends."""
        self._preemption = preemption
        self._is_open = is_open
        self._patience: Patience | None = None

    def begin(self, grace: float, hooks: HookSet, turn: Turn) -> None:
        """Act on stops from now on."""
        self._patience = Patience(grace, hooks, turn)
        self.whole.when_stopped(self.spread)

    def end(self) -> None:
        """Nothing is left to stop."""
        if self._patience is not None:
            self._patience.forget()

    def adopt(self, coord: Coordinator) -> None:
        """Go on with a new coordinator, which inherits what the one before was asked for."""
        before, self.current = self.current, coord
        if before is not None:
            before.samples.move_to(coord.samples)
            if before.stopped_by_request:
                coord.request_stop(reason=before.stop_reason)
        if self.whole.should_stop():
            coord.request_stop(reason=self.whole.stop_reason)
        coord.when_stopped(self.spread)

    def request(self, reason: str) -> None:
        """Ask the session to stop. Safe in any thread and signal handler."""
        self.whole.request_stop(reason=reason)

    def spread(self) -> None:
        """Pass a stop on to the tasks, and wake who waits for data. For the loop's thread."""
        if self.whole.should_stop() and self.current is not None:
            self.current.request_stop(reason=self.whole.stop_reason)
        if self._is_open() and self.is_requested():
            self.waits.interrupt(StopAsyncIteration())
            if self._patience is not None:
                self._patience.watch(self.reason, self._interrupt)

    def _interrupt(self, error: BaseException, task: Any) -> None:
        if self.current is not None:
            self.current.interrupts.interrupt(error, task)

    def is_requested(self) -> bool:
        """Return whether there is a stop; an error that the next run recovers from is none."""
        if self.whole.should_stop():
            return True
        coord = self.current
        return coord is not None and coord.should_stop() and not self._recovers(coord)

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
