"""The tasks and threads of a coordinator, and their common stop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from asyncmon.errors import EXITS, CancelledError, OutOfRangeError
from asyncmon.runtime.stop.current_run import leave_phase
from asyncmon.runtime.stop.interrupt import enter_background
from asyncmon.runtime.stop.origin import own_generator_exit
from asyncmon.runtime.stop.stop import SessionClosedError, StopEvent
from asyncmon.system.cancellation import CANCEL_ROUNDS, current_task, is_unrequested
from asyncmon.system.daemon_executor import DaemonExecutor
from asyncmon.system.error_text import where_it_waits

logger = logging.getLogger(__name__)

Task = asyncio.Task[Any]

INSIST_SECS = 0.2
"""The time between two cancellations of a task that ignores them."""

NOTICE_SECS = 1.0
"""After this time the log names the tasks that have not ended."""


class TaskSet:
    """The tasks of a coordinator, started or registered. ``report`` is called with their errors."""

    def __init__(
        self,
        stop: StopEvent,
        report: Callable[[BaseException, str], None],
        begins: Callable[[], None] = lambda: None,
    ) -> None:
        self.running: set[Task] = set()
        """The tasks that have not ended."""
        self._cancel_on_stop: set[Task] = set()
        self._stop = stop
        self._report = report
        self._begins = begins

    def start(
        self,
        fn: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        name: str,
        *,
        cancel_on_stop: bool,
    ) -> Task:
        """Run a function as a task. See ``Coordinator.create_task``."""
        task = self._stop.bind().create_task(self._run(fn, args, name), name=name)
        self._add(task)
        if cancel_on_stop:
            self._cancel_on_stop.add(task)
            task.add_done_callback(self._cancel_on_stop.discard)
        return task

    async def _run(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], name: str) -> Any:
        task = current_task()
        assert task is not None, "this is one"
        self.running.add(task)  # an eager task begins before start() can do this
        enter_background(task)
        leave_phase()
        self._begins()
        try:
            return await _awaitable(fn, args)
        except asyncio.CancelledError as error:
            if is_unrequested():
                _warn(name, error)
            raise
        except GeneratorExit as error:
            if (fault := own_generator_exit(error, f"Task {name!r}", task)) is None:
                raise
            self._report(fault, name)
        except BaseException as error:
            if _means_closed(error, self._stop):
                return None
            self._report(error, name)
            if isinstance(error, EXITS):  # asyncio raises it out of run_forever itself
                raise

    def register(self, task: Task) -> None:
        """Adopt a task that other code created."""
        self._stop.bind()
        if task.done():  # a callback would run too late for a join with nothing to wait for
            self._on_registered_done(task)
        elif task not in self.running:
            self._add(task)
            task.add_done_callback(self._on_registered_done)

    def _add(self, task: Task) -> None:
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    def _on_registered_done(self, task: Task) -> None:
        if task.cancelled() and not task.cancelling():
            _warn(task.get_name(), None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report(error, task.get_name())

    async def end(self, grace: float, exclude: Task | None, on_stop: Callable[[], None]) -> list[str]:
        """Wait for the stop and the grace period, then cancel the tasks. Return names of stragglers.

        The task ``exclude`` is left alone. At the stop, tasks with ``cancel_on_stop`` are cancelled,
        then ``on_stop`` is called."""

        def running() -> set[Task]:
            return {task for task in self.running if not task.done() and task is not exclude}

        try:
            await self._stop.wait_while(running)
            for task in running() & self._cancel_on_stop:
                task.cancel()
            on_stop()
            return await stop_tasks(running, grace)
        except asyncio.CancelledError:
            for task in running():
                task.cancel()
            raise
        finally:
            self.running.clear()


def _warn(name: str, error: BaseException | None) -> None:
    """Warn about a task that ended in an unrequested cancellation."""
    logger.warning(
        "Task %r ended with a CancelledError and was not cancelled: it waited for a task or a future "
        "that was.",
        name, exc_info=error,
    )  # fmt: skip


class ForeignThreads:
    """The registered threads of a coordinator, which cannot be cancelled."""

    def __init__(self, tasks: TaskSet) -> None:
        self._tasks = tasks
        self._threads: dict[threading.Thread, Any] = {}  # with the task that waits for its end

    def register(self, thread: threading.Thread) -> None:
        """Add a thread, started or not."""
        self._threads.setdefault(thread, None)

    def start_waiting(self) -> None:
        """Wait for each running thread in a task of its own."""
        for thread, waiter in self._threads.items():
            if thread.is_alive() and (waiter is None or waiter.done()):
                self._threads[thread] = self._tasks.start(
                    _join, (thread,), thread.name, cancel_on_stop=False
                )

    def alive(self) -> list[str]:
        """Return the names of the threads that have not ended."""
        return sorted(thread.name for thread in self._threads if thread.is_alive())


async def _join(thread: threading.Thread) -> None:
    await DaemonExecutor(f"joining {thread.name}").call(thread.join)


def _means_closed(error: BaseException, stop: StopEvent) -> bool:
    """Return whether an error only means that the stop has closed a resource of the task."""
    if isinstance(error, BaseExceptionGroup):
        return all(_means_closed(one, stop) for one in error.exceptions)
    if isinstance(error, SessionClosedError):
        return error.stop is stop
    return stop.is_set and isinstance(error, CancelledError | OutOfRangeError)


def check_function(fn: Any) -> None:
    """Refuse an object that cannot be called, such as a coroutine object, by a ``TypeError``."""
    if inspect.iscoroutine(fn):
        fn.close()
        raise TypeError(
            f"create_task takes a function and its arguments, got the coroutine {fn.__qualname__!r}. "
            f"Write coord.create_task({fn.__name__}, ...)."
        )
    if not callable(fn):
        raise TypeError(f"create_task takes an `async def` function and its arguments, got {fn!r}.")


def _awaitable(fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Awaitable[Any]:
    result = fn(*args)
    if not inspect.isawaitable(result):
        raise TypeError(
            f"create_task takes an `async def` function; {fn!r} returned {result!r}, which cannot be "
            "awaited. Write `async def`, or coord.create_task(asyncio.to_thread, fn, ...)."
        )
    return result


# -- stopping


async def stop_tasks(running: Callable[[], set[Task]], grace: float) -> list[str]:
    """Wait for tasks, then cancel them. Return the names of stragglers, which ignore that."""
    await _wait_for(running, min(grace, NOTICE_SECS))
    if grace > NOTICE_SECS and running():
        tasks = _sorted(running())
        waiting = "; ".join(f"{task.get_name()!r}, {where_it_waits(task)}" for task in tasks)
        logger.warning(
            "Waiting %g s more for tasks to stop: %s. Then they are cancelled; create_task(..., "
            "cancel_on_stop=True) has a task cancelled at once.",
            grace - NOTICE_SECS, waiting,
        )  # fmt: skip
        await _wait_for(running, grace - NOTICE_SECS)
    for _ in range(CANCEL_ROUNDS):
        for task in running():  # others each time, as tasks start tasks
            task.cancel()
        await _wait_for(running, INSIST_SECS)
    for task in running():
        logger.warning("Task %r ignores its cancellation: %s", task.get_name(), where_it_waits(task))
    return [task.get_name() for task in _sorted(running())]


async def _wait_for(running: Callable[[], set[Task]], secs: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + secs
    while (tasks := running()) and (left := deadline - loop.time()) > 0:
        await asyncio.wait(tasks, timeout=left)


def _sorted(tasks: set[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: task.get_name())
