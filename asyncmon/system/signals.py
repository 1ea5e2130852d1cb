"""Handlers of SIGINT and SIGTERM, in place of the default ones only."""

from __future__ import annotations

import asyncio
import functools
import inspect
import signal
from collections.abc import Callable
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalHandlers:
    """The handlers of a process, installed in its main thread.

    ``on_signal`` is called in the handler, with the number and the name of the signal and the
    interrupted frame.
    """

    def __init__(self, on_signal: Callable[[int, str, object], None]) -> None:
        self._on_signal = on_signal
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Replace the handlers that are the default ones now."""
        for number in SIGNALS:
            present = signal.getsignal(number)  # one of a host is kept
            if number not in self._before and is_default(present):
                self._before[number] = present
                signal.signal(number, self._handle)

    def restore(self) -> None:
        """Restore the earlier handlers, except where other code has replaced these."""
        while self._before:
            number, before = self._before.popitem()
            if self.has(number):
                signal.signal(number, before)

    def has(self, number: int) -> bool:
        """Return whether a signal is handled by this object."""
        return signal.getsignal(number) == self._handle

    def act_by_default(self, number: int, frame: object) -> None:
        """Restore the earlier handlers, and call that of a signal."""
        before = self._before.get(number)
        self.restore()
        if callable(before):
            before(number, frame)
        else:
            signal.raise_signal(number)

    def _handle(self, number: int, frame: object) -> None:
        self._on_signal(number, signal.Signals(number).name, frame)


def is_default(handler: Any) -> bool:
    """Return whether a handler is the default one, or the one of asyncio's runner."""
    if isinstance(handler, functools.partial):
        handler = handler.func
    if inspect.ismethod(handler):
        return isinstance(handler.__self__, asyncio.Runner)
    return handler in (signal.SIG_DFL, signal.default_int_handler)


def server_is_stopping() -> bool:
    """Return whether uvicorn, which ends no response on its own, is stopping."""
    # Its signal handlers are methods of the server. A server in another thread has none.
    for number in SIGNALS:
        server = getattr(signal.getsignal(number), "__self__", None)
        if getattr(server, "should_exit", False) is True:
            return True
    return False
