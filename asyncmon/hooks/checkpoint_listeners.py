"""Listeners of saves, and what follows a commit: a log line, an event, their ``after_save``."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from asyncmon.checkpoint import SaveHandle
from asyncmon.errors import PREEMPTION
from asyncmon.hooks.hook_support import created_session, log_errors
from asyncmon.runtime import Coordinator, Session, SessionRunHook
from asyncmon.runtime.hook_check import check_methods
from asyncmon.runtime.observation import Observers, Span
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

    All methods are optional. ``before_save`` is awaited before the state is taken, ``after_save`` when
    the checkpoint is committed. Of several listeners all are called before a save, in order, then all
    after it.

    By steps, the run that makes a save due ends after ``after_save``, so that a stop requested there
    comes at that very step, as in TF1; but it waits no longer than the hook's ``wait_secs``. By
    seconds, steps go on during both calls, so that the checkpoint may be of a later step than
    ``before_save`` was called with.

    Example::

        class Evaluate(CheckpointSaverListener):
            async def after_save(self, session, global_step_value):
                if await evaluate(global_step_value) > 0.99:
                    return True
    """

    async def begin(self) -> None:
        """The hook's ``begin``: operations may still be added to the program."""

    async def before_save(self, session: Session, global_step_value: int) -> None:
        """A checkpoint of this step is about to be taken. An error prevents it."""

    async def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """A checkpoint of this step is committed. Return true to stop training."""

    async def end(self, session: Session, global_step_value: int) -> None:
        """The session ends successfully, at this step; its last checkpoint is committed."""


def check_listeners(listeners: Iterable[Any] | None) -> tuple[CheckpointSaverListener, ...]:
    """Refuse listeners that could not be called, before the first save.

    Raises:
        TypeError: they are no list; one is a class, lacks a method, or has a plain or wrong one.
    """
    if listeners is not None and not isinstance(listeners, Iterable):
        raise TypeError(f"listeners must be a list, got {listeners!r}. Write `listeners=[...]`.")
    checked = tuple(listeners or ())
    for one in checked:
        check_methods(one, "listener", CheckpointSaverListener, _METHODS)
    return checked


