"""Worker threads for code of the user's that may block, or never return.

The pools of asyncio and anyio are joined when the program ends, so one source that hangs in a read
would hang the exit too. These threads are daemons: a job that is stuck is left behind, by name.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class DaemonExecutor(Executor):
    """A pool of daemon threads, each started when first needed.

    Args:
        name: what the threads are called.
        workers: how many jobs may run at once.
    """

    def __init__(self, name: str, workers: int = 1) -> None:
        self._name = name
        self._limit = workers
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``fn(*args, **kwargs)`` in a thread."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except StopIteration as error:  # a future cannot carry it: whoever waits would hang
                future.set_exception(no_stop_iteration(fn, error))
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._jobs.put(job)
        if len(self._threads) < self._limit:
            thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end when the jobs given so far are done. Never waits."""
        for _ in self._threads:
            self._jobs.put(None)

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Run ``fn(*args)`` in a thread and return its result. Cancelled, it leaves the job behind."""
        return await asyncio.get_running_loop().run_in_executor(self, fn, *args)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # an idle thread keeps nothing of the last job alive


def no_stop_iteration(fn: Callable[..., Any], error: StopIteration) -> RuntimeError:
    """Return the error to raise where a function let a StopIteration out."""
    stopped = RuntimeError(f"{fn!r} raised StopIteration; to end the data, raise OutOfRangeError.")
    stopped.__cause__ = error
    return stopped
