"""Calls between two steps, when all hooks have been called for every committed step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from asyncmon.checkpoint.saveable_session import order_snapshot
from asyncmon.runtime.protocols import Session
from asyncmon.system.snapshot import Snapshot

T = TypeVar("T")


class StepBoundary:
    """The boundary between two steps of a session, including the calls of its hooks.

    During a run, its step may be committed before ``after_run`` of all hooks was called. The hooks'
    states then belong to no step, and a guard may still refuse the step by :meth:`veto`. Runs without
    hooks are ignored, as guards do not see them.
    """

    __slots__ = ("_raw", "_waiting", "began_at", "failed_at", "running", "vetoed")

    def __init__(self, raw: Session) -> None:
        self._raw = raw
        self.running = False
        """Whether there is a current run with hooks."""
        self.began_at: int | None = None
        """The global step before that run, as the hooks have seen it."""
        self.failed_at: int | None = None
        """The global step before the last run that failed in a hook or in its step."""
        self._waiting: list[tuple[asyncio.Future[Any], Callable[[Snapshot | None], Any]]] = []
        self.vetoed: str | None = None
        """The reason of a veto against further saves of this session, or None."""

    def run_ends(self) -> None:
        """End the current run, and make the pending calls."""
        self.running = False
        if self._waiting:
            self._make_calls()

    def veto(self, reason: str) -> None:
        """Prevent all further calls. A recovery makes a new session, with a new boundary."""
        self.vetoed = self.vetoed or reason
        self._make_calls()

    async def call(self, fn: Callable[[Snapshot | None], T]) -> T | None:
        """Call ``fn`` between two steps, and return its result; None after a veto.

        Before the commit of a run, the argument is a snapshot of the state before it. After the commit,
        ``fn`` is called at the end of the run with None: a snapshot ordered then has that step.
        """
        raw = self._raw
        while self.vetoed is None:
            if self._hooks_lag(raw.global_step):
                return await self.call_after_run(fn)
            snapshot = await order_snapshot(raw)  # waits while a step is applied
            step = raw.global_step
            if snapshot.step == step and not self._hooks_lag(step) and self.vetoed is None:
                try:
                    return fn(snapshot)
                except BaseException:
                    snapshot.release()
                    raise
            snapshot.release()
        return None

    def call_after_run(self, fn: Callable[[Snapshot | None], T]) -> asyncio.Future[T | None]:
        """Call ``fn`` with None at the end of the current run; the future gives None after a veto."""
        result: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((result, fn))
        return result

    def _hooks_lag(self, step: int | None) -> bool:
        """Return whether the current run has committed this step."""
        return self.running and step != self.began_at

    def _make_calls(self) -> None:
        waiting, self._waiting = self._waiting, []
        for result, fn in waiting:
            if not result.done():
                try:
                    result.set_result(fn(None) if self.vetoed is None else None)
                except Exception as error:
                    result.set_exception(error)
