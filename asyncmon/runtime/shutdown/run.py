"""``am.run``: run a program with an exit status for each kind of end, and a deadline after signals."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import logging
import math
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from numbers import Real
from typing import Any, TypeVar, TypeVarTuple, cast

from asyncmon.errors import CancelledError
from asyncmon.runtime.shutdown.signals import signal_stops
from asyncmon.runtime.shutdown.stages import Part
from asyncmon.system import clock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger = logging.getLogger(__name__)

FAILED, PREEMPTED, ABORTED = 1, 75, 130
"""Exit statuses; 75 is ``EX_TEMPFAIL`` of ``sysexits.h``: try again later."""

DEFAULT_SECS = 120.0
"""The default grace period without open sessions."""


def run(
    main: Callable[[*Ts], Coroutine[Any, Any, T]],
    *args: *Ts,
    stop_grace_period_secs: float | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Run an async main function, and end the process with an exit status for the kind of end.

    For scripts: ``asyncio.run`` with an orderly shutdown for SIGTERM and SIGINT. The statuses:

    ====  ==========================================================================================
    0     done: the result of ``main`` is returned, also if it was done when the signal came.
    75    preempted: stopped by a signal, with the last state of every session saved. Start it again.
    1     an error, which is raised; or a signal stopped a session whose last state was not saved: it
          has no ``checkpoint_dir``, the save failed, or the grace period was too short.
    130   aborted by SIGINT after an earlier signal, at once, without saving.
    ====  ==========================================================================================

    The first signal requests a stop of all sessions with ``signals="auto"``. ``main`` is cancelled if
    no session is open, as during a warm-up, or if it still waits outside of runs when these would be
    interrupted. A later SIGTERM has no effect. At the end of the grace period the process ends, even
    with a blocked loop, running threads, or a ``main`` that ignores its cancellation.

    Only default signal handlers are replaced, in the main thread, until this returns. Logging is left
    to the caller; a stop by a signal is logged as a warning.

    Args:
        main: an ``async def`` function.
        *args: its arguments.
        stop_grace_period_secs: the time from the signal to the end of the process; a longer grace
            period of a session is cut to it. Default: the longest one of the open sessions, or 120.
        loop_factory: makes the event loop, ``uvloop.new_event_loop`` for example.

    Raises:
        SystemExit: with 75 or 1, after a signal.
        RuntimeError: an event loop is running already, as in a notebook.
        TypeError: ``main`` is no function, or ``stop_grace_period_secs`` no number.
        ValueError: ``stop_grace_period_secs`` is not positive.

    Example::

        async def main():
            async with am.MonitoredTrainingSession(checkpoint_dir="runs/1") as sess:
                while not sess.should_stop():
                    await sess.run(train_op)

        if __name__ == "__main__":
            am.run(main, stop_grace_period_secs=25)
    """
    grace = stop_grace_period_secs
    _check(main, grace)
    atexit.unregister(_ignore_sigterm)
    atexit.register(_ignore_sigterm)
    process = _Process(grace)
    longest = math.inf if grace is None else float(grace)
    let_go = signal_stops.hold(process.first, process.second, longest)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            result: T = runner.run(process.call(main, args))
        if signal_stops.stopped:
            raise SystemExit(_stop_status())
        return result
    except BaseException as error:
        if signal_stops.received is None or not _says_stopped(error):
            process.failed = not isinstance(error, SystemExit)
            raise
        raise SystemExit(_stop_status()) from error
    finally:
        is_interactive = hasattr(sys, "ps1")  # Python sets it there only
        if signal_stops.received is None or is_interactive:  # else the process is to end, in time
            process.release()
            let_go()


def _check(main: Any, grace: Any) -> None:
    if not callable(main):
        raise TypeError(
            f"run() takes an `async def` function and its arguments, got {main!r}. Write am.run(main)."
        )
    if not isinstance(grace, Real | None):
        raise TypeError(f"stop_grace_period_secs must be a number of seconds or None, got {grace!r}.")
    if grace is not None and not cast("float", grace) > 0:
        raise ValueError(f"invalid stop_grace_period_secs={grace!r}: it must be positive.")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "An event loop is running already: await main() in it. Its host handles signals."
    )


