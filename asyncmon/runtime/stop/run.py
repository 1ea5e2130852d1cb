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
from asyncmon.runtime.stop.deadline import ABORTED, FAILED, PREEMPTED, Stage, process_shutdown
from asyncmon.runtime.stop.stop import Cause
from asyncmon.system import clock
from asyncmon.system.cancellation import running_loop
from asyncmon.system.signals import SIGNALS, is_default

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger = logging.getLogger(__name__)


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
    with a blocked loop, running threads, or a ``main`` that ignores its cancellation. Sessions that
    ``main`` has started and not closed are closed in order, with a ``ResourceWarning``.

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
    _check(main, stop_grace_period_secs)
    atexit.unregister(_ignore_signals)
    atexit.register(_ignore_signals)
    host = _Host()
    let_go = process_shutdown.get().hold(host.first, host.second, stop_grace_period_secs)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            result: T = runner.run(host.call(main, args))
        if process_shutdown.get().stop is not None:
            raise SystemExit(_stop_status())
        return result
    except BaseException as error:
        if process_shutdown.get().received is None or not _says_stopped(error):
            host.failed = not isinstance(error, SystemExit)
            raise
        raise SystemExit(_stop_status()) from error
    finally:
        is_interactive = hasattr(sys, "ps1")  # Python sets it there only
        # Else the process is to end, in time.
        if process_shutdown.get().received is None or is_interactive:
            host.release()
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
    if running_loop() is not None:
        raise RuntimeError(
            "An event loop is running already: await main() in it. Its host handles signals."
        )


def _ignore_signals() -> None:
    # Python restores the default handlers at exit. A process that is done then keeps its status.
    for number in SIGNALS:
        if is_default(signal.getsignal(number)) or process_shutdown.get().handlers.has(number):
            signal.signal(number, signal.SIG_IGN)


def _says_stopped(error: BaseException) -> bool:
    """Return whether an error is only the cancellation by a stop, or the end of the grace period."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_says_stopped, error.exceptions))
    over = any(error is one for one in process_shutdown.get().timeouts)
    return over or isinstance(error, asyncio.CancelledError | CancelledError)


def _stop_status() -> int:
    """Log the stop, and return the exit status."""
    received, status = process_shutdown.get().received, process_shutdown.get().status()
    stop = process_shutdown.get().stop
    name = "a stop" if stop is None else f"{stop.text}"
    if received is not None:
        name = received[0]
    elif stop is not None and stop.cause is Cause.CLUSTER:
        name = f"a stop of its cluster ({stop.text})"
    if status == PREEMPTED:
        text = "Stopped by %s, everything is saved. Exit status %d: start it again to continue."
        logger.warning(text, name, status)
    else:
        lost = "; ".join(process_shutdown.get().losses())
        logger.error("Stopped by %s, and %s. Exit status %d.", name, lost, status)
    return status


class _Host:
    """Calls ``main``, and ends the process at its deadline after a signal, from a thread."""

    def __init__(self) -> None:
        self.failed = False
        """Whether ``main`` has raised an error."""
        self._end: queue.SimpleQueue[float | None] = queue.SimpleQueue()  # put() may be interrupted
        self._main: asyncio.Task[Any]
        threading.Thread(target=self._watch, name="asyncmon grace period", daemon=True).start()

    def release(self) -> None:
        """End the thread: the process continues."""
        self._end.put(None)

    async def call(self, main: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return ``await main(*args)``. A signal cancels it if no session is open.

        Sessions that ``main`` has left open are closed in order.
        """
        task = asyncio.current_task()
        assert task is not None, "a runner makes one"
        self._main = task
        process_shutdown.get().loops.add(task.get_loop())
        forget = process_shutdown.get().call_on_signal(self._on_signal)
        try:
            result = main(*args)
            if not inspect.isawaitable(result):
                raise TypeError(f"run() takes an `async def` function; {main!r} returned {result!r}.")
            result = await result
        except BaseException as error:
            await self._close_sessions(error)
            raise
        else:
            await self._close_sessions(None)
            return result
        finally:
            process_shutdown.get().loops.discard(task.get_loop())
            forget()

    async def _close_sessions(self, error: BaseException | None) -> None:
        """Close the sessions that were started and not closed, the last one first."""
        async with contextlib.AsyncExitStack() as stack:
            for one in process_shutdown.get().sessions:
                if one.close is not None and one.loop is self._main.get_loop() and not one.is_closing:
                    stack.push_async_callback(one.close, error)

    def _on_signal(self, name: str, at: float | None) -> None:
        self._main.get_loop().call_soon(self._cancel_main, False)  # after the sessions

    def _cancel_main(self, is_due: bool) -> None:
        """Cancel ``main`` now; with open sessions after the deadline of their runs or their close."""
        sessions = [one for one in process_shutdown.get().sessions if one.signalled]
        if is_due:
            closing = [one for one in sessions if one.is_closing and not one.is_over(Stage.JOIN)]
            times = [one.until(Stage.JOIN) for one in closing]
        else:
            times = [(one.until(Stage.RUNS) + one.until(Stage.ENDS)) / 2 for one in sessions]
        if not times:
            self._main.cancel("asyncmon: stopped by a signal")
        elif max(times) < math.inf:
            self._main.get_loop().call_at(max(times), self._cancel_main, True)

    # -- in the handlers of signals

    def first(self, end: float) -> None:
        """Start the clock."""
        self._end.put(end - clock.monotonic())

    def second(self, number: int) -> None:
        """Exit at once for SIGINT."""
        if number == signal.SIGINT:
            os.write(2, f"Aborted by SIGINT, without saving. Exit status {ABORTED}.\n".encode())
            with contextlib.suppress(RuntimeError, OSError, ValueError):  # interrupted, or closed
                sys.stdout.flush()
            os._exit(ABORTED)

    # -- in the thread

    def _watch(self) -> None:
        left = self._end.get()
        if left is None or left > threading.TIMEOUT_MAX:
            return
        try:
            self._end.get(timeout=max(left, 0))
        except queue.Empty:
            status = FAILED
            try:
                status = FAILED if self.failed else process_shutdown.get().status()
                lost = "; ".join(process_shutdown.get().losses())
                what = f"The grace period is over. Exit status {status}.{lost and ' Lost: '}{lost}\n"
                os.write(2, what.encode())  # a lock of the log, or of a stream, may be held
            finally:
                os._exit(status)
