"""The middle layer: what fails beside the steps interrupts them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from asyncmon.cancellation import without_unrequested
from asyncmon.error_text import add_note, phrase
from asyncmon.errors import PREEMPTION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncmon.runtime.coordinator import Coordinator
    from asyncmon.runtime.hooked import Hooked
    from asyncmon.runtime.step_fn import StepContext

__all__ = ["Coordinated"]

logger = logging.getLogger(__name__)

CLOSE_SECS = 60.0
"""How long a raw session may take to close before it is abandoned, named in the log."""


class Coordinated:
    """A session together with the coordinator of the tasks that run beside its steps.

    Args:
        inner: the layer below.
        coord: an error reported to it ends a run that is waiting, and every one that comes after.
        preemption: the errors that mean "try again with a new session".
        patience: seconds that a run has to finish after an error beside it, before it is ended.
    """

    def __init__(
        self,
        inner: Hooked,
        coord: Coordinator,
        preemption: tuple[type[Exception], ...] = PREEMPTION,
        patience: float = 0.0,
    ) -> None:
        self.raw = inner.raw
        self.coord = coord
        coord.interrupts.patience = patience
        self.delivered = False
        """Whether a run has raised the coordinator's error to the caller."""
        self._inner = inner
        self._preemption = preemption
        self._turn = inner.turn

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Awaitable[Any]:
        """Run once, unless something beside the steps has failed."""
        # The turn knows who calls this, and asking asyncio takes long.
        task = self._turn.holder
        return self._guard(task, self._inner.run, fetches, feed_dict, options, run_metadata)

    def run_step_fn(self, step_fn: Callable[[StepContext], Any]) -> Awaitable[Any]:
        """Call a step function, likewise."""
        return self._guard(self._turn.holder, self._inner.run_step_fn, step_fn)

    def run_bare(self, *args: Any) -> Awaitable[Any]:
        """Run without hooks, likewise."""
        return self._guard(asyncio.current_task(), self.raw.run, *args)

    def call(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> Awaitable[Any]:
        """Await anything else, likewise."""
        return self._guard(asyncio.current_task(), fn, *args)

    async def _guard(
        self, task: asyncio.Task[Any] | None, call: Callable[..., Awaitable[Any]], *args: Any
    ) -> Any:
        coord = self.coord
        if coord.error is not None:
            self.delivered = True
            raise coord.error
        interrupts = coord.interrupts
        if task is None or (base := interrupts.enter(task)) is None:
            return await call(*args)
        try:
            result = await call(*args)
        except BaseException as error:
            reason = interrupts.leave(task, base, error)
            if reason is None and isinstance(error, Exception):
                reason = self._root_cause(error)
            if reason is None:
                raise
        else:
            interrupts.leave(task, base)
            return result
        self.delivered = self.delivered or reason is coord.error
        raise reason

    def _root_cause(self, error: Exception) -> BaseException | None:
        """Return the coordinator's error where it explains that of a run better: when exactly one of
        the two is a preemption."""
        known = self.coord.error
        if known is None or known is error:
            return None
        if isinstance(known, self._preemption) == isinstance(error, self._preemption):
            return None
        add_note(known, f"The run that was under way raised {phrase(error)}")
        return known

    async def close(self, grace: float, but: asyncio.Task[Any] | None = None) -> None:
        """Stop and join the tasks, then close the raw session. Raises nothing: errors of tasks are in
        the coordinator, one of the raw session's ``close`` is logged.

        Args:
            grace: seconds for tasks to end by themselves.
            but: a task not to wait for, as it waits for this.
        """
        try:
            await self.coord.shut_down(grace, but)
        finally:
            await close_raw(self.raw)


async def close_raw(raw: Any) -> None:
    """Close a raw session, in bounded time; an error is logged."""
    try:
        async with asyncio.timeout(CLOSE_SECS):
            await without_unrequested("close() of the raw session", raw.close)
    except Exception:
        logger.exception("The raw session could not be closed in order; it is abandoned.")
