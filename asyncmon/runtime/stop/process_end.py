"""The end of a process by a signal: its handlers, the open sessions, ``am.run`` and the exit status."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import inspect
import logging
import math
import os
import queue
import selectors
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from numbers import Real
from typing import Any, TypeVar, TypeVarTuple, cast

from asyncmon.errors import CancelledError
from asyncmon.runtime.stop.deadline import SessionShutdown, Stage
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.system import clock, portable
from asyncmon.system.cancellation import running_loop
from asyncmon.system.process_local import ProcessLocal
from asyncmon.system.signals import SIGNALS, SignalHandlers, is_default

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger = logging.getLogger(__name__)


FAILED, PREEMPTED, ABORTED = 1, 75, 130
"""Exit statuses; 75 is ``EX_TEMPFAIL`` of ``sysexits.h``: try again later."""


DEFAULT_SECS = 120.0
"""The grace period of a process without open sessions."""

OnSignal = Callable[[str, float | None], None]


class ProcessShutdown:
    """The shutdown of this process: the signal, the deadline, the sessions and the exit status."""

    #   1st signal --> _handle --> received
    #                          --> _schedules: each session, and the main function, in its event loop
    #                          --> _host[0]:   am.run sets the end of the process, and starts its clock
    #   2nd signal --> _handle --> _host[1]:   SIGINT exits at once
    #                          --> _schedules: without am.run. Then the default action follows
    #
    #   sessions --left()--> lost, stop: the exit status, 1 or 75
    #
    #   Handlers are installed while there is a _host or one of _schedules.

    def __init__(self) -> None:
        self.handlers = SignalHandlers(self._handle)
        self._host: tuple[Callable[[float], None], Callable[[int], None]] | None = None
        self._secs: float | None = None
        self._schedules: dict[object, OnSignal] = {}
        self.lost: list[str] = []
        """A sentence for each session that a signal stopped and that lost its last state."""
        self.received: tuple[str, float] | None = None
        """The name of the first signal, and its time on the loop's clock."""
        self.loops: set[asyncio.AbstractEventLoop] = set()
        """The event loops in which ``am.run`` closes sessions that the program has not closed."""
        self.end = math.inf
        """The time at which ``am.run`` ends the process. Without it nothing does."""
        self.sessions: dict[SessionShutdown, None] = {}
        """The open sessions."""
        self.stop: Stop | None = None
        """The stop of a session after which the program is to be started again."""
        self.timeouts: list[BaseException] = []
        """The errors of hooks that exceeded the grace period under ``am.run``, which are no failure."""

    def hold(
        self, first: Callable[[float], None], second: Callable[[int], None], secs: float | None
    ) -> Callable[[], None]:
        """Handle signals for a process that they end. Return a function to undo it.

        Args:
            first: called in the handler of the first signal, with the time at which the process ends.
            second: called in the handlers of later signals, with their numbers.
            secs: the grace period. None: the longest one of the open sessions.
        """
        if not _in_main_thread():
            return lambda: None
        self._host, self._secs, self.stop = (first, second), secs, None
        self.lost.clear()
        self.timeouts.clear()
        self.handlers.install()

        def let_go() -> None:
            self._host = None
            self._schedules.clear()
            self._release()

        return let_go

    def call_on_signal(self, on_signal: OnSignal) -> Callable[[], None]:
        """Call ``on_signal`` in the running loop with the name and the time of each signal.

        For the second signal the time is None. No signal arrives outside of the main thread. Return a
        function that undoes this, once.
        """
        if not _in_main_thread():
            return lambda: None
        loop, key = asyncio.get_running_loop(), object()
        context = contextvars.copy_context()  # a handler has the context of the interrupted code

        def schedule(name: str, at: float | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(on_signal, name, at, context=context)

        self._schedules[key] = schedule
        self.handlers.install()
        if self.received is not None:
            schedule(*self.received)

        def undo() -> None:
            self._schedules.pop(key, None)
            self._release()

        return undo

    def left(self, session: SessionShutdown, stop: Stop | None) -> None:
        """Keep the stop and the loss of a session that has ended, if the stop preempted it."""
        if stop is not None:
            self.stop = self.stop or stop
            self.lost += filter(None, [session.unsaved()])

    def losses(self) -> list[str]:
        """Return a sentence for each session whose last state is lost if the process ends now."""
        present = [one.unsaved() for one in list(self.sessions) if one.is_alive]
        return [*self.lost, *filter(None, present)]

    def status(self) -> int:
        """Return the exit status after a signal. It says whether state was lost, and nothing else."""
        return FAILED if self.losses() else PREEMPTED

    def ended(self, error: BaseException) -> bool:
        """Return whether an error is only a cancellation by a stop, or the end of the grace period."""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self.ended, error.exceptions))
        over = any(error is one for one in self.timeouts)
        return over or isinstance(error, asyncio.CancelledError | CancelledError)

    def log_status(self) -> int:
        """Log the stop, and return the exit status."""
        status, stop = self.status(), self.stop
        name = "a stop" if stop is None else f"{stop.text}"
        if self.received is not None:
            name = self.received[0]
        elif stop is not None and stop.cause is Cause.CLUSTER:
            name = f"a stop of its cluster ({stop.text})"
        if status == PREEMPTED:
            text = "Stopped by %s, everything is saved. Exit status %d: start it again to continue."
            logger.warning(text, name, status)
        else:
            lost = "; ".join(self.losses())
            logger.error("Stopped by %s, and %s. Exit status %d.", name, lost, status)
        return status

    def _release(self) -> None:
        """Restore the earlier handlers, unless something still needs these."""
        if self._host is None and not self._schedules and _in_main_thread():
            self.received, self.end = None, math.inf
            self.handlers.restore()

    def _handle(self, number: int, name: str, frame: object) -> None:
        if self.received is None:
            self.received = name, clock.monotonic()
            for schedule in list(self._schedules.values()):
                schedule(*self.received)
            if self._host is not None:
                graces = [one.grace for one in list(self.sessions)]
                self.end = self.received[1] + (self._secs or max(graces, default=DEFAULT_SECS))
                self._host[0](self.end)
        elif self._host is not None:
            self._host[1](number)
        else:
            for schedule in list(self._schedules.values()):
                schedule(name, None)
            self.received = None
            self.handlers.act_by_default(number, frame)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


