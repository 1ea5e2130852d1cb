"""A hook that records the calls of its methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from asyncmon.runtime.protocols import Session


class Recorded(NamedTuple):
    """One call of a hook's method."""

    hook: str
    """The name of the recording hook."""
    moment: str
    """The name of the method."""
    step: int | None
    """The global step: in ``after_run`` that of the run, elsewhere that of the session. None without a
    session (``begin``) or a step."""


class RecordingHook(SessionRunHook):
    """A hook that records each call of its methods, in order, as :class:`Recorded`.

    Hooks that share ``record`` show the order in which a session calls them.

    Args:
        name: the name of the hook in the record.
        fetches: fetches to add to each run; the results are in ``values``.
        feed_dict: feeds to add to each run.
        record: the list to append to; a new one if None.
        priority: the priority of the hook.

    Example::

        record = []
        hooks = [RecordingHook("A", record=record), RecordingHook("B", record=record)]
        async with MonitoredSession(hooks=hooks) as sess:
            await sess.run(train_op)
        assert [entry.hook for entry in record if entry.moment == "after_run"] == ["A", "B"]
    """

    def __init__(
        self,
        name: str = "hook",
        fetches: Any = None,
        feed_dict: Mapping[Any, Any] | None = None,
        *,
        record: list[Recorded] | None = None,
        priority: int = 0,
    ) -> None:
        self.name = name
        self.priority = priority
        self.record: list[Recorded] = [] if record is None else record
        self.values: list[SessionRunValues] = []
        """The ``run_values`` of each ``after_run``."""
        self.sessions: list[Session] = []
        """The sessions that were created."""
        self.coords: list[Coordinator] = []
        """Their coordinators."""
        self.error: BaseException | None = None
        """The argument of ``cleanup``."""
        self._args = SessionRunArgs(fetches, feed_dict)

    def moments(self) -> list[str]:
        """Return the names of this hook's methods in the order of their calls."""
        return [entry.moment for entry in self.record if entry.hook == self.name]

    def steps(self, moment: str) -> list[int | None]:
        """Return the steps at which one method of this hook was called."""
        return [entry.step for entry in self.record if entry[:2] == (self.name, moment)]

    async def begin(self) -> None:
        """Record the call."""
        self._note("begin", None)

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Record the call, and keep the session and its coordinator."""
        self.sessions.append(session)
        self.coords.append(coord)
        self._note("after_create_session", session.global_step)

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Record the call. Request the fetches and feeds of the constructor."""
        self._note("before_run", run_context.session.global_step)
        return None if self._args == (None, None, None) else self._args

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Record the call, and keep the run's values."""
        self.values.append(run_values)
        self._note("after_run", run_values.step)

    async def end(self, session: Session) -> None:
        """Record the call."""
        self._note("end", session.global_step)

    async def cleanup(self, error: BaseException | None) -> None:
        """Record the call, and keep the error."""
        self.error = error
        self._note("cleanup", None)

    def _note(self, moment: str, step: int | None) -> None:
        self.record.append(Recorded(self.name, moment, step))
