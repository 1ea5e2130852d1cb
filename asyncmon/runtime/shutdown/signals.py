"""SIGINT and SIGTERM: the first one requests a stop of sessions, the second one ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import math
import signal
import threading
from collections.abc import Callable
from typing import Any

from asyncmon.runtime.shutdown.stop_control import StopControl
from asyncmon.system import clock

OnSignal = Callable[[str, float | None], None]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalStops:
    """The callbacks for signals. One object for the process, like its handlers.

    Handlers are installed while there are callbacks, or after :meth:`hold`, and only for signals with
    their default handlers: those of a host are kept. A handler only schedules the callbacks in their
    event loops. The second signal schedules the callbacks again, without a grace period, and then has
    its default action.
    """

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[str, float | None], None]] = {}
        self._before: dict[int, Any] = {}
        self._process: tuple[Callable[[str, float], None], Callable[[int], None]] | None = None
        self.received: tuple[str, float] | None = None
        """The name of the first signal, and its time on the loop's clock."""
        self.stopped = 0
        """The number of sessions stopped by a signal, here or elsewhere in their cluster."""
        self.unsaved: list[str] = []
        """A sentence for each of them whose last state was not saved."""
        self.sessions: dict[object, StopControl] = {}
        """The stop controls of the open sessions."""
        self.grace = math.inf
        """The grace period of the whole process, in seconds."""

    def hold(
        self, first: Callable[[str, float], None], second: Callable[[int], None], grace: float
    ) -> Callable[[], None]:
        """Install the handlers for a process that signals end. Return a function to undo it.

        The first signal is kept: callbacks that are added later are called at once.

        Args:
            first: called in the handler of the first signal, with its name and time.
            second: called in the handlers of later signals, with their numbers.
            grace: the longest grace period of sessions, in seconds.
        """
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        self._process, self.grace, self.stopped = (first, second), grace, 0
        self.unsaved.clear()
        self._install()
        return self._let_go

    def add(self, on_signal: OnSignal, session: StopControl | None = None) -> Callable[[], None]:
        """Call ``on_signal`` in the running loop with the name and the time of each signal.

        For the second signal the time is None. Outside of the main thread this does nothing, as no
        signal arrives there. ``session`` is one of :attr:`sessions` until this is undone.

        Returns:
            A function that undoes this. A second call of it does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        loop, key = asyncio.get_running_loop(), object()
        context = contextvars.copy_context()  # a handler has the context of the interrupted code

        def schedule(name: str, at: float | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(on_signal, name, at, context=context)

        self._callbacks[key] = schedule
        if session is not None:
            self.sessions[key] = session
        self._install()
        if self.received is not None:
            schedule(*self.received)
        return functools.partial(self._remove, key)

    def lose(self, what: str) -> None:
        """Record a loss of state, if a signal came."""
        if self.received is not None:
            self.unsaved.append(what)

    def _install(self) -> None:
        for number in _SIGNALS:
            present = signal.getsignal(number)
            if number not in self._before and _is_default(present):
                self._before[number] = present
                signal.signal(number, self._handle)

    def _remove(self, key: object) -> None:
        self._callbacks.pop(key, None)
        self.sessions.pop(key, None)
        if not self._callbacks and self._process is None:
            self._restore()

    def _let_go(self) -> None:
        self._process, self.grace = None, math.inf
        self._restore()

    def _restore(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.received = None
        while self._before:
            number, before = self._before.popitem()
            if signal.getsignal(number) == self._handle:  # else other code has replaced it
                signal.signal(number, before)

    def _handle(self, number: int, frame: object) -> None:
        name = signal.Signals(number).name
        if self.received is None:
            self.received = name, clock.monotonic()
            for schedule in list(self._callbacks.values()):
                schedule(*self.received)
            if self._process is not None:
                self._process[0](*self.received)
        elif self._process is not None:
            self._process[1](number)
        else:
            for schedule in list(self._callbacks.values()):
                schedule(name, None)
            before = self._before.get(number)
            self._restore()
            if callable(before):
                before(number, frame)
            else:
                signal.raise_signal(number)


def _is_default(handler: Any) -> bool:
    """Return whether a handler is the default one, or the one of asyncio's runner."""
    if isinstance(handler, functools.partial):
        handler = handler.func
    if inspect.ismethod(handler):
        return isinstance(handler.__self__, asyncio.Runner)
    return handler in (signal.SIG_DFL, signal.default_int_handler)


signal_stops = SignalStops()
"""The signal handling of this process."""