class PendingSaves:
    """Saves that were started, in order, until each is logged and all listeners were called.

    A recovery ends the tasks of the session it replaces, but no save: the next session takes over the
    pending ones. One that fails there by an error that is recovered from was lost with its session: it
    is a WARNING. No listener is called twice for one checkpoint.

    An error in a task is handled as the hook's ``on_error`` says: with ``"detach"``,
    :meth:`raise_if_failed` raises it in a method of the hook.

    Args:
        hook: the hook that starts the saves.
        output: for the ``CHECKPOINT`` events.
        listeners: their ``after_save`` is called.
    """

    def __init__(
        self, hook: SessionRunHook, output: SharedWriter, listeners: Sequence[CheckpointSaverListener]
    ) -> None:
        self._hook = hook
        self._output = output
        self._listeners = listeners
        self.before_secs = 0.0
        """How long the listeners' last ``before_save`` took."""
        self._seconds: deque[float] = deque(maxlen=5)
        self._pending: list[_PendingSave] = []
        self._last: asyncio.Task[Any] | None = None
        self._error: Exception | None = None
        self._session: Session
        self._coord: Coordinator
        self._observers: Observers

    def take_over(self, session: Session, coord: Coordinator) -> None:
        """Begin in a new session, with the pending saves of the one before."""
        self._session, self._coord, self._last = session, coord, None
        self._observers = created_session(coord).observers
        for save in self._pending:
            self._create_task(save)

    async def finish(self, handle: SaveHandle) -> None:
        """Wait for the commit of a save, log it and call the listeners."""
        await self._finish(self._add(handle), None)

    def follow(self, handle: SaveHandle) -> None:
        """Like :meth:`finish`, in a background task, after the saves before it."""
        self._create_task(self._add(handle))

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until no save is pending, or for some seconds."""
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last], timeout=timeout)

    def raise_if_failed(self) -> None:
        """Raise, once, the error that detaches the hook."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def record_committed(self) -> None:
        """Log the pending saves that are committed. The session is closed, so no listener is called."""
        for save in self._pending:
            if save.handle.done and save.handle.error is None and not save.recorded:
                with self._span(save) as span:
                    _describe(save.handle, span)
                self._record(save)
        self._pending.clear()

    def _add(self, handle: SaveHandle) -> _PendingSave:
        save = _PendingSave(handle, self._session, iter(self._listeners))
        self._pending.append(save)
        return save

    def _create_task(self, save: _PendingSave) -> None:
        name = f"CheckpointSaverHook, step {save.handle.step}"
        self._last = self._coord.create_task(self._finish_in_task, save, self._last, name=name)

    async def _finish_in_task(self, save: _PendingSave, before: asyncio.Task[Any] | None) -> None:
        step = save.handle.step
        with log_errors(self._hook, f"the checkpoint of step {step}"):
            try:
                await self._finish(save, before)
            except Exception as error:
                if self._hook.on_error != "detach":
                    raise
                logger.exception(
                    "The checkpoint of step %s: on_error='detach', at the next save.", step
                )
                self._error = error

    async def _finish(self, save: _PendingSave, before: asyncio.Task[Any] | None) -> None:
        try:
            if not save.recorded:
                with self._span(save) as span:
                    if before is not None:
                        await asyncio.wait([before])
                    await save.handle
                    _describe(save.handle, span)
            if self._record(save):
                await self._call_after_save(save)
        except asyncio.CancelledError:
            raise  # it stays pending, for the next session
        except PREEMPTION as error:
            self._pending.remove(save)
            if save.session is self._session:
                raise
            step, why = save.handle.step, text_of(error)  # its session was recovered from already
            logger.warning("The checkpoint of step %s was lost with its session: %s", step, why)
            return
        except BaseException:
            self._pending.remove(save)
            raise
        self._pending.remove(save)

    async def _call_after_save(self, save: _PendingSave) -> None:
        step = save.handle.step
        assert step is not None, "known once the save is committed"
        logger.info("Calling checkpoint listeners after saving checkpoint %d...", step)
        for listener in save.listeners:
            with log_errors(self._hook, f"after_save of {listener!r}"):
                if await listener.after_save(self._session, step):
                    line = "A CheckpointSaverListener requested that training be stopped. listener: %s"
                    logger.info(line, listener)
                    self._coord.request_stop(reason=line % (listener,))

    def _span(self, save: _PendingSave) -> AbstractContextManager[Span]:
        name = save.handle.path or type(self._hook).__name__
        attributes = {"step": save.handle.step, "bytes": None}
        return self._observers.span("save", name, attributes, save.started)

    def _record(self, save: _PendingSave) -> bool:
        """Log a committed save and write its event, once. False where there is no checkpoint of it."""
        handle = save.handle
        if handle.superseded_by is not None or handle.seconds is None:
            return False
        if not save.recorded:
            save.recorded = True
            logger.info("Saved checkpoint %s in %.3f s.", handle.path, handle.seconds)
            self._seconds.append(self.before_secs + handle.seconds)
            self._hook.end_secs = 2 * max(self._seconds)  # one may be under way before the last one
            if save.session is self._session:
                self._hook.saved_step = handle.step
            if self._output.writer is not None:
                event = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=handle.path or "")
                self._output.writer.add_session_log(event, handle.step)
        return True


@dataclass(slots=True, eq=False)
class _PendingSave:
    """A save, and how far its follow-up has got."""

    handle: SaveHandle
    session: Session
    """The session whose state is saved."""
    listeners: Iterator[CheckpointSaverListener]
    """Those not called yet; one that was interrupted by a recovery is not called again."""
    recorded: bool = False
    started: float = field(default_factory=clock.monotonic)


def _describe(handle: SaveHandle, span: Span) -> None:
    """Complete the span of a save that is done."""
    if handle.superseded_by is None and handle.seconds is not None:
        span.name = handle.path or span.name
        span.ended = span.started + handle.seconds  # its task may be late
        span.attributes = {"step": handle.step, "bytes": handle.nbytes}
