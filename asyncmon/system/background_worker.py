"""A daemon thread that runs one job after another, some of them after a delay."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from asyncmon.system.daemon_executor import DaemonExecutor
from asyncmon.system.process_local import ProcessLocal

T = TypeVar("T")


class Worker(Protocol):
    """Runs jobs in order, never two at once."""

    def call_later(self, secs: float, fn: Callable[[], object]) -> None:
        """Run a function after some seconds, or once there is another job or :meth:`hurry`.

        Called for one function at a time.
        """

    def hurry(self) -> None:
        """End the delay of :meth:`call_later`. Thread-safe."""

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a function and return its result. A cancelled caller does not wait for it."""
        raise AssertionError("a protocol")

    def submit(self, fn: Callable[..., object], *args: Any) -> Future[Any]:
        """Run a function, for callers without an event loop."""
        raise AssertionError("a protocol")

    def shutdown(self) -> None:
        """End the thread after the jobs it has. Does not wait."""


class BackgroundWorker:
    """A worker in a daemon thread, which does not hold up the exit of the program.

    Args:
        name: the name of the thread, which starts with the first job.
    """

    def __init__(self, name: str) -> None:
        self._executor = DaemonExecutor(name)
        self._hurry = threading.Event()
        # Of the first record: a log record of a job names the run that it writes for. Each job has a
        # copy, as the last job of a worker that was left behind may run beside the next one.
        self._context = contextvars.copy_context()

    def call_later(self, secs: float, fn: Callable[[], object]) -> None:
        """See :meth:`Worker.call_later`."""
        self._hurry.clear()
        self._executor.submit(self._context.copy().run, _run_after, self._hurry, secs, fn)

    def hurry(self) -> None:
        """See :meth:`Worker.hurry`."""
        self._hurry.set()

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """See :meth:`Worker.call`."""
        # The job is in the queue before the event is set. Else a delayed job that adds itself again
        # in between would clear the event, and come first with its whole delay.
        work: asyncio.Future[T] = self._executor.start(self._context.copy().run, fn, *args)
        self._hurry.set()
        return await work

    def submit(self, fn: Callable[..., object], *args: Any) -> Future[Any]:
        """See :meth:`Worker.submit`."""
        job = self._executor.submit(self._context.copy().run, fn, *args)
        self._hurry.set()
        return job

    def shutdown(self) -> None:
        """See :meth:`Worker.shutdown`."""
        self._executor.shutdown()


def _run_after(hurry: threading.Event, secs: float, fn: Callable[[], object]) -> None:
    hurry.wait(secs)
    fn()


new_worker: ProcessLocal[Callable[[str], Worker]] = ProcessLocal(lambda: BackgroundWorker)
"""Makes the worker of a name. A simulation gives one that runs in its loop."""
