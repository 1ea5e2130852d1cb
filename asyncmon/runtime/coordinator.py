"""The owner of background tasks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, overload
from weakref import WeakSet

from asyncmon.errors import EXITS, OutOfRangeError
from asyncmon.runtime.channel import Channel, Channels, Overflow
from asyncmon.runtime.protocols import TaskMembers
from asyncmon.runtime.stop.error_log import ErrorLog, as_exception, describe
from asyncmon.runtime.stop.interrupt import background_task
from asyncmon.runtime.stop.stop import Cause, Stop, StopEvent
from asyncmon.runtime.tasks import ForeignThreads, TaskSet, check_function
from asyncmon.runtime.timer import Ticks, call_at_ticks
from asyncmon.system.cancellation import current_task
from asyncmon.system.forgotten_await import ForgottenAwait
from asyncmon.system.functions import qualified_name
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


class Coordinator:
    """Start tasks, stop them together, and lose no error. TF1: ``tf.train.Coordinator``, over tasks.

    A stop can be requested from any thread or signal handler, and is only withdrawn by
    :meth:`clear_stop`. The first error reported is the primary one, which :meth:`join` raises; later
    ones are logged and attached to it as notes. Belongs to one event loop.

    Args:
        clean_stop_exception_types: reported errors of these types stop without being raised.
            Default: ``OutOfRangeError``. A given collection replaces the default. A reported
            cancellation is never raised.

    Example::

        coord = Coordinator()
        coord.create_task(produce, queue)
        ...
        coord.request_stop()
        await coord.join()
    """

    def __init__(self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None) -> None:
        clean = (OutOfRangeError,) if clean_stop_exception_types is None else clean_stop_exception_types
        self._errors = ErrorLog(clean)
        self._stop = StopEvent(self._on_stop)
        self._tasks = TaskSet(self._stop, self._task_failed, self._task_begins)
        self._threads = ForeignThreads(self._tasks)
        self._channels = Channels(self._stop, self._tasks.running, self._tasks.register)
        self._timers: WeakSet[Ticks] = WeakSet()
        self._forgotten = ForgottenAwait()
        self.joined = False
        """Whether :meth:`join` has ended."""

    # -- stopping -----------------------------------------------------------------------------------

    def request_stop(
        self,
        ex: BaseException
        | tuple[type[BaseException], BaseException, TracebackType | None]
        | None = None,
        reason: str | None = None,
    ) -> None:
        """Request the stop of all tasks. Safe in any thread and signal handler.

        Args:
            ex: an error to report, as an object or as ``sys.exc_info()``. The first one is raised by
                :meth:`join`, unless its type is a clean one; later ones are attached to it.
            reason: why, for :attr:`stop_reason`. The first one given stays.

        Raises:
            BaseException: ``ex``, if the coordinator is joined already, so that ``join`` cannot raise
            it.
            TypeError: ``ex`` is neither an exception nor an ``exc_info``.
        """
        self._request_stop(as_exception(ex), reason, None)

    def _request_stop(
        self, error: BaseException | None, reason: str | None, source: str | None
    ) -> None:
        if error is not None:
            clean = self._errors.is_clean(error)
            if self.joined and not clean:
                raise error
            self._errors.add(error, source)
            if self.joined and not clean:  # in another thread; that join may not have seen it
                raise error
        if error is None:
            self._set_stop(Stop(Cause.REQUEST, reason))
        else:
            self._set_stop(Stop(Cause.TASK, reason or describe(error, source), source or ""))

    def request(self, stop: Stop) -> None:
        """Request a stop with another cause than :meth:`request_stop` gives it."""
        self._set_stop(stop)

    def _set_stop(self, stop: Stop) -> None:
        self._stop.set(stop)

    def _on_stop(self) -> None:
        """A stop was requested. Called in the loop's thread."""

    def clear_stop(self) -> None:
        """Clear the stop, its reason and the errors, so that the coordinator can be used again.

        A request to the coordinator of a monitored session also stops the session. That stop stays.
        """
        self._stop.clear()
        self._errors.clear()
        self.joined = False

    def should_stop(self) -> bool:
        """Return whether a stop was requested. Safe in any thread.

        Raises:
            RuntimeError: a loop calls this, and a coroutine function without ``await``.
        """
        if self._stop.is_set:
            return True
        self._forgotten.asked()
        return False

    @property
    def stop_reason(self) -> str | None:
        """The first reason that was given for the stop, or None."""
        return self._stop.reason

    @property
    def errors(self) -> tuple[BaseException, ...]:
        """All reported errors in order, including those of clean types.

        That of a monitored session has none any more once the session is closed.
        """
        return tuple(self._errors.all)

    @property
    def error(self) -> BaseException | None:
        """The primary error: the first reported error that is not of a clean type, or None."""
        return self._errors.primary

    def raise_requested_exception(self) -> None:
        """Raise the primary error, if there is one, without clearing it."""
        if self.error is not None:
            raise self.error

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Report an ``Exception`` of the block to the coordinator, and continue after the block.

        A cancellation, a keyboard interrupt or an exit is always raised. Usable with a plain ``with``
        in ``async`` functions and in threads."""
        try:
            yield
        except Exception as error:
            task = current_task()
            self._request_stop(error, None, None if task is None else f"task {task.get_name()!r}")

    # -- waiting ------------------------------------------------------------------------------------

    async def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait until a stop is requested. Return False after ``timeout`` seconds without one.

        With 0 or less it checks once, after an iteration of the event loop.
        """
        return await self._stop.wait(timeout)

    @overload
    def every(
        self, secs: float | None, *, immediately: bool = False, continuing: Ticks | None = None
    ) -> Ticks: ...

    @overload
    def every(
        self,
        secs: float | None,
        fn: Callable[[], Any],
        *,
        immediately: bool = False,
        on_error: Literal["raise", "log"] = "raise",
    ) -> asyncio.Task[Any]: ...

    def every(
        self,
        secs: float | None,
        fn: Callable[[], Any] | None = None,
        *,
        immediately: bool = False,
        continuing: Ticks | None = None,
        on_error: Literal["raise", "log"] = "raise",
    ) -> Ticks | asyncio.Task[Any]:
        """Return an async iterator of ticks ``secs`` apart that ends when a stop is requested.

        It does not drift and never overlaps itself; ticks missed by a slow body are skipped. With a
        function, start a task that calls it at each tick.

        Args:
            secs: the interval, on the loop's clock. None or 0: back to back.
            fn: a plain or async function, or None.
            immediately: whether there is a tick at the start; else the first comes after ``secs``.
            continuing: the iterator of an earlier session, whose ticks continue, so that frequent
                recoveries do not suppress all ticks. A tick that was missed in between comes at once.
            on_error: of ``fn``: ``"raise"`` lets its error stop the coordinator; ``"log"`` logs it,
                once if it repeats itself, and continues.

        Raises:
            ValueError: ``on_error`` is neither, or is given without a function; ``secs`` is NaN.

        Example::

            async for _ in coord.every(60):
                await report()

            coord.every(60, report, on_error="log")  # the same in a task of its own
        """
        if on_error not in ("raise", "log") or (fn is None and on_error != "raise"):
            raise ValueError(
                f"on_error must be 'raise' or 'log', and 'log' needs a function, got {on_error!r}. "
                "Write coord.every(60, report, on_error='log')."
            )
        task = current_task()
        name = "timer" if task is None else task.get_name()
        if fn is not None:
            name = qualified_name(fn)
        ticks = Ticks(self._stop.wait, secs, immediately=immediately, continuing=continuing, name=name)
        self._timers.add(ticks)
        if fn is not None:
            return self.create_task(call_at_ticks, ticks, fn, on_error, name=name)
        return ticks

    async def sample(self, fetches: Any) -> Any:
        """Fetch values together with the next run of the coordinator's monitored session.

        The only cost is that of the fetches, in that run.

        Raises:
            RuntimeError: the session ended before another run was complete; this is called from inside
                a run, which would wait for the next one; or the coordinator belongs to no session.
        """
        raise RuntimeError("sample() needs the coordinator of a monitored session: `sess.coord`.")

    # -- tasks --------------------------------------------------------------------------------------

    def create_task(
        self,
        fn: Callable[..., Awaitable[Any]],
        *args: Any,
        name: str | None = None,
        cancel_on_stop: bool = False,
    ) -> asyncio.Task[Any]:
        """Run ``fn(*args)`` as a task of this coordinator. An error in it requests a stop.

        Args:
            fn: an ``async def`` function, or another callable that returns an awaitable.
            *args: its arguments.
            name: for messages. Default: the name of ``fn``.
            cancel_on_stop: cancel it at :meth:`join` without a grace period, for tasks that wait
                without end and do not check :meth:`should_stop`.

        Raises:
            RuntimeError: the coordinator is joined, and could not report an error of the task.
            TypeError: ``fn`` is not a function, but a coroutine object for example.
        """
        check_function(fn)
        if self.joined:
            raise RuntimeError(f"The coordinator is joined: no task can be started for {fn!r}.")
        name = name or qualified_name(fn)
        return self._tasks.start(fn, args, name, cancel_on_stop=cancel_on_stop)

    def channel(
        self,
        capacity: int,
        overflow: Overflow = "block",
        *,
        max_staleness: int | None = None,
        name: str | None = None,
    ) -> Channel[Any]:
        """Return a bounded channel for the tasks, closed by the stop. See :class:`Channel`.

        Checkpoints of a monitored session have the items that no task has received, as
        ``channels/<name>``. A recovery leaves a channel of the body alone. One that a hook makes again
        in the recovery takes over the items.

        Args:
            capacity, overflow, max_staleness: see :class:`Channel`.
            name: default: ``channel``, ``channel_1`` and so on.

        Raises:
            ValueError: an argument has a wrong value; another channel has the name.
        """
        channel = self._channels.make(capacity, overflow, max_staleness, name)
        self._channel_made(channel)
        return channel

    def _channel_made(self, channel: Channel[Any]) -> None:
        """A channel of this coordinator is made."""

    def register_task(self, task: asyncio.Task[Any]) -> None:
        """Adopt a task that other code created, so that :meth:`join` waits for it.

        An error in it requests a stop.
        """
        if not isinstance(task, asyncio.Future):
            raise TypeError(f"register_task takes an asyncio.Task, got {task!r}.")
        self._tasks.register(task)

    def register_thread(self, thread: Any) -> None:
        """Adopt a task or a thread, so that :meth:`join` waits for it. TF1: same name.

        Args:
            thread: a task, a ``LooperTask``, or a ``threading.Thread``. It is not joined unless it was
                started. A thread cannot be cancelled, and has to report its errors itself:
                ``with coord.stop_on_exception():``.

        Raises:
            TypeError: it is another object.
        """
        if isinstance(thread, threading.Thread):
            self._threads.register(thread)
            return
        members = members_of(TaskMembers, thread)
        if members.is_alive is None or members.is_alive():
            self.register_task(thread if members.task is None else members.task)

    def _task_begins(self) -> None:
        """A task of this coordinator begins. Called in it."""

    def _task_failed(self, error: BaseException, name: str) -> None:
        if isinstance(error, EXITS):  # it leaves through the event loop
            self._stop.set(Stop(Cause.TASK, f"{type(error).__name__} in task {name!r}", name))
        elif self.joined:
            logger.error("Task %r failed after its coordinator was joined.", name, exc_info=error)
        else:
            self._request_stop(self._of_task(error, name), None, f"task {name!r}")

    def _of_task(self, error: BaseException, name: str) -> BaseException:
        """Return the error to report for that of a task."""
        return error

    async def join(
        self,
        tasks: Iterable[asyncio.Task[Any]] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_tasks: bool = False,
        *,
        threads: Iterable[Any] | None = None,
        ignore_live_threads: bool = False,
    ) -> None:
        """Wait for the tasks to end, then raise the primary error if there is one.

        There is no limit until a stop is requested. Then the tasks have the grace period, and the
        remaining ones are cancelled. Stragglers, which ignore their cancellation, are named.

        Args:
            tasks: more tasks to join; see :meth:`register_thread`.
            stop_grace_period_secs: counted from the stop. 0 or less: cancel at once.
            ignore_live_tasks: log stragglers instead of raising.
            threads, ignore_live_threads: TF1's names of these.

        Raises:
            BaseException: the primary error, each time; for a ``StopIteration``, which no coroutine can
                raise, a ``RuntimeError`` from it.
            RuntimeError: there is no error, but tasks ignored their cancellation or threads still run.
        """
        for task in (*(tasks or ()), *(threads or ())):
            self.register_thread(task)
        stragglers = await self._join(stop_grace_period_secs)
        self.raise_requested_exception()
        if stragglers and not (ignore_live_tasks or ignore_live_threads):
            raise RuntimeError(stragglers)
        if stragglers:
            logger.warning(stragglers)

    def log(self, values: Any, value: Any = None, *, step: int | None = None) -> None:
        """Log values from a hook's ``background`` or ``end``, see :meth:`MonitoredSession.log`.

        Raises:
            RuntimeError: this is not the coordinator of a monitored session.
        """
        raise RuntimeError("Only the coordinator of a monitored session logs values.")

    # -- for the session or supervisor that owns this

    def _task_of_caller(self) -> asyncio.Task[Any] | None:
        """Return the task of this coordinator that the calling code is part of, or None."""
        task = background_task()
        return task if task in self._tasks.running else None

    async def _shut_down(self, grace: float, exclude: asyncio.Task[Any] | None = None) -> str:
        """Request a stop and join all tasks but ``exclude``. Log and return the stragglers' names.

        Raises nothing: the errors are in :attr:`errors`.
        """
        self._stop.set(Stop(Cause.BODY))  # and not of the session, which may get another coordinator
        if stragglers := await self._join(grace, exclude):
            logger.warning(stragglers)
        return stragglers

    def _before_cancelling(self) -> None:
        """The stop is set; the tasks are joined next, and then cancelled."""

    async def _join(self, grace: float, exclude: asyncio.Task[Any] | None = None) -> str:
        exclude = exclude or asyncio.current_task()

        def leave() -> None:
            self._channels.leave(exclude)
            self._before_cancelling()

        self._threads.start_waiting()
        try:
            stragglers = await self._tasks.end(grace, exclude, leave)
            names = " ".join((*stragglers, *self._threads.alive()))
            return f"Coordinator stopped with threads still running: {names}" if names else ""
        finally:
            self.joined = True
