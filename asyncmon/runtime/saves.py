"""The saves of a session, over recoveries: which state is saved, and the report of each commit."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from asyncmon.checkpoint import SaveHandle, Saver
from asyncmon.checkpoint.captured_state import CapturedState
from asyncmon.checkpoint.directory import Directory
from asyncmon.checkpoint.packing import Fingerprints, has_changed
from asyncmon.checkpoint.saver import WhenBusy
from asyncmon.checkpoint.stateful import StatefulObjects
from asyncmon.errors import (
    PREEMPTION,
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    UnimplementedError,
)
from asyncmon.runtime.observation import Observers, Span
from asyncmon.runtime.protocols import step_of
from asyncmon.runtime.stop.interrupt import CallScope, CallScopes
from asyncmon.runtime.stop.origin import marked
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.summary.events import SessionLog
from asyncmon.system import clock
from asyncmon.system.error_groups import is_only
from asyncmon.system.error_text import phrase, text_of

logger = logging.getLogger(__name__)

# Errors of a save that the next one has, too: a name that is too long, another process that saves into
# the directory, a variable without a value.
_OF_PROGRAM = (CancelledError, FailedPreconditionError, InvalidArgumentError, UnimplementedError)


class Tasks(Protocol):
    """The part of a coordinator that saves use."""

    def create_task(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: str) -> Any: ...
    def request(self, stop: Stop) -> None: ...
    def should_stop(self) -> bool: ...


class Listener(Protocol):
    """The part of a ``CheckpointSaverListener`` that follows a commit."""

    async def after_save(self, session: Any, global_step_value: int) -> bool | None: ...


class EventOutput(Protocol):
    """Gets the ``CHECKPOINT`` events."""

    def add_session_log(self, session_log: SessionLog, global_step: int | None) -> None: ...


class Saves:
    """The saves of one session. They are ordered here, and each commit of its state is reported here.

    ``CheckpointSaverHook``, ``sess.save`` and the ``Supervisor`` order saves. The commit of any
    ``am.Saver`` of all variables counts, in a hook's ``end`` for example: the saver reports it.

    Args:
        observers: of the session.
        scopes: of the session, for the calls of listeners.
        stateful: the objects of the session whose states each checkpoint includes.
    """

    def __init__(self, observers: Observers, scopes: CallScopes, stateful: StatefulObjects) -> None:
        self.observers = observers
        self.scopes = scopes
        self.raw: Any = None
        """The present raw session. Commits of an earlier one save no state of it."""
        self.coord: Tasks
        self._stateful = stateful
        stateful.on_commit = self.committed
        self.on_committed: list[Callable[[int | None], None]] = []
        """Called with the step of each commit of the present raw session; None without steps."""
        self.first_step: int | None = None
        """The global step of the present raw session when it was created."""
        self.step: int | None = None
        """The global step of the newest state of it that is committed, or None."""
        self.path: str | None = None
        """The checkpoint of that state, if this session has saved it by ``am.Saver``."""
        self.step_at_end: int | None = None
        """The global step at the end of the session, as the close has found it."""
        self.failures = 0
        """The number of saves that failed."""
        self.last_error: str | None = None
        """The error of the last save that ended, in words, if it failed."""
        self._secs: deque[float] = deque(maxlen=5)  # of all commits
        self._expected = 0.0
        self._has_orders = False
        self._orders: dict[object, SaveOrders] = {}
        self._takers: list[tuple[object, StateTaker]] = []

    def begin(self, raw: Any, coord: Tasks) -> None:
        """Continue in a new raw session, which is initialised or restored."""
        self.raw, self.coord = raw, coord
        self.first_step = step_of(raw)
        self.step = None if self.restored is None else self.first_step

    def release(self) -> None:
        """Let the raw session and the orders go: the session is closed."""
        self.raw = None
        self._orders.clear()
        self._takers.clear()

    @property
    def restored(self) -> str | None:
        """The checkpoint that the present raw session has loaded, or None."""
        return self._stateful.loaded_from

    # -- snapshots

    def committed(self, raw: Any, step: int | None, secs: float, path: str | None = None) -> None:
        """Note the commit of the whole state of a step, after a number of seconds.

        Savers call it, and hooks that save by other means, by ``coord.saves``.
        """
        self._secs.append(secs)
        if raw is self.raw:
            # An evaluated state may be older than the last one.
            if step is not None and (self.step is None or step >= self.step):
                self.step, self.path = step, path
            for call in self.on_committed:
                call(step)

    def expect(self, secs: float) -> None:
        """Reserve time for the last save of a hook that saves by other means, after a signal."""
        self._expected += secs

    def secs(self) -> float:
        """Return the expected time of the last saves; ``math.inf`` before the first one."""
        if self._orders:
            return self._expected + sum(one.secs for one in self._orders.values())
        return self._expected or 2 * max(self._secs, default=0.0)

    def unsaved(self) -> str | None:
        """Return which state is lost if the process ends now, or None. Safe in any thread."""
        raw = self.raw
        if raw is None:
            return None
        step, saved = step_of(raw) if self.step_at_end is None else self.step_at_end, self.step
        is_new = step == self.first_step and self._has_orders  # it is made again, unchanged
        if step is not None and (is_new or step == saved):
            return None
        last = "no hook saves it" if saved is None else f"the last saved state is that of step {saved}"
        what = "the state" if step is None else f"the state of step {step}"
        return f"{what} is not saved: {last}"

    # -- orders

    def orders_of(
        self,
        owner: Any,
        output: EventOutput,
        listeners: Sequence[Listener] = (),
        policy: Callable[[str], AbstractContextManager[None]] | None = None,
        *,
        detaches: bool = False,
        survives: bool = False,
    ) -> SaveOrders:
        """Return the orders of a hook or a service, the same ones after a recovery.

        Args:
            owner: orders the saves.
            output: gets the event of each commit.
            listeners: are called after each commit, in their order.
            policy: returns a block that handles the errors of a call, for its name.
            detaches: whether an error in a task is raised in a method of the hook, which detaches it.
            survives: whether a save that fails for its disk or store is only logged.
        """
        self._has_orders = True
        if owner not in self._orders:
            self._orders[owner] = SaveOrders(
                self, type(owner).__name__, output, listeners, policy, detaches, survives
            )
        return self._orders[owner]

    def forget(self, owner: Any) -> None:
        """Drop the orders of a hook, and its share of evaluations. The hook is cleaned up."""
        self._orders.pop(owner, None)
        self._takers = [one for one in self._takers if one[1].owner is not owner]

    # -- evaluated states

    def take(self, evaluation: object, taker: StateTaker) -> None:
        """Let a saver have each state that a hook evaluates, from now on. Twice is fine."""
        if not any(known is evaluation and one.owner is taker.owner for known, one in self._takers):
            self._takers.append((evaluation, taker))

    def capture(self, evaluation: object, session: Any) -> list[Captured]:
        """Capture the state of a concurrent evaluation for each of its savers, one at least."""
        # One for each, as a saver adds the states of objects of its own.
        takers = [taker for known, taker in self._takers if known is evaluation]
        if takers:
            return [(taker, taker.saver.capture(session)) for taker in takers]
        return [(None, CapturedState(session, StatefulObjects(), session_states=False))]

    async def evaluated(
        self, evaluation: object, session: Any, states: Sequence[Captured] | None
    ) -> None:
        """Let every saver of an evaluation save its state, with the metrics.

        Args:
            evaluation: has published the metrics.
            session: the raw session.
            states: of :meth:`capture`, which are discarded here. None: the state after this run.
        """
        if states is None:
            for known, taker in list(self._takers):
                if known is evaluation:
                    await taker.save(session, None)
            return
        left = [state for _, state in states]
        try:
            for saves_it, state in states:
                if saves_it is not None and await saves_it.save(session, state):
                    left.remove(state)
        finally:
            for state in left:
                state.discard()

    @property
    def best_saver(self) -> Saver | None:
        """The saver of the first hook that keeps the best checkpoints, or None."""
        savers = [one.saver for one in self._orders.values() if one.saver is not None]
        return next((one for one in savers if one.keep_best is not None), None)


@dataclass(frozen=True, slots=True)
class StateTaker:
    """How a hook saves the states that another one evaluates."""

    owner: object
    saver: Saver
    save: Callable[[Any, CapturedState | None], Awaitable[bool]]
    """Orders the save of an evaluated state, if it is to be saved; None stands for the state after this
    run. Returns whether the state is taken over."""


Captured = tuple[StateTaker | None, CapturedState]
"""A captured state, and what saves it if it is evaluated."""


@dataclass(slots=True, eq=False)
class Order:
    """A save that was ordered, until its outcome is reported."""

    handle: SaveHandle
    raw: Any
    """The session whose state is saved."""
    listeners: Iterator[Listener]
    """The listeners to call. A call that a recovery interrupted is not repeated."""
    is_recorded: bool = False
    started: float = field(default_factory=clock.monotonic)


class SaveOrders:
    """The saves that one hook or service has ordered, and their reports: log line, event, listeners."""

    #   order() ----------------> commit, log line, event ------> listeners ----> reported
    #   in _pending, and last     is_recorded; step and                           out of _pending
    #                             _fingerprints, of the newest
    #
    #   follow() makes the report in a task, which waits for the previous one, _last: reports come in
    #   the order of the saves. A recovery cancels these tasks. Their orders stay in _pending, and the
    #   next session's begin() has them reported.

    def __init__(
        self,
        saves: Saves,
        name: str,
        output: EventOutput,
        listeners: Sequence[Listener],
        policy: Callable[[str], AbstractContextManager[None]] | None,
        detaches: bool,
        survives: bool,
    ) -> None:
        self.saver: Saver | None = None
        """The saver of the last order, or the one that is going to be used."""
        self.last: Order | None = None
        """The last order in the present raw session."""
        self.step: int | None = None
        """The global step of the newest state of that session that was committed, or restored."""
        self._fingerprints: Fingerprints = {}
        self.was_cut = False
        """Whether the wait for a save was cancelled: the grace period of tasks is over."""
        self.before_secs = 0.0
        """The duration of the listeners' last ``before_save`` calls."""
        self._saves = saves
        self._name = name
        self._output = output
        self._listeners = listeners
        self._is_hook, self._policy = policy is not None, policy
        self._detaches = detaches
        self._survives = survives
        self._pending: list[Order] = []
        self._secs: deque[float] = deque(maxlen=5)
        self._last: asyncio.Task[Any] | None = None
        self._error: Exception | None = None

    @property
    def secs(self) -> float:
        """The expected time of the last save; ``math.inf`` before the first commit."""
        # The last save may wait for a previous one.
        return 2 * max(self._secs) if self._secs else math.inf

    def order(
        self,
        saver: Saver,
        session: Any,
        prefix: str,
        step: Any,
        *,
        metrics: Mapping[str, float] | None = None,
        state: CapturedState | None = None,
        when_busy: WhenBusy | None = None,
    ) -> Order:
        """Order a save. The caller then has it reported, by :meth:`finish` or :meth:`follow`."""
        handle = saver.start_save(
            session, prefix, global_step=step, metrics=metrics, state=state, when_busy=when_busy
        )
        self.saver = saver
        self.last = order = Order(handle, self._saves.raw, iter(self._listeners))
        self._pending.append(order)
        return order

    def begin(self, saver: Saver) -> None:
        """Continue in a new raw session: report the unreported saves of the replaced one."""
        self.saver, self.step, self.last, self._last = saver, None, None, None
        self.was_cut = False
        for order in list(self._pending):
            self.follow(order)

    async def restored(self, step: int | None) -> None:
        """Note that the session has just loaded the newest checkpoint of these orders."""
        assert self.saver is not None, "set by begin"
        self.step, self._fingerprints = step, await self.saver.fingerprints(self._saves.raw)

    async def is_saved(self, step: int | None) -> bool:
        """Return whether the newest commit has a step, and all stateful objects as they are now."""
        if step != self.step or self.saver is None:
            return False
        # The end of an epoch, or a verdict of an evaluation, changes a state without a step.
        return not has_changed(self._fingerprints, await self.saver.fingerprints(self._saves.raw))

    async def finish(self, order: Order) -> None:
        """Wait for the commit of a save, and report it."""
        await self._finish(order, None)

    def follow(self, order: Order) -> None:
        """:meth:`finish` in a background task, after the previous saves."""
        name = f"{self._name}, step {order.handle.step}"
        self._last = self._saves.coord.create_task(self._finish_in_task, order, self._last, name=name)

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until all saves are reported, or for ``timeout`` seconds."""
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last], timeout=timeout)

    def raise_if_failed(self) -> None:
        """Raise the error that detaches the hook, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def may_survive(self, order: Order) -> bool:
        """Return whether the error of a save is one of its disk or store, and is to be survived."""
        error = order.handle.error
        # None of the program, and none of its session, from which a run recovers: it is not captured.
        is_outside = isinstance(error, OSError | OpError) and not isinstance(error, _OF_PROGRAM)
        return self._survives and is_outside and order.handle.captured

    def end(self) -> None:
        """Log the committed saves of a closed session, without calls of listeners."""
        for order in self._pending:
            if order.handle.done and order.handle.error is None and not order.is_recorded:
                with self._span(order) as span:
                    _describe(order.handle, span)
                self._record(order)
        self._pending.clear()
        self.last = self.saver = None

    async def _finish_in_task(self, order: Order, before: asyncio.Task[Any] | None) -> None:
        step, coord = order.handle.step, self._saves.coord
        with self._tolerated(f"the checkpoint of step {step}"):
            try:
                await self._finish(order, before)
            except Exception as error:
                is_transient = is_only(error, PREEMPTION)
                if error is order.handle.error and self.may_survive(order):
                    path = Directory.shown(order.handle.path or self._name)
                    line = "Checkpoint %s of step %s was not saved, the next save tries again: %s"
                    if order.handle.superseded_by is None:  # else its own line says it
                        logger.warning(line, path, step, phrase(error))
                    return
                if is_transient and order.handle.error is not None and coord.should_stop():
                    # There is no recovery after a stop, and the last checkpoint follows.
                    logger.warning("The checkpoint of step %s failed: %s", step, text_of(error))
                elif is_transient or not self._detaches:
                    raise
                else:
                    line = "The checkpoint of step %s: on_error='detach', at the next save."
                    logger.exception(line, step)
                    self._error = error

    async def _finish(self, order: Order, before: asyncio.Task[Any] | None) -> None:
        handle = order.handle
        try:
            if not order.is_recorded:
                with self._span(order) as span:
                    if before is not None:
                        await asyncio.wait([before])
                    await handle
                    _describe(handle, span)
            if self._record(order):
                await self._call_after_save(order)
        except asyncio.CancelledError:
            self.was_cut = True
            raise  # the next session reports it
        except BaseException as error:
            self._done(order)
            if error is handle.error and handle.superseded_by is None:  # else it is counted there
                self._saves.failures += 1
                self._saves.last_error = phrase(error)
            # A snapshot of a session that was replaced fails with it, and the state is lost.
            is_lost = is_only(error, PREEMPTION) or (
                isinstance(error, Exception) and not handle.captured
            )
            if not is_lost or order.raw is self._saves.raw:
                raise
            step, why = handle.step, text_of(error)
            logger.warning("The checkpoint of step %s was lost with its session: %s", step, why)
        self._done(order)

    def _done(self, order: Order) -> None:
        if order in self._pending:
            self._pending.remove(order)

    async def _call_after_save(self, order: Order) -> None:
        step, saves = order.handle.step, self._saves
        assert step is not None, "known once the save is committed"
        if self._is_hook:
            logger.info("Calling checkpoint listeners after saving checkpoint %d...", step)
        for listener in order.listeners:
            what = f"{type(listener).__name__}.after_save"
            with self._tolerated(what), marked("listener", what), CallScope(saves.scopes, "listener"):
                if await listener.after_save(saves.raw, step):
                    line = "A CheckpointSaverListener requested that training be stopped. listener: %s"
                    logger.info(line, listener)
                    saves.coord.request(Stop(Cause.HOOK, line % (listener,), what))

    def _tolerated(self, what: str) -> AbstractContextManager[None]:
        return nullcontext() if self._policy is None else self._policy(what)

    def _span(self, order: Order) -> AbstractContextManager[Span]:
        attributes = {"step": order.handle.step, "bytes": None}
        name = Directory.shown(order.handle.path or self._name)
        return self._saves.observers.span("save", name, attributes, order.started)

    def _record(self, order: Order) -> bool:
        """Log a commit, once. Return False without one: it was superseded, or has not ended."""
        handle = order.handle
        if handle.superseded_by is not None or handle.seconds is None:
            return False
        if not order.is_recorded:
            order.is_recorded, self._saves.last_error = True, None
            path = Directory.shown(handle.path or self._name)
            logger.info("Saved checkpoint %s in %.3f s.", path, handle.seconds)
            self._secs.append(self.before_secs + handle.seconds)
            is_newest = self.step is None or (handle.step or 0) >= self.step
            if order.raw is self._saves.raw and is_newest:  # an evaluated state may be older
                self.step, self._fingerprints = handle.step, handle.fingerprints
            event = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=handle.path or "")
            self._output.add_session_log(event, handle.step)
        return True


def _describe(handle: SaveHandle, span: Span) -> None:
    if handle.superseded_by is None and handle.seconds is not None:
        span.name = Directory.shown(handle.path or span.name)
        span.ended = span.started + handle.seconds  # the task may have run late
        span.attributes = {"step": handle.step, "bytes": handle.nbytes}
