"""The life of a monitored session: an orderly start, stops, an orderly end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from numbers import Real
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, cast

from asyncmon.cancellation import shielded
from asyncmon.errors import PREEMPTION
from asyncmon.loop_budget import LoopBudget
from asyncmon.runtime.coordinated import Coordinated
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.endings import is_clean, is_exit
from asyncmon.runtime.finish import finish
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.hooked import Hooked
from asyncmon.runtime.opening import begin, tell_created
from asyncmon.runtime.passengers import Passengers
from asyncmon.runtime.phase import Phase
from asyncmon.runtime.recoverable import Recoverable
from asyncmon.runtime.recovery import Recovery
from asyncmon.runtime.signals import signal_stops
from asyncmon.runtime.stops import Stops
from asyncmon.runtime.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    from asyncmon.runtime.creators import SessionCreator
    from asyncmon.runtime.endings import Ending

__all__ = ["OTHER_LOOP", "SessionLife"]

logger = logging.getLogger(__name__)

OTHER_LOOP = (
    "A session belongs to the event loop in which it was started, and this is another one. Use it "
    "there; from a thread, by asyncio.run_coroutine_threadsafe(session.run(...), loop)."
)


class SessionLife:
    """What a monitored session is made of, and how it begins and ends.

    The base of :class:`~asyncmon.runtime.monitored.MonitoredBase`, which runs steps in it.
    """

    def __init__(
        self,
        creator: SessionCreator,
        hooks: Iterable[Any] | None,
        stop_grace_period_secs: float,
        recovery: Recovery,
        signals: Literal["auto"] | None,
        interrupt: bool = True,
    ) -> None:
        if signals not in ("auto", None):
            raise ValueError(f"signals must be 'auto' or None, got {signals!r}.")
        if not isinstance(cast("object", recovery), Recovery):
            raise TypeError(f"recovery must be a Recovery or None, got {recovery!r}.")
        if not isinstance(cast("object", stop_grace_period_secs), Real):
            raise TypeError(
                f"stop_grace_period_secs must be a number of seconds, got {stop_grace_period_secs!r}."
            )
        self._creator = creator
        self._hooks = HookSet(hooks)
        self._passengers = Passengers(None)
        self._undo = ExitStack()
        self._grace, self._patience = stop_grace_period_secs, 0 if interrupt else stop_grace_period_secs
        self._signals = signals
        self._phase = Phase.NEW
        self._turn = Turn()
        self._stops = Stops(recovery.errors)
        self._session = Recoverable(self._create, recovery, self._stops.whole)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0  # of the loop; faster to compare than the loop, in each run
        self._closed = asyncio.Event()
        self._ending: Ending | None = None
        self._forget_signals: Callable[[], None] | None = None

    def __repr__(self) -> str:
        step = getattr(self._session.current and self._session.current.raw, "global_step", None)
        at_step = "" if step is None else f" at step {step}"
        return f"<{type(self).__name__}: {self._phase.name.lower()}{at_step}>"

    # -- opening ------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Open the session: hooks' ``begin``, then create, restore or initialise, then tell hooks.

        A failure, a cancellation or a stop on the way gives everything back, calls ``cleanup`` of the
        hooks that began, and leaves. Another task than this one may call :meth:`close`.

        Raises:
            RuntimeError: the session was opened before.
            CancelledError: a stop was requested before the session was open.
        """
        if self._phase is not Phase.NEW:
            raise RuntimeError(self._phase.value)
        self._phase = Phase.OPENING
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self._budget = LoopBudget.of_running_loop()
        task, interrupts = asyncio.current_task(), self._session.interrupts
        assert task is not None, "coroutines of a session run in tasks"
        base = interrupts.enter(task)
        assert base is not None, "it was not opened before"
        try:
            await self._open()
        except BaseException as error:
            reason = interrupts.leave(task, base, error) or error
        else:
            interrupts.leave(task, base)
            self._phase = Phase.OPEN
            return self
        ending = await self._finish(reason)
        raise ending.error or reason

    async def __aenter__(self) -> Self:
        return await self.start()

    async def _open(self) -> None:
        if self._signals == "auto":
            self._forget_signals = signal_stops.add(self._on_signal)
        self._stops.begin(self._grace, self._hooks, self._turn, self._session)
        self._passengers = await begin(self._creator, self._hooks, self._undo)
        await self._session.open()

    async def _create(self) -> Coordinated:
        """Make one session, layer over layer. The recoverable layer calls this, as often as it must."""
        raw = self._session.newest = await self._creator.create_session()
        coord = Coordinator(clean_stop_exception_types=())
        inner = Hooked(raw, self._hooks, coord, self._turn, self._request_stop_by_hook)
        session = Coordinated(inner, coord, self._session.errors or PREEMPTION, self._patience)
        try:
            await tell_created(session, self._hooks)
        except BaseException:
            await shielded(session.close, 0.0, name="closing a session that did not open")
            raise
        if self._phase not in (Phase.OPENING, Phase.OPEN):  # whoever made this was given up waiting for
            await shielded(session.close, 0.0, name="closing a session that came too late")
            raise RuntimeError(self._phase.value)
        self._stops.adopt(coord)
        return session

    # -- stopping -----------------------------------------------------------------------------------

    def should_stop(self) -> bool:
        """Return whether the body is to end. Never waits, never raises, changes nothing.

        True when a stop was requested by anybody, when a task beside the steps has failed, and when
        the session is not open (any more). An error that the next run recovers from does not count.
        """
        return self._phase is not Phase.OPEN or self._stops.is_requested()

    def request_stop(self, reason: str | None = None) -> None:
        """Ask the body to end. Safe in any thread and signal handler; the first reason stays.

        A run that is under way has the grace period to complete, and as long as it takes where it is
        itself what asks; runs that come after are not refused.

        Raises:
            TypeError: the reason is no text.
        """
        if not isinstance(cast("object", reason), str | None):
            raise TypeError(f"reason must be a str or None, got {reason!r}.")
        self._stops.request(reason or "a stop was requested")

    @property
    def stop_reason(self) -> str | None:
        """Why the session stopped or is to stop, or None while nothing is known of a stop."""
        return self._stops.reason if self._ending is None else self._ending.reason

    def _request_stop_by_hook(self, reason: str) -> None:
        self._hooks.stop_requested = True
        self._stops.request(reason)

    def _on_signal(self, name: str) -> None:
        logger.info(
            "Received %s: the session will stop. A second one does what it does by default.", name
        )
        self.request_stop(f"signal {name}")

    # -- closing ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the session successfully: hooks' ``end``, tasks joined, raw session closed, ``cleanup``.

        A second call does nothing; one that comes while another closes waits for it. Cancelled, it
        still closes, and then re-raises: what goes on when the grace period is over is cut short, and
        what comes after it has a grace period of its own (each hook's ``end``, so that a saver still
        saves after one that hangs).

        Raises:
            RuntimeError: called from inside a run.
            Exception: what failed beside the steps and nobody was told, or in hooks' ``end``.
        """
        await self._close(None)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return await self._close(exc)

    async def _close(self, body: BaseException | None) -> bool:
        """Close, and return whether the body's exception is dealt with."""
        if self._turn.is_mine():
            raise RuntimeError(
                "close() was called from inside a run, which it would wait for. Use "
                "run_context.request_stop() in a hook, step_context.request_stop() in a step function."
            )
        if self._phase is Phase.NEW:
            self._phase = Phase.CLOSED
            self._closed.set()
        if self._phase is Phase.OPENING:
            self._session.interrupts.interrupt(
                RuntimeError("The session was closed while it was being opened.")
            )
        if self._phase is not Phase.OPEN:
            await self._closed.wait()
            return body is not None and is_clean(body)
        ending = await self._finish(body)
        if ending.error is not None and ending.error is not body:
            raise ending.error
        return ending.error is None and body is not None

    async def _finish(self, body: BaseException | None) -> Ending:
        self._phase = Phase.CLOSING
        if self._forget_signals is not None:
            self._forget_signals()
        try:
            ending = await shielded(
                self._end, body, asyncio.current_task(),
                name="asyncmon closing", cancel_after=max(self._grace, 1.0),
            )  # fmt: skip
        except asyncio.CancelledError:
            error = None if self._ending is None else self._ending.error
            if is_exit(error):
                raise error  # noqa: B904 -- it comes from a hook, not from the cancellation
            raise
        finally:
            self._undo.close()
            self._phase = Phase.CLOSED
            self._closed.set()
        return ending

    async def _end(self, body: BaseException | None, caller: asyncio.Task[Any] | None) -> Ending:
        self._ending = ending = await finish(
            self._session, self._hooks, self._turn, self._stops, self._grace, body, caller
        )
        return ending

    def _check_loop(self) -> None:
        """Refuse to be used in another event loop, which would harm both."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise RuntimeError(OTHER_LOOP)

    def _current(self) -> Coordinated:
        session = self._session.current
        if self._phase is not Phase.OPEN:
            raise self._not_open()
        self._check_loop()
        if session is None:
            raise RuntimeError("There is no session at the moment: the last recovery did not succeed.")
        return session

    def _not_open(self) -> RuntimeError:
        """Return what to say to a call that comes at the wrong time."""
        coord = self._stops.current
        if coord is None or self._phase is not Phase.CLOSING:
            return RuntimeError(self._phase.value)
        return coord.closing(self._phase.value)
