"""A thread beside the event loop that makes one call after another.

``loop.run_in_executor`` does the same with three futures and as many iterations of the loop: some fifty
microseconds that a step of a few milliseconds would feel.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class _Job(NamedTuple, Generic[T]):
    """A call to make, in the context of the caller."""

    function: Callable[[], T]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]


class Worker:
    """One thread, started at the first call. It ends at :meth:`close`, or when this object is gone."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._started = False
        self._finalizer = weakref.finalize(self, self._jobs.put, None)
        self._finalizer.atexit = False

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function in the thread, after those before it. Return a future of its result."""
        if not self._started:
            self._started = True
            threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True).start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(function, contextvars.copy_context(), loop, future))
        return future

    def close(self) -> None:
        """Let the thread end after the calls that were submitted. A second call does nothing."""
        self._finalizer()


def _work(jobs: SimpleQueue[_Job[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        _make(job)
        del job  # with all it refers to, which may be much


def _make(job: _Job[Any]) -> None:
    try:
        result = job.context.run(job.function)
        tell = job.future.set_result, result
    except StopIteration as error:  # no future takes one
        tell = job.future.set_exception, RuntimeError(f"A call in a worker raised {error!r}.")
    except BaseException as error:
        tell = job.future.set_exception, error
    try:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nothing waits
            job.loop.call_soon_threadsafe(_settle, job.future, *tell)
    finally:
        del job, tell  # an error's traceback refers to this frame, which must not refer to the error


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], object], value: Any) -> None:
    if not future.cancelled():
        settle(value)
