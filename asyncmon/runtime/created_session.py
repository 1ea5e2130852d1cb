"""What belongs to one created session, besides the raw session and its coordinator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from asyncmon.runtime.call_scope import RUNS
from asyncmon.runtime.samples import Samples
from asyncmon.runtime.step_boundary import StepBoundary

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.runtime.protocols import Session
    from asyncmon.runtime.stop_control import StopControl


class CreatedSession:
    """The parts of a created session that its coordinator and hooks use, as ``coord._session``.

    Args:
        raw: the raw session.
        stops: of the whole session, over recoveries.
        hooks: returns the hooks that the session has now.
    """

    __slots__ = ("boundary", "hooks", "raw", "samples", "stops")

    def __init__(self, raw: Session, stops: StopControl, hooks: Callable[[], tuple[Any, ...]]) -> None:
        self.raw = raw
        self.stops = stops
        self.hooks = hooks
        self.samples = Samples(getattr(raw, "check_fetches", None))
        self.boundary = StepBoundary(raw)

    async def sample(self, fetches: Any) -> tuple[Any, int | None]:
        """Wait for the next run; return its values of ``fetches``, and the global step after it.

        Raises:
            RuntimeError: the session ended before, or this is called from inside of a run.
        """
        if self.stops.scopes.inside(asyncio.current_task(), *RUNS):
            raise RuntimeError(
                "sample() waits for the next run and was called from inside one. Ask for the fetches "
                "in before_run, or call it in the hook's background."
            )
        return await self.samples.request(fetches)
