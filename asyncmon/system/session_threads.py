"""The threads of a session: one for its steps, and others beside them."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from asyncmon.system.daemon_executor import DaemonExecutor

T = TypeVar("T")


class SessionThreads:
    """A worker for steps, and a pool for other calls. Started on demand.

    Args:
        workers: the most threads of the pool.
        refusal: makes the error of a step after one that was abandoned.
        around: makes a context manager that each call is in.
    """

    def __init__(
        self,
        workers: int,
        refusal: Callable[[str], Exception],
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._workers, self._refusal, self._around = workers, refusal, around
        self._process = os.getpid()
        self._worker: DaemonExecutor | None = None
        self._pool: DaemonExecutor | None = None
        self._running: set[asyncio.Future[Any]] = set()
        self._computing: dict[int, None] = {}
        self.abandoned = False
        """Whether :meth:`abandon` was called."""

    def submit(self, function: Callable[[], T], *, step: bool = False) -> asyncio.Future[T]:
        """Call a function in a thread, and return a future of its result.

        Raises:
            RuntimeError: the session was created in another process.
            Exception: a step, and an earlier one was abandoned in its thread: ``refusal``.
        """
        if step and self.abandoned:
            raise self._refusal(
                "An earlier step is still computing in its thread, after a stop that did not wait for "
                "it any longer: the session makes no further step. Restore its last checkpoint in a "
                "new process."
            )
        if os.getpid() != self._process:
            raise RuntimeError(
                "This session was made in another process, and a fork takes no threads along. Make a "
                "session in the process that runs it."
            )
        if step:  # one at a time, in the same worker, whose core has their data in its caches
            executor = self._worker = self._worker or DaemonExecutor("asyncmon-session-steps")
        else:
            executor = self._pool = self._pool or DaemonExecutor("asyncmon-session", self._workers)
        context = contextvars.copy_context()
        future = executor.start(context.run, self._call, function)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    @property
    def running(self) -> tuple[asyncio.Future[Any], ...]:
        """The calls that have not ended."""
        return tuple(self._running)

    def computing(self) -> tuple[int, ...]:
        """Return the threads that execute a call now, by their idents."""
        return tuple(self._computing)

    def abandon(self) -> None:
        """Cancel the futures of all calls. A thread that executes one continues: none can be ended."""
        self.abandoned = True
        for future in self.running:
            future.cancel()

    def close(self) -> None:
        """End the threads after the submitted calls."""
        for executor in filter(None, (self._worker, self._pool)):
            executor.shutdown()
        self._pool = self._worker = None

    def _call(self, function: Callable[[], T]) -> T:
        ident = threading.get_ident()
        self._computing[ident] = None
        try:
            with self._around():
                return function()
        finally:
            del self._computing[ident]
