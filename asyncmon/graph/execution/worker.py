"""A thread beside the loop that does one thing after another, with little ado.

``loop.run_in_executor`` does the same with three futures and as many turns of the loop: some fifty
microseconds that a step of a few milliseconds would feel.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from asyncmon.graph.execution.handover import Handover

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Job", "Worker", "suits"]

T = TypeVar("T")


def suits(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a worker may be used: a loop that keeps track of calls in threads wants to make them."""
    return type(loop).run_in_executor is asyncio.BaseEventLoop.run_in_executor


class Job(Generic[T]):
    """A function that a worker calls, in the context of whoever asked for it."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._ended = Handover(loop=self._loop)
        self._is_over = False
        self._result: Any = None
        self._error: BaseException | None = None

    async def outcome(self, on_cancel: Callable[[asyncio.CancelledError], None]) -> T:
        """Wait for the end of the call, however often this task is cancelled; return its result.

        Args:
            on_cancel: called at the first cancellation, to hurry the function along.

        Raises:
            CancelledError: the first cancellation, once the call has ended.
            BaseException: what the function raised.
        """
        try:
            await self._end_of_call(on_cancel)
            if self._error is not None:
                raise self._error
            return self._result  # type: ignore[no-any-return]
        finally:
            self._error = None  # it refers to this frame, and so to the job

    async def _end_of_call(self, on_cancel: Callable[[asyncio.CancelledError], None]) -> None:
        try:
            await self._ended
        except asyncio.CancelledError as error:
            on_cancel(error)
            with anyio.CancelScope(shield=True):  # anyio would cancel again at every turn of the loop
                while not self._is_over:
                    self._ended = Handover(loop=self._loop)
                    with contextlib.suppress(asyncio.CancelledError):
                        await self._ended
            raise

    def call(self) -> None:
        """Call the function, in the worker."""
        try:
            self._result = self._context.run(self._function)
        except BaseException as error:
            self._error = error
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._is_over = True
        self._ended.end()


class Worker:
    """One thread, started at the first job. It ends at :meth:`close`, or when this object is gone."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._started = False
        self._finalizer = weakref.finalize(self, self._jobs.put, None)
        self._finalizer.atexit = False

    def start(self, function: Callable[[], T]) -> Job[T]:
        """Have a function called after those before it. Wait for the job's outcome."""
        if not self._started:
            self._started = True
            threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True).start()
        job = Job(function)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """Let the thread end when it has done what it was given. A second call does nothing."""
        self._finalizer()


def _work(jobs: SimpleQueue[Job[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.call()
        del job  # with all it refers to, which may be much
