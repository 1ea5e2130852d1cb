"""SIGINT and SIGTERM ask sessions to stop, once; the second time they do what they always did."""

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

__all__ = ["SignalStops", "signal_stops"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalStops:
    """Who wants to be stopped by a signal. One for the process, as its handlers are.

    Handlers are there only while somebody wants them and no signal came, and only for signals that
    nobody else handles: a service's own handlers are left alone. A handler does nothing but hand the
    news to the event loops and put back what was there before.
    """

    def __init__(self) -> None:
        self._wanted: dict[object, Callable[[str], None]] = {}
        self._before: dict[int, Any] = {}

    def add(self, on_signal: Callable[[str], None]) -> Callable[[], None]:
        """Have ``on_signal`` called in the running loop with the name of a signal that comes.

        Outside of the main thread no signal ever arrives, and nothing is done.

        Returns:
            What undoes this. A second call of it does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            return _nothing
        loop, key = asyncio.get_running_loop(), object()
        context = contextvars.copy_context()  # a handler has that of the code it comes in the middle of

        def tell(name: str) -> None:
            with contextlib.suppress(RuntimeError):  # that loop is closed by now
                loop.call_soon_threadsafe(on_signal, name, context=context)

        self._wanted[key] = tell
        self._install()
        return functools.partial(self._remove, key)

    def _install(self) -> None:
        for number in _SIGNALS:
            present = signal.getsignal(number)
            if number not in self._before and _is_default(present):
                self._before[number] = present
                signal.signal(number, self._handle)

    def _remove(self, key: object) -> None:
        self._wanted.pop(key, None)
        if not self._wanted:
            self._restore()

    def _restore(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        while self._before:
            number, before = self._before.popitem()
            if signal.getsignal(number) == self._handle:  # else somebody took it over since
                signal.signal(number, before)

    def _handle(self, number: int, _frame: object) -> None:
        self._restore()
        for tell in list(self._wanted.values()):
            tell(signal.Signals(number).name)


def _is_default(handler: Any) -> bool:
    """Return whether nobody in particular handles a signal; asyncio's own runner counts as nobody."""
    if isinstance(handler, functools.partial):
        handler = handler.func
    owner = getattr(handler, "__self__", None)
    return handler in (signal.SIG_DFL, signal.default_int_handler) or isinstance(owner, asyncio.Runner)


def _nothing() -> None:
    """Undo nothing."""


signal_stops = SignalStops()
"""The one of this process."""
