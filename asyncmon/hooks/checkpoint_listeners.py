"""Listeners of saves, and the follow-up of a commit: log line, event, ``after_save``."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from asyncmon.checkpoint import SaveHandle, Saver
from asyncmon.errors import PREEMPTION
from asyncmon.hooks.hook_support import created_session, log_errors
from asyncmon.runtime import Coordinator, Session, SessionRunHook
from asyncmon.runtime.hook_check import check_methods
from asyncmon.runtime.observation import Observers, Span
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.runtime.stop.origin import marked
from asyncmon.summary.events import SessionLog
from asyncmon.summary.shared_writer import SharedWriter
from asyncmon.system import clock
from asyncmon.system.error_text import text_of

logger = logging.getLogger(__name__)

_METHODS: dict[str, tuple[str, ...]] = {
    "begin": (),
    "before_save": ("session", "global_step_value"),
    "after_save": ("session", "global_step_value"),
    "end": ("session", "global_step_value"),
}


class CheckpointSaverListener:
    """Called around a :class:`CheckpointSaverHook`'s saves. TF1: ``tf.train.CheckpointSaverListener``.

    All methods are optional. ``before_save`` is awaited before the snapshot, ``after_save`` after the
    commit. Several listeners are called in order, before the save and after it.

    With an interval in steps, the run that makes a save due waits for ``after_save``, so that a stop
    takes effect at that step, as in TF1. It waits for ``timeout_secs`` of the hook at most. With an
    interval in seconds, steps continue during both calls, so that the checkpoint may have a later step
    than the argument of ``before_save``.

    Example::

        class Evaluate(CheckpointSaverListener):
            async def after_save(self, session, global_step_value):
                if await evaluate(global_step_value) > 0.99:
                    return True
    """

    async def begin(self) -> None:
        """Add operations to the program, in ``begin`` of the hook."""

    async def before_save(self, session: Session, global_step_value: int) -> None:
        """Called before a save at this step. An error prevents the save."""

    async def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """Called after the commit of the checkpoint of this step. Return True to stop training."""

    async def end(self, session: Session, global_step_value: int) -> None:
        """Called at a successful end at this step, after the commit of the last checkpoint."""


def check_listeners(listeners: Iterable[Any] | None) -> tuple[CheckpointSaverListener, ...]:
    """Return the listeners as a tuple after a check of their methods. Raises TypeError."""
    if listeners is not None and not isinstance(listeners, Iterable):
        raise TypeError(f"listeners must be a list, got {listeners!r}. Write `listeners=[...]`.")
    checked = tuple(listeners or ())
    for one in checked:
        check_methods(one, "listener", CheckpointSaverListener, _METHODS)
    return checked


class SaveFollowUp:
    """Reports the outcome of a hook's saves, in order: log line, event, listeners, errors.

    The saver's queue lists the saves. One that is not reported when a recovery cancels the tasks of the
    replaced session is followed up in the next session. If it fails with an error that sessions recover
    from, or before its snapshot was taken, its state is lost and a WARNING is logged. No listener is
    called twice for one checkpoint.

    ``on_error`` of the hook applies to errors in tasks: with ``"detach"``, :meth:`raise_if_failed`
    raises the error in a method of the hook.
    """

    def __init__(
        self, hook: SessionRunHook, output: SharedWriter, listeners: Sequence[CheckpointSaverListener]
    ) -> None:
        self._hook = hook
        self._output = output
        self._listeners = listeners
        self.before_secs = 0.0
        """The duration of the listeners' last ``before_save`` calls."""
        self.was_cut = False
        """Whether the wait for a save was cancelled: the grace period of tasks is over."""
        self._seconds: deque[float] = deque(maxlen=5)
        self._last: asyncio.Task[Any] | None = None
        self._error: Exception | None = None
        self._saver: Saver | None = None
        self._session: Session
        self._coord: Coordinator
        self._observers: Observers

    def take_over(self, saver: Saver, session: Session, coord: Coordinator) -> None:
        """Follow up the saves of a new session, and those of the previous one."""
        self.was_cut = False
        self._saver, self._session, self._coord, self._last = saver, session, coord, None
        self._observers = created_session(coord).observers
        for handle, todo in self._unreported():
            self._create_task(handle, todo)

    async def finish(self, handle: SaveHandle) -> None:
        """Wait for the commit of a save, log it, and call the listeners."""
        await self._finish(handle, self._add(handle), None)

    def follow(self, handle: SaveHandle) -> None:
        """:meth:`finish` in a background task, after the previous saves."""
        self._create_task(handle, self._add(handle))

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until all saves are reported, or for ``timeout`` seconds."""
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last], timeout=timeout)

    def raise_if_failed(self) -> None:
        """Raise the error that detaches the hook, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def record_committed(self) -> None:
        """Log the committed saves of a closed session, without calls of listeners."""
        for handle, todo in self._unreported():
            if handle.done and handle.error is None and not todo.recorded:
                with self._span(handle, todo) as span:
                    _describe(handle, span)
                self._record(handle, todo)
            handle.follow_up = None

    def _add(self, handle: SaveHandle) -> _ToDo:
        todo = handle.follow_up = _ToDo(self, self._session, iter(self._listeners))
        return todo

    def _unreported(self) -> list[tuple[SaveHandle, _ToDo]]:
        found = [] if self._saver is None else self._saver.followed_saves()
        pairs = [(handle, handle.follow_up) for handle in found]
        return [(h, todo) for h, todo in pairs if isinstance(todo, _ToDo) and todo.owner is self]

    def _create_task(self, handle: SaveHandle, todo: _ToDo) -> None:
        name = f"CheckpointSaverHook, step {handle.step}"
        self._last = self._coord.create_task(self._finish_in_task, handle, todo, self._last, name=name)

    async def _finish_in_task(
        self, handle: SaveHandle, todo: _ToDo, before: asyncio.Task[Any] | None
    ) -> None:
        step = handle.step
        with log_errors(self._hook, f"the checkpoint of step {step}"):
            try:
                await self._finish(handle, todo, before)
            except PREEMPTION as error:
                if handle.error is None or not self._coord.should_stop():
                    raise
                # There is no recovery after a stop, and the last checkpoint follows.
                logger.warning("The checkpoint of step %s failed: %s", step, text_of(error))
            except Exception as error:
                if self._hook.on_error != "detach":
                    raise
                logger.exception(
                    "The checkpoint of step %s: on_error='detach', at the next save.", step
                )
                self._error = error

    async def _finish(self, handle: SaveHandle, todo: _ToDo, before: asyncio.Task[Any] | None) -> None:
        try:
            if not todo.recorded:
                with self._span(handle, todo) as span:
                    if before is not None:
                        await asyncio.wait([before])
                    await handle
                    _describe(handle, span)
            if self._record(handle, todo):
                await self._call_after_save(handle, todo)
        except asyncio.CancelledError:
            self.was_cut = True
            raise  # the next session follows the save up
        except BaseException as error:
            handle.follow_up = None
            is_lost = isinstance(error, PREEMPTION) or (
                isinstance(error, Exception) and not handle.captured
            )
            if not is_lost or todo.session is self._session:
                raise
            step, why = handle.step, text_of(error)  # of a session that was replaced
            logger.warning("The checkpoint of step %s was lost with its session: %s", step, why)
        handle.follow_up = None

    async def _call_after_save(self, handle: SaveHandle, todo: _ToDo) -> None:
        step = handle.step
        assert step is not None, "known once the save is committed"
        logger.info("Calling checkpoint listeners after saving checkpoint %d...", step)
        for listener in todo.listeners:
            what = f"{type(listener).__name__}.after_save"
            scope = CallScope(created_session(self._coord).stops.scopes, "listener")
            with log_errors(self._hook, what), marked("listener", what), scope:
                if await listener.after_save(self._session, step):
                    line = "A CheckpointSaverListener requested that training be stopped. listener: %s"
                    logger.info(line, listener)
                    self._coord.request_stop(reason=line % (listener,))

    def _span(self, handle: SaveHandle, todo: _ToDo) -> AbstractContextManager[Span]:
        name = handle.path or type(self._hook).__name__
        attributes = {"step": handle.step, "bytes": None}
        return self._observers.span("save", name, attributes, todo.started)

    def _record(self, handle: SaveHandle, todo: _ToDo) -> bool:
        # Returns False without a checkpoint: the save was superseded or has not ended.
        if handle.superseded_by is not None or handle.seconds is None:
            return False
        if not todo.recorded:
            todo.recorded = True
            logger.info("Saved checkpoint %s in %.3f s.", handle.path, handle.seconds)
            self._seconds.append(self.before_secs + handle.seconds)
            self._hook.end_secs = 2 * max(self._seconds)  # the last save may wait for a previous one
            if todo.session is self._session:  # an evaluated state may be older than the last one
                self._hook.saved_step = max(handle.step or 0, self._hook.saved_step or 0)
            event = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=handle.path or "")
            self._output.add_session_log(event, handle.step)
        return True


@dataclass(slots=True, eq=False)
class _ToDo:
    """The pending work for a save, its ``follow_up``."""

    owner: SaveFollowUp
    session: Session
    """The session whose state is saved."""
    listeners: Iterator[CheckpointSaverListener]
    """The listeners to call. A call that a recovery interrupted is not repeated."""
    recorded: bool = False
    started: float = field(default_factory=clock.monotonic)


def _describe(handle: SaveHandle, span: Span) -> None:
    if handle.superseded_by is None and handle.seconds is not None:
        span.name = handle.path or span.name
        span.ended = span.started + handle.seconds  # the task may have run late
        span.attributes = {"step": handle.step, "bytes": handle.nbytes}