process_shutdown: ProcessLocal[ProcessShutdown] = ProcessLocal(ProcessShutdown)
"""The shutdown of this process."""


def _leave_loops() -> None:
    """Give the loops of open sessions a selector of their own in a forked child."""
    # The child shares the epoll object of its parent. When it closes its copy of the loop, it would
    # remove the parent's wake-up pipe from there, and no thread could wake the parent any more.
    for one in process_shutdown.get().sessions:
        loop: Any = one.loop
        if hasattr(loop, "_selector"):
            loop._selector = selectors.DefaultSelector()


portable.after_fork_in_child(_leave_loops)


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
    process = process_shutdown.get()
    host = _Host(process)
    let_go = process.hold(host.first, host.second, stop_grace_period_secs)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            result: T = runner.run(host.call(main, args))
        if process.stop is not None:
            raise SystemExit(process.log_status())
        return result
    except BaseException as error:
        if process.received is None or not process.ended(error):
            host.failed = not isinstance(error, SystemExit)
            raise
        raise SystemExit(process.log_status()) from error
    finally:
        is_interactive = hasattr(sys, "ps1")  # Python sets it there only
        # Else the process is to end, in time.
        if process.received is None or is_interactive:
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


class _Host:
    """Calls ``main``, and ends the process at its deadline after a signal, from a thread."""

    def __init__(self, process: ProcessShutdown) -> None:
        self._process = process
        self.failed = False
        """Whether ``main`` has raised an error."""
        self._end: queue.SimpleQueue[float | None] = queue.SimpleQueue()  # put() may be interrupted
        self._main: asyncio.Task[Any]
        threading.Thread(target=self._watch, name="asyncmon grace period", daemon=True).start()

    def release(self) -> None:
        """End the thread: the process continues."""
        self._end.put(None)

    async def call(self, main: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return ``await main(*args)``. A signal cancels it if no session is open."""
        task = asyncio.current_task()
        assert task is not None, "a runner makes one"
        self._main = task
        self._process.loops.add(task.get_loop())
        forget = self._process.call_on_signal(self._on_signal)
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
            self._process.loops.discard(task.get_loop())
            forget()

    async def _close_sessions(self, error: BaseException | None) -> None:
        """Close the sessions that were started and not closed, the last one first."""
        async with contextlib.AsyncExitStack() as stack:
            for one in self._process.sessions:
                if one.close is not None and one.loop is self._main.get_loop() and not one.is_closing:
                    stack.push_async_callback(one.close, error)

    def _on_signal(self, name: str, at: float | None) -> None:
        self._main.get_loop().call_soon(self._cancel_main, False)  # after the sessions

    def _cancel_main(self, is_due: bool) -> None:
        """Cancel ``main`` now; with open sessions after the deadline of their runs or their close."""
        sessions = [one for one in self._process.sessions if one.signalled]
        if is_due:
            closing = [one for one in sessions if one.is_closing and not one.is_over(Stage.JOIN)]
            times = [one.until(Stage.JOIN) for one in closing]
        else:
            times = [one.end_of_body() for one in sessions]
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
                status = FAILED if self.failed else self._process.status()
                lost = "; ".join(self._process.losses())
                what = f"The grace period is over. Exit status {status}.{lost and ' Lost: '}{lost}\n"
                os.write(2, what.encode())  # a lock of the log, or of a stream, may be held
            finally:
                os._exit(status)
