"""Processes that train together: one state at the start, and one step before which all stop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncmon.checkpoint.stateful import pack_all, stateful_of, unpack
from asyncmon.errors import FailedPreconditionError, OutOfRangeError
from asyncmon.runtime import SAVER, Coordinator, SessionRunContext, SessionRunHook

POSITIONS = "data"
"""The entry of the positions of a process in its data, as JSON; their arrays are below it."""


def positions_of(session: Any) -> dict[str, Any]:
    """Return the positions of a process in its data as entries.

    Each process has its own. Those of the first one are saved with its state.
    """
    states = stateful_of(session).states()
    packed, arrays = pack_all({n: one for n, one in states.items() if not n.startswith("hooks/")})
    inside = {f"{POSITIONS}/{name}": np.asarray(array) for name, array in arrays.items()}
    return {POSITIONS: np.array(json.dumps(packed), object), **inside}


def load_positions(session: Any, entries: Mapping[str, Any]) -> None:
    """Let the data that the process begins to read continue at the positions in entries."""
    packed = json.loads(str(np.asarray(entries[POSITIONS]).item()))
    prefix = f"{POSITIONS}/"
    arrays = {n.removeprefix(prefix): one for n, one in entries.items() if n.startswith(prefix)}
    if packed:
        stateful_of(session).load({name: unpack(state, arrays) for name, state in packed.items()})


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
        """Load the state of the first process, which is restored or initialised, into the others.

        With the positions in their data, see :func:`load_positions`.
        """
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
