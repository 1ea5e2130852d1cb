"""The tasks of a coordinator: none of their errors is lost, and they end together."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from asyncmon.cancellation import is_unrequested
from asyncmon.runtime.restarts import supervised
from asyncmon.runtime.stopping import stop_tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncmon.runtime.stop_event import StopEvent

__all__ = ["OwnedTasks"]

logger = logging.getLogger(__name__)

Task = asyncio.Task[Any]

_THROUGH_THE_LOOP = (KeyboardInterrupt, SystemExit)
"""What asyncio raises out of ``run_forever`` itself, to whoever runs the loop."""


class OwnedTasks:
    """Tasks that are started or registered here, until they end.

    Args:
        stop: ends the wait for tasks that would go on for ever.
        report: is given each error of a task, with the task's name.
        interrupted: is told of an exit or an interrupt by keyboard that leaves through the loop, with
            the task's name.
    """

    def __init__(
        self,
        stop: StopEvent,
        report: Callable[[BaseException, str], None],
        interrupted: Callable[[BaseException, str], None],
    ) -> None:
        self.all: set[Task] = set()
        """Those that have not ended."""
        self._hasty: set[Task] = set()
        self._stop = stop
        self._report = report
        self._interrupted = interrupted

    def start(
        self,
        fn: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        name: str,
        *,
        hasty: bool,
        restart: int,
    ) -> Task:
        """Run a function as a task; ``hasty`` ones are cancelled without a grace period."""
        task = self._stop.bind().create_task(self._run(fn, args, name, restart), name=name)
        self._own(task)
        if hasty:
            self._hasty.add(task)
            task.add_done_callback(self._hasty.discard)
        return task

    async def _run(
        self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], name: str, restart: int
    ) -> Any:
        try:
            return await supervised(self._stop, fn, args, name, restart)
        except asyncio.CancelledError as error:
            if is_unrequested():
                _warn(name, error)
            raise
        except GeneratorExit:
            raise
        except _THROUGH_THE_LOOP as error:
            self._interrupted(error, name)
            raise
        except BaseException as error:
            self._report(error, name)

    def register(self, task: Task) -> None:
        """Own a task that was made elsewhere."""
        self._stop.bind()
        if task.done():  # a callback would come too late for a join that has nothing to wait for
            self._on_registered_done(task)
        elif task not in self.all:
            self._own(task)
            task.add_done_callback(self._on_registered_done)

    def _own(self, task: Task) -> None:
        self.all.add(task)
        task.add_done_callback(self.all.discard)

    def _on_registered_done(self, task: Task) -> None:
        if task.cancelled() and not task.cancelling():
            _warn(task.get_name(), None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, _THROUGH_THE_LOOP):
            self._interrupted(error, task.get_name())
        elif error is not None:
            self._report(error, task.get_name())

    async def end(self, grace: float, but: Task | None, on_stop: Callable[[], None]) -> str:
        """Wait for the tasks, after the stop for a time, then cancel them.

        Args:
            grace: seconds that they have, from the stop on.
            but: a task not to wait for.
            on_stop: called between the two, when those that have no grace period are cancelled.

        Returns:
            A sentence about those that outlive even that, empty when there are none.
        """

        def alive() -> set[Task]:
            return {task for task in self.all if not task.done() and task is not but}

        try:
            await self._wait_until_stop_or_idle(alive)
            for task in alive() & self._hasty:
                task.cancel()
            on_stop()
            stragglers = await stop_tasks(alive, grace)
        except asyncio.CancelledError:
            for task in alive():
                task.cancel()
            raise
        finally:
            self.all.clear()
        names = " ".join(stragglers)
        return f"Coordinator stopped with threads still running: {names}" if names else ""

    async def _wait_until_stop_or_idle(self, alive: Callable[[], set[Task]]) -> None:
        with self._stop.waiter() as stop:
            while not self._stop.is_set and (tasks := alive()):
                await asyncio.wait({*tasks, stop}, return_when=asyncio.FIRST_COMPLETED)


def _warn(name: str, error: BaseException | None) -> None:
    """Say who ended without having been told to; it is no error, but may be a slip."""
    logger.warning(
        "Task %r ended with a CancelledError and was not cancelled: it waited for a task or a future "
        "that was.",
        name, exc_info=error,
    )  # fmt: skip
