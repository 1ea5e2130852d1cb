"""Worker threads that never hold up the end of the program.

The pools of asyncio and anyio are joined when the program ends, so one call that hangs, in a read or in
a step, would hang the exit too. These threads are daemons: a job that is stuck is left behind, by name.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Jobs = SimpleQueue["list[Any] | None"]


class DaemonExecutor(Executor):
    """A pool of daemon threads, each started when first needed. They end with this object, too.

    Args:
        name: what the threads are called.
        workers: how many jobs may run at once. One worker does them in order.
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
            RuntimeError: it was shut down, or the system has no thread for it.
        """
        if not self._end.alive:
            raise RuntimeError(f"The threads {self._name!r} were shut down and take no more jobs.")
        if self._started < self._limit:
            thread = threading.Thread(target=_serve, args=(self._jobs,), name=self._name, daemon=True)
            try:
                thread.start()
                self._started += 1
            except RuntimeError:  # no more threads: those that run do this job, too
                if not self._started:
                    raise
        future: Future[T] = Future()
        self._jobs.put([partial(fn, *args, **kwargs), future])
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end when the jobs given so far are done. Never waits."""
        self._end()

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Run ``fn(*args)`` in a thread and return its result. Cancelled, it leaves the job behind."""
        return await asyncio.get_running_loop().run_in_executor(self, fn, *args)


_at_start: list[Callable[[], None]] = []


def at_start_of_threads(fn: Callable[[], None]) -> None:
    """Have a function called in each thread that pools start from now on."""
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
    """Call the function of a job, and keep nothing of it once its result is known."""
    call = job.pop()
    try:
        return call()
    except StopIteration as error:  # a future cannot carry it: whoever waits would hang
        raise no_stop_iteration(call.func, error) from error
    finally:
        del call


def _end(jobs: Jobs, workers: int) -> None:
    for _ in range(workers):
        jobs.put(None)


def no_stop_iteration(fn: Callable[..., Any], error: StopIteration) -> RuntimeError:
    """Return the error to raise where a function let a StopIteration out."""
    stopped = RuntimeError(f"{fn!r} raised StopIteration; to end the data, raise OutOfRangeError.")
    stopped.__cause__ = error
    return stopped
