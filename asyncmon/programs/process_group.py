"""Processes that train together: one state at the start, and one step before which all stop."""

from __future__ import annotations

from typing import Any

from asyncmon.errors import FailedPreconditionError, OutOfRangeError
from asyncmon.runtime import SAVER, Coordinator, SessionRunContext, SessionRunHook


class ProcessGroupHook(SessionRunHook):
    """Start with the state of the first process, and stop all processes before the same step.

    Before each run all processes exchange whether they continue. If one stops, all stop: the run
    raises :class:`~asyncmon.errors.OutOfRangeError`, which ends a monitored session as the end of data
    does. A lost process makes the exchange fail; sessions do not recover from that.

    Subclasses exchange by the means of their engine.
    """

    priority = SAVER - 1
    """After all other hooks but savers: they save the step at which all have stopped."""

    def __init__(self) -> None:
        self._coord: Coordinator
        self._agreed = False
        self.joined = False
        """Whether all processes have the state of the first."""

    async def share_state(self, session: Any) -> None:
        """Load the state of the first process, which is restored or initialised, into the others."""
        raise NotImplementedError

    async def any_stops(self, stops: bool) -> bool:
        """Return whether a process of the group stops. Waits until all have called it."""
        raise NotImplementedError

    async def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Let all processes begin alike.

        Raises:
            FailedPreconditionError: this is a recovery.
        """
        if self.joined:
            raise FailedPreconditionError(
                "A single process cannot recover: the others are at another step. Let it end, and "
                "start all again from the last checkpoint, as torchrun --max-restarts=N does."
            )
        await self.share_state(session)
        self._coord, self.joined = coord, True

    async def before_run(self, run_context: SessionRunContext) -> None:
        """Continue if all processes do.

        Raises:
            OutOfRangeError: a process stops.
        """
        if await self.any_stops(self._coord.should_stop()):
            self._agreed = True
            reason = self._coord.stop_reason or "another process stops"
            run_context.request_stop(reason)
            raise OutOfRangeError(f"All processes stop before this step: {reason}.")

    async def end(self, session: Any) -> None:
        """Stop the other processes, which wait before their next run."""
        if not self._agreed:
            self._agreed = True
            await self.any_stops(True)
