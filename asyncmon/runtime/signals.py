"""SIGINT and SIGTERM request a stop of sessions, once; the second one has its default action."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalStops:
    """The callbacks for signals. One object for the process, as its handlers are.

    Handlers are installed only while there are callbacks and no signal came, and only for signals with
    their default handlers: those of a service are left alone. A handler only schedules the callbacks in
    their event loops, and restores the handlers of before.
    """

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[str], None]] = {}
        self._before: dict[int, Any] = {}

    def add(self, on_signal: Callable[[str], None]) -> Callable[[], None]:
        """Have ``on_signal`` called in the running loop with the name of a signal that comes.

        Outside of the main thread no signal ever arrives, and nothing is done.

        Returns:
            A function that undoes this. A second call of it does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        loop, key = asyncio.get_running_loop(), object()
        context = contextvars.copy_context()  # a handler has that of the code that it interrupts

        def schedule(name: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(on_signal, name, context=context)

        self._callbacks[key] = schedule
        self._install()
        return functools.partial(self._remove, key)

    def _install(self) -> None:
        for number in _SIGNALS:
            present = signal.getsignal(number)
            if number not in self._before and _is_default(present):
                self._before[number] = present
                signal.signal(number, self._handle)

    def _remove(self, key: object) -> None:
        self._callbacks.pop(key, None)
        if not self._callbacks:
            self._restore()

    def _restore(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        while self._before:
            number, before = self._before.popitem()
            if signal.getsignal(number) == self._handle:  # else other code has replaced it
                signal.signal(number, before)

    def _handle(self, number: int, _frame: object) -> None:
        self._restore()
        for schedule in list(self._callbacks.values()):
            schedule(signal.Signals(number).name)


def _is_default(handler: Any) -> bool:
    """Return whether a handler is the default one, or that of asyncio's own runner."""
    if isinstance(handler, functools.partial):
        handler = handler.func
    owner = getattr(handler, "__self__", None)
    return handler in (signal.SIG_DFL, signal.default_int_handler) or isinstance(owner, asyncio.Runner)


signal_stops = SignalStops()
"""The one of this process."""
