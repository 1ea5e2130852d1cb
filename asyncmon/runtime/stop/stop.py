"""The stop of a session: its cause, and the event that is set in any thread and handled in one loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple

AFTER_STOP = "Run called even after should_stop requested."
"""TF1's text."""


RunState = Literal[
    "opening", "running", "paused", "completed", "stopped", "preempted", "cancelled", "failed",
    "lost", "unknown",
]  # fmt: skip
"""The states of a run, see ``RunRecord.state``."""


class Cause(StrEnum):
    """What ended a session, or asked for its end."""

    BODY = "body"
    """The body of the session ended, or an error left it."""
    DATA = "data"
    """The end of the data."""
    REQUEST = "request"
    """``request_stop`` of the session or of its coordinator."""
    HOOK = "hook"
    """A hook: by ``run_context.request_stop``, or by an error."""
    TASK = "task"
    """An error of a task of the coordinator."""
    SIGNAL = "signal"
    CLUSTER = "cluster"
    """Another session of the cluster."""
    RECOVERY = "recovery given up"
    """An error that was not recovered from any more."""


class Stop(NamedTuple):
    """Why a session stops. The first request makes it; later ones change nothing."""

    cause: Cause
    text: str | None = None
    """For people: shown, never compared. None: no reason was given."""
    origin: str = ""
    """The hook and its method, the task, or the step that the stop comes from; "" if it is none of
    these."""
    preempted: bool = False
    """Whether the program is to be started again: its machine or its time is taken away, and training
    is not complete."""
    of: Cause | None = None
    """Of a stop by the cluster: its cause in the session that has sent it."""

    def to_wire(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return {**self._asdict(), "cause": str(self.cause), "of": self.of and str(self.of)}

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> Stop:
        """Return the stop of :meth:`to_wire`."""
        of = values.get("of")
        return cls(**{**values, "cause": Cause(values["cause"]), "of": of and Cause(of)})


class StopEvent:
    """A one-way event with a :class:`Stop`. Wakes waiters and calls callbacks in its event loop.

    Args:
        on_set: called in the loop's thread after each request, before any waiter wakes.
    """

    __slots__ = ("_callbacks", "_loop", "_on_set", "_requests", "_waiters")

    def __init__(self, on_set: Callable[[], None] | None = None) -> None:
        self._on_set = on_set
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[bool]] = set()
        self._callbacks: list[Callable[[], None]] = []
        self._requests: list[Stop] = []  # the first is the stop

    def clear(self) -> None:
        """Clear the request. Waiters continue to wait."""
        self._requests = []

    @property
    def is_set(self) -> bool:
        """Whether the stop was requested."""
        return bool(self._requests)

    @property
    def stop(self) -> Stop | None:
        """The stop that was requested first, or None."""
        return next(iter(self._requests), None)

    @property
    def reason(self) -> str | None:
        """The text of the stop, or None."""
        return None if (stop := self.stop) is None else stop.text

    def set(self, stop: Stop) -> None:
        """Request the stop, once or again. Safe in any thread and signal handler."""
        # A thread or a signal handler may run between the two lines. An append is one operation of the
        # interpreter, so all threads see the same first request.
        if not self._requests:
            self._requests.append(stop)
        self._wake_loop()

    def bind(self) -> asyncio.AbstractEventLoop:
        """Bind the event to the running loop, and return the loop.

        Raises:
            RuntimeError: the event is bound to another loop that is not closed.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("A Coordinator belongs to one event loop; it is used in a second one.")
        return loop

    def when_set(self, callback: Callable[[], None]) -> None:
        """Call a function once, in the loop's thread, after the request, or soon if it was made."""
        self.bind()
        self._callbacks.append(callback)
        if self.is_set:
            self._wake_loop()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the request. Return False after ``timeout`` seconds without one."""
        loop = self.bind()
        if timeout is not None and timeout <= 0:
            if not self.is_set:
                await asyncio.sleep(0)
            return self.is_set
        with self._waiter() as waiter:
            if self.is_set:
                return True
            timer = None if timeout is None else loop.call_later(timeout, _time_out, waiter)
            try:
                return await waiter
            finally:
                if timer is not None:
                    timer.cancel()

    async def wait_while(self, running: Callable[[], Collection[asyncio.Task[Any]]]) -> None:
        """Wait for the request, or until no task is running. Tasks may start other tasks."""
        with self._waiter() as waiter:
            while not self.is_set and (tasks := running()):
                await asyncio.wait({*tasks, waiter}, return_when=asyncio.FIRST_COMPLETED)

    @contextlib.contextmanager
    def _waiter(self) -> Iterator[asyncio.Future[bool]]:
        """Return a future that the request completes."""
        # The caller checks is_set after this: a thread may set it at any time.
        waiter: asyncio.Future[bool] = self.bind().create_future()
        self._waiters.add(waiter)
        try:
            yield waiter
        finally:
            self._waiters.discard(waiter)
            waiter.cancel()

    def _wake_loop(self) -> None:
        if self._loop is not None:
            # Always through the loop: a signal handler runs between any two instructions.
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self.is_set:
            return
        if self._on_set is not None:
            self._on_set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:  # each on its own, so that an error in one does not skip the others
            asyncio.get_running_loop().call_soon(callback)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(True)


def _time_out(waiter: asyncio.Future[bool]) -> None:
    """Complete a waiter with False: the timeout passed."""
    if not waiter.done():
        waiter.set_result(False)


class SessionClosedError(RuntimeError):
    """Raised by a call when its session closes or is closed.

    In a task of the session's own coordinator it is no failure.

    Args:
        message: the text of the error.
        stop: the stop of that coordinator.
    """

    def __init__(self, message: str, stop: StopEvent) -> None:
        super().__init__(message)
        self.stop = stop


class RefusedRunError(SessionClosedError):
    """Raised by a run that begins after a hook has requested a stop. The body that it leaves has ended.

    Args:
        stop: see :class:`SessionClosedError`.
        of_session: the stop of the session.
    """

    def __init__(self, stop: StopEvent, of_session: StopEvent) -> None:
        super().__init__(AFTER_STOP, stop)
        self.of_session = of_session
