"""The tasks of a session that outlive its coordinators."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from asyncmon.runtime.frontier import Recoveries
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.current_run import enter
from asyncmon.runtime.stop.interrupt import background_task
from asyncmon.runtime.stop.origin import Kind, NoEndError, mark
from asyncmon.runtime.stop.stop import SessionClosedError
from asyncmon.runtime.tasks import Task, TaskSet, stop_tasks
from asyncmon.system.error_groups import is_only

logger = logging.getLogger(__name__)


class SessionTasks:
    """Tasks that a recovery leaves alone, such as the workers of pipelines.

    A stop of the session and its close cancel them at once.

    Args:
        sessions: the errors of the tasks go to the coordinator of the raw session in use.
        stops: of the session.
        owner: stands for the session, see ``stop.current_run``.
    """

    def __init__(self, sessions: Recoveries, stops: StopControl, owner: object) -> None:
        self._sessions = sessions
        self._stops = stops
        self._tasks = TaskSet(stops.event, self._failed, partial(_enter, owner))
        self._unraised: list[BaseException] = []
        self._follows_stop = False

    def start(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: str) -> Task:
        """Run ``fn(*args)`` as a task."""
        if not self._follows_stop:
            self._follows_stop = True
            self._stops.event.when_set(self.cancel)
        return self._tasks.start(fn, args, name, cancel_on_stop=True)

    @property
    def running(self) -> set[Task]:
        """The tasks that have not ended."""
        return self._tasks.running

    def task_of_caller(self) -> Task | None:
        """Return the task that the calling code is part of, or None."""
        task = background_task()
        return task if task in self._tasks.running else None

    def cancel(self) -> None:
        """Cancel all tasks but the caller, once: cleanups have the grace period."""
        caller = self.task_of_caller()
        for task in self._tasks.running:
            if task is not caller and not task.cancelling():
                task.cancel()

    async def end(self, grace: float, exclude: Task | None) -> None:
        """Wait for the tasks, which are cancelled, and cancel them again after the grace period."""
        self.cancel()
        await stop_tasks(lambda: {t for t in self._tasks.running if t is not exclude}, grace)
        self._stops.late_errors += self._unraised
        self._unraised = []

    def report(self, error: BaseException, name: str, kind: Kind = "task") -> BaseException:
        """Interrupt the current run with the error of a task, and stop the session.

        Returns:
            The error to raise where the results of the task are awaited.
        """
        try:
            mark(error, kind, f"task {name!r}")
        except NoEndError as fault:
            error = fault
        session = self._sessions.current
        if session is not None and not is_only(error, self._stops.preemption):
            session.coord._task_failed(error, name)
        else:
            # A run would recover from it, and no run has raised it. The end of the session raises it if
            # raised() is not called before.
            self._unraised.append(error)
        return error

    def raised(self, error: BaseException) -> None:
        """Note that a reported error is raised in the body."""
        self._unraised = [one for one in self._unraised if one is not error]

    def _failed(self, error: BaseException, name: str) -> None:
        if isinstance(error, SessionClosedError) and self._stops.is_own(error):
            return
        logger.error("Task %r failed.", name, exc_info=self.report(error, name))


def _enter(owner: object) -> None:
    enter(owner)
