"""The coordinator of a created session, and what its hooks share with the layers around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncmon.runtime.channel import Channel
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.observation import Observers
from asyncmon.runtime.protocols import Session, SessionMembers
from asyncmon.runtime.recorder import Recorder
from asyncmon.runtime.samples import Samples
from asyncmon.runtime.saves import Saves
from asyncmon.runtime.step_boundary import StepBoundary
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.current_run import enter
from asyncmon.runtime.stop.origin import NoEndError, mark
from asyncmon.runtime.stop.stop import Stop
from asyncmon.system.members import members_of


class SessionCoordinator(Coordinator):
    """The coordinator of one raw session. A recovery brings a new one.

    Args:
        raw: the raw session.
        stops: of the whole session, over recoveries. A stop of either one is a stop of both.
        hooks: returns the hooks that the session has now.
        observers: of the whole session, over recoveries.
        recorder, saves: of the whole session, likewise.
        add_channel: is called with each new channel.
    """

    def __init__(
        self,
        raw: Session,
        stops: StopControl,
        hooks: Callable[[], tuple[Any, ...]],
        observers: Observers,
        recorder: Recorder,
        saves: Saves,
        add_channel: Callable[[Channel[Any]], None],
    ) -> None:
        super().__init__(clean_stop_exception_types=())
        self.raw: Any = raw
        """The raw session; None once it is closed, so that nothing keeps the program by this."""
        self.stops = stops
        self.hooks = hooks
        self.observers = observers
        self.samples = Samples(
            stops.scopes, stops.refusal_of_runs, members_of(SessionMembers, raw).check_fetches
        )
        self.boundary = StepBoundary(raw, stops.scopes.current)
        self.recorder = recorder
        self._channels.is_stop = lambda: stops.event.is_set
        self._add_channel = add_channel
        self._is_replaced = False
        self.saves = saves
        """The saves of the whole session. A hook that saves by other means than ``am.Saver`` reports it
        by ``coord.saves.committed(session, step, seconds)``."""

    async def sample(self, fetches: Any) -> Any:
        return (await self.samples.request(fetches))[0]

    def log(self, values: Any, value: Any = None, *, step: int | None = None) -> None:
        self.recorder.log(values, value, step=step)

    def is_replaced(self) -> None:
        """Leave what belongs to the session to its next coordinator, see :meth:`continue_from`."""
        self._is_replaced = True
        self._channels.leave_open()

    def continue_from(self, other: SessionCoordinator) -> None:
        """Continue after a recovery with what belongs to the session."""
        other.samples.move_to(self.samples)
        other._channels.move_to(self._channels)

    def _channel_made(self, channel: Channel[Any]) -> None:
        self._add_channel(channel)

    def release(self) -> None:
        """Let the raw session go, and tasks and errors, whose frames refer to it: it is closed."""
        self.raw = None
        self.boundary.release()
        self.samples.release()
        if not self._is_replaced:
            self._channels.release()
        self._errors.clear()

    def _set_stop(self, stop: Stop) -> None:
        super()._set_stop(stop)
        self.stops.coordinator_stopped(self._stop)

    def _request_stop(
        self, error: BaseException | None, reason: str | None, source: str | None
    ) -> None:
        with self.observers.entered():
            super()._request_stop(error, reason, source)

    def _task_begins(self) -> None:
        enter(self.observers)

    def _on_stop(self) -> None:
        self.stops.task_failed(self._errors)

    def _of_task(self, error: BaseException, name: str) -> BaseException:
        try:
            mark(error, "task", f"task {name!r}")
        except NoEndError as fault:
            return fault
        return error

    def _before_cancelling(self) -> None:
        self.samples.refuse(self._tasks.running, self._stop)
