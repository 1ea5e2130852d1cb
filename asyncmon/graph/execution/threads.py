"""The threads of a session beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from asyncmon.graph.kernels.parallel import CORES, using_team
from asyncmon.graph.kernels.team import Team

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.run_options import SessionConfig

T = TypeVar("T")


class Threads:
    """A worker for steps, a pool for other calls, and a team that helps both. Started when needed.

    Steps, one of which runs at a time, always have the same worker: the caches of its core hold what
    they need.
    """

    def __init__(self, config: SessionConfig) -> None:
        self._config = config
        self._process = os.getpid()
        self._worker: Worker | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._team = Team((config.intra_op_parallelism_threads or CORES) - 1, "asyncmon-session-help")

    def submit(self, function: Callable[[], T], *, step: bool = False) -> asyncio.Future[T]:
        """Call a function in a thread, and return a future of its result.

        Raises:
            RuntimeError: the session was made in another process.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "This session was made in another process, and a fork takes no threads along. Make a "
                "session in the process that runs it."
            )
        loop = asyncio.get_running_loop()
        # A loop that has its own run_in_executor keeps track of calls in threads.
        if step and type(loop).run_in_executor is asyncio.BaseEventLoop.run_in_executor:
            self._worker = self._worker or Worker("asyncmon-session-steps")
            return self._worker.submit(partial(self._with_team, function))
        self._pool = self._pool or ThreadPoolExecutor(self._config.workers, "asyncmon-session")
        context = contextvars.copy_context()
        return loop.run_in_executor(self._pool, context.run, self._with_team, function)

    def close(self) -> None:
        """Let the threads end after the calls that were submitted."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        if self._worker is not None:
            self._worker.close()
        self._pool = self._worker = None
        self._team.close()

    def _with_team(self, function: Callable[[], T]) -> T:
        with using_team(self._team):
            return function()


class _Job(NamedTuple, Generic[T]):
    """A call to make, in the context of the caller."""

    function: Callable[[], T]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]


class Worker:
    """One thread, started at the first call. It ends at :meth:`close`, or when this object is gone.

    ``loop.run_in_executor`` does the same with three futures and as many iterations of the loop: some
    fifty microseconds that a step of a few milliseconds would feel.
    """

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
