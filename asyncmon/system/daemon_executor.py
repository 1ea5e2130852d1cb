"""Worker threads that do not delay the exit of the program.

The pools of asyncio and anyio are joined at exit, so a call that hangs, in a read or in a step, would
hang the exit, too. These threads are daemons: a job that hangs is abandoned.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Jobs = SimpleQueue["list[Any] | None"]


class DaemonExecutor(Executor):
    """A pool of daemon threads, started on demand. They also end when this object is collected.

    Args:
        name: a prefix of the threads' names.
        workers: the maximum number of threads. A single worker runs jobs in order.
    """

    def __init__(self, name: str, workers: int = 1) -> None:
        self._name = name
        self._limit = workers
        self._jobs: Jobs = SimpleQueue()
        self._started = 0
        self._end = weakref.finalize(self, _end, self._jobs, workers)
        self._end.atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``fn(*args, **kwargs)`` in a thread.

        Raises:
            RuntimeError: the pool was shut down, or the system cannot start a thread.
        """
        self._start_thread()
        future: Future[T] = Future()
        self._jobs.put([partial(fn, *args, **kwargs), future])
        return future

    def start(self, fn: Callable[..., T], /, *args: Any) -> asyncio.Future[T]:
        """Run ``fn(*args)`` in a thread, and return a future of the running loop with its result.

        Raises:
            RuntimeError: as :meth:`submit`.
        """
        loop = asyncio.get_running_loop()
        kind: Any = type(loop)
        if _watches_calls(kind):
            return loop.run_in_executor(self, fn, *args)
        # With a future less: at 50 us of work the way to the thread and back takes 26 us instead of 43.
        self._start_thread()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put([partial(fn, *args), _Landing(loop, future)])
        return future

    def _start_thread(self) -> None:
        """Start one more thread, up to the limit."""
        if not self._end.alive:
            raise RuntimeError(f"The threads {self._name!r} were shut down and take no more jobs.")
        if self._started < self._limit:
            thread = threading.Thread(target=_serve, args=(self._jobs,), name=self._name, daemon=True)
            try:
                thread.start()
                self._started += 1
            except RuntimeError:  # no more threads: the running ones take this job, too
                if not self._started:
                    raise

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after the submitted jobs. Does not wait."""
        self._end()

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Run ``fn(*args)`` in a thread and return its result. A cancellation abandons the job."""
        return await self.start(fn, *args)


@cache
def _watches_calls(kind: type[asyncio.AbstractEventLoop]) -> bool:
    """Return whether a loop replaces ``run_in_executor``. One with virtual time counts the calls."""
    own: object = kind.run_in_executor
    # That of uvloop only copies asyncio's.
    return own is not asyncio.BaseEventLoop.run_in_executor and kind.__module__ != "uvloop"


class _Landing:
    """Sets the outcome of a job in a future of a loop, by one call into the loop."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self._loop, self._future = loop, future

    def set_running_or_notify_cancel(self) -> bool:
        return not self._future.cancelled()

    def set_result(self, result: Any) -> None:
        self._land(self._future.set_result, result)

    def set_exception(self, error: BaseException) -> None:
        self._land(self._future.set_exception, error)

    def _land(self, settle: Callable[[Any], None], outcome: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            self._loop.call_soon_threadsafe(_settle, self._future, settle, outcome)


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not future.done():  # its waiter may have cancelled it
        settle(outcome)


_at_start: list[Callable[[], None]] = []


def at_start_of_threads(fn: Callable[[], None]) -> None:
    """Register a function that each new thread of a pool calls first."""
    _at_start.append(fn)


def _serve(jobs: Jobs) -> None:
    for fn in _at_start:
        fn()
    while (job := jobs.get()) is not None:
        _run(job)


def _run(job: list[Any]) -> None:
    future = job.pop()
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(_called(job))
    except BaseException as error:
        future.set_exception(error)
    finally:
        del future  # an error refers to this frame, which must not refer to the error


def _called(job: list[Any]) -> Any:
    """Run a job and set its result, without keeping references to it."""
    call = job.pop()
    try:
        return call()
    except StopIteration as error:  # a future refuses it, and its waiter would hang
        raise no_stop_iteration(call.func, error) from error
    finally:
        del call


def _end(jobs: Jobs, workers: int) -> None:
    for _ in range(workers):
        jobs.put(None)


def no_stop_iteration(fn: Callable[..., Any], error: StopIteration) -> RuntimeError:
    """Return the error to raise for a function that raised StopIteration."""
    stopped = RuntimeError(f"{fn!r} raised StopIteration; to end the data, raise OutOfRangeError.")
    stopped.__cause__ = error
    return stopped