def _ignore_sigterm() -> None:
    # Python restores the default handlers at exit. A process that is done then keeps its status.
    if signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, signal_stops._handle):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _says_stopped(error: BaseException) -> bool:
    """Return whether an error is only the cancellation by a stop."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_says_stopped, error.exceptions))
    return isinstance(error, asyncio.CancelledError | CancelledError)


def _stop_status() -> int:
    """Log the stop, and return the exit status."""
    name = "a stop of its cluster" if signal_stops.received is None else signal_stops.received[0]
    if signal_stops.unsaved:
        logger.error("Stopped by %s, and %s. Exit status %d.", name, _lost(), FAILED)
        return FAILED
    logger.warning(
        "Stopped by %s, everything is saved. Exit status %d: start it again to continue.",
        name,
        PREEMPTED,
    )
    return PREEMPTED


def _lost() -> str:
    return "; ".join(signal_stops.unsaved)


class _Process:
    """Ends the process after a signal, from a thread, when the grace period is over.

    Args:
        grace: seconds, or None for the grace period of the sessions.
    """

    def __init__(self, grace: float | None) -> None:
        self.failed = False
        """Whether ``main`` has raised an error."""
        self._grace = grace
        self._left: queue.SimpleQueue[float | None] = queue.SimpleQueue()  # put() may be interrupted
        self._main: asyncio.Task[Any]
        threading.Thread(target=self._watch, name="asyncmon grace period", daemon=True).start()

    def release(self) -> None:
        """End the thread: the process continues."""
        self._left.put(None)

    async def call(self, main: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return ``await main(*args)``. A signal cancels it if no session is open."""
        task = asyncio.current_task()
        assert task is not None, "a runner makes one"
        self._main = task
        forget = signal_stops.add(self._on_signal)
        try:
            result = main(*args)
            if not inspect.isawaitable(result):
                raise TypeError(f"run() takes an `async def` function; {main!r} returned {result!r}.")
            return await result
        finally:
            forget()

    def _on_signal(self, name: str, at: float | None) -> None:
        self._main.get_loop().call_soon(self._plan)  # after the sessions

    def _plan(self) -> None:
        """Cancel ``main`` now, or with open sessions after the deadline of their runs."""
        self._cancel_main_at([
            (one.budget.until(Part.RUNS) + one.budget.until(Part.ENDS)) / 2
            for one in signal_stops.sessions.values()
        ])  # fmt: skip

    def _cancel_main_at(self, times: list[float]) -> None:
        loop = self._main.get_loop()
        when = max(times, default=loop.time())
        if when < math.inf:
            loop.call_at(when, self._cancel_main)

    def _cancel_main(self) -> None:
        closing = [one.budget for one in signal_stops.sessions.values() if one.is_closing]
        times = [one.until(Part.JOIN) for one in closing if not one.is_over(Part.JOIN)]
        if times:
            self._cancel_main_at(times)
        else:
            self._main.cancel("asyncmon: stopped by a signal")

    # -- in the handlers of signals

    def first(self, name: str, at: float) -> None:
        """Start the clock."""
        graces = [one.grace for one in list(signal_stops.sessions.values())]
        secs = self._grace or max(graces, default=DEFAULT_SECS)
        self._left.put(at + secs - clock.monotonic())

    def second(self, number: int) -> None:
        """Exit at once for SIGINT."""
        if number == signal.SIGINT:
            os.write(2, f"Aborted by SIGINT, without saving. Exit status {ABORTED}.\n".encode())
            with contextlib.suppress(RuntimeError, OSError, ValueError):  # interrupted, or closed
                sys.stdout.flush()
            os._exit(ABORTED)

    # -- in the thread

    def _watch(self) -> None:
        left = self._left.get()
        if left is None or left > threading.TIMEOUT_MAX:
            return
        try:
            self._left.get(timeout=max(left, 0))
        except queue.Empty:
            lost = self.failed or signal_stops.unsaved or signal_stops.sessions
            status = FAILED if lost else PREEMPTED
            what = f"The grace period is over. Exit status {status}.\n"
            os.write(2, what.encode())  # a lock of the log, or of a stream, may be held
            os._exit(status)
