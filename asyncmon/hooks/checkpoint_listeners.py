"""Listeners of saves, and what follows a commit: a log line, an event, their ``after_save``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from asyncmon.hooks.hook_support import forgiven
from asyncmon.runtime.hook_check import check_method
from asyncmon.summary.events import SessionLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.checkpoint.save_handle import SaveHandle
    from asyncmon.runtime.coordinator import Coordinator
    from asyncmon.runtime.hook import SessionRunHook
    from asyncmon.runtime.protocols import Session
    from asyncmon.summary.shared_writer import SharedWriter

logger = logging.getLogger(__name__)

_QUICK_SECS = 0.25  # a saver whose saves take less than this
_PATIENCE_SECS = 1.0  # is waited for this long, so that quick steps do not outrun it

_MOMENTS: dict[str, tuple[str, ...]] = {
    "begin": (),
    "before_save": ("session", "global_step_value"),
    "after_save": ("session", "global_step_value"),
    "end": ("session", "global_step_value"),
}


class CheckpointSaverListener:
    """Told of a :class:`CheckpointSaverHook`'s saves. TF1: ``tf.train.CheckpointSaverListener``.

    All methods are optional. ``before_save`` is awaited before the state is taken, ``after_save`` when
    the checkpoint is committed. Of several listeners all are called before a save, in order, then all
    after it.

    By steps and where saves are quick, the run that made one due ends when ``after_save`` has, so that
    a stop it asks for comes at that very step, as in TF1; but it waits for a second at most. Where
    saves are slow, or by seconds, steps go on meanwhile; by seconds also during ``before_save``, so
    that the step of the checkpoint may be later.

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
    """Refuse listeners that could not be told, before the first save.

    Raises:
        TypeError: they are no list; one is a class, lacks a method, or has a plain or wrong one.
    """
    if listeners is not None and not isinstance(listeners, Iterable):
        raise TypeError(f"listeners must be a list, got {listeners!r}. Write `listeners=[...]`.")
    checked = tuple(listeners or ())
    for one in checked:
        if isinstance(one, type):
            raise TypeError(
                f"listeners must be objects, got the class {one.__name__!r}. Write `{one.__name__}()`."
            )
        for moment, arguments in _MOMENTS.items():
            method = getattr(one, moment, None)
            if method is None:
                raise TypeError(
                    f"{one!r} is no listener, it has no method {moment!r}. Derive the class from "
                    "asyncmon.CheckpointSaverListener."
                )
            check_method(type(one).__name__, moment, arguments, method, what="listeners")
    return checked


class Commits:
    """Saves that were started, in order, until all is said of them.

    A recovery ends the tasks of the session it replaces, but no save: the next session takes over what
    is still to be said. No listener is called twice for one checkpoint.

    What fails in a task is dealt with as the hook's ``on_error`` says: ``"detach"`` has
    :meth:`raise_if_failed` raise it, in a moment of the hook.

    Args:
        hook: whose saves they are.
        output: where the ``CHECKPOINT`` events go.
        listeners: whose ``after_save`` is called.
    """

    def __init__(
        self, hook: SessionRunHook, output: SharedWriter, listeners: Sequence[CheckpointSaverListener]
    ) -> None:
        self.kept: int | None = None
        """The step of the checkpoint that this session committed, or began with, last."""
        self.quick = True
        """Whether the last save was done so fast that steps may wait for one."""
        self._hook = hook
        self._output = output
        self._listeners = listeners
        self._open: list[_Commit] = []
        self._last: asyncio.Task[Any] | None = None
        self._error: Exception | None = None
        self._session: Session
        self._coord: Coordinator

    def take_over(self, session: Session, coord: Coordinator) -> None:
        """Begin in a new session, with what the one before left unsaid."""
        self._session, self._coord, self._last = session, coord, None
        for commit in self._open:
            self._watch(commit)

    async def wait_for(self, handle: SaveHandle) -> None:
        """Wait for a save, and say all there is to say."""
        commit = self._add(handle)
        await self._follow(commit, None)

    def follow(self, handle: SaveHandle) -> None:
        """Do so in a task, after what is said of the saves before."""
        self._watch(self._add(handle))

    async def wait_a_moment(self) -> None:
        """Wait until nothing is left to say, if that does not take long."""
        if self._last is not None:
            await asyncio.wait([self._last], timeout=_PATIENCE_SECS)

    async def wait(self) -> None:
        """Wait until nothing is left to say."""
        if self._last is not None:
            await asyncio.wait([self._last])

    def raise_if_failed(self) -> None:
        """Raise, once, the error for which the hook is to be detached."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def write_down(self) -> None:
        """Write down what nobody followed to its end. The session is closed, so no listener is told."""
        for commit in self._open:
            if commit.handle.done and commit.handle.error is None:
                self._write_down(commit)
        self._open.clear()

    def _add(self, handle: SaveHandle) -> _Commit:
        commit = _Commit(handle, self._session, self._listeners)
        self._open.append(commit)
        return commit

    def _watch(self, commit: _Commit) -> None:
        name = f"CheckpointSaverHook, step {commit.handle.step}"
        self._last = self._coord.create_task(self._follow_beside, commit, self._last, name=name)

    async def _follow_beside(self, commit: _Commit, before: asyncio.Task[Any] | None) -> None:
        with forgiven(self._hook, f"the checkpoint of step {commit.handle.step}"):
            try:
                await self._follow(commit, before)
            except Exception as error:
                if self._hook.on_error != "detach":
                    raise
                logger.exception(
                    "The checkpoint of step %s: on_error='detach', at the next save.",
                    commit.handle.step,
                )
                self._error = error

    async def _follow(self, commit: _Commit, before: asyncio.Task[Any] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await self._say(commit)
        except asyncio.CancelledError:
            raise  # the next session may go on with it
        except BaseException:
            self._open.remove(commit)
            raise
        self._open.remove(commit)

    async def _say(self, commit: _Commit) -> None:
        handle = commit.handle
        await handle
        if not self._write_down(commit):
            return
        step = handle.step
        assert step is not None, "it is committed"
        if commit.session is self._session:
            self.kept = step
        self.quick = (handle.seconds or 0.0) < _QUICK_SECS
        logger.info("Calling checkpoint listeners after saving checkpoint %d...", step)
        for listener in commit.listeners:
            with forgiven(self._hook, f"after_save of {listener!r}"):
                if await listener.after_save(self._session, step):
                    line = "A CheckpointSaverListener requested that training be stopped. listener: %s"
                    logger.info(line, listener)
                    self._coord.request_stop(reason=line % (listener,))

    def _write_down(self, commit: _Commit) -> bool:
        """Log that the checkpoint is committed, and write its event. False where there is none."""
        handle = commit.handle
        if handle.superseded_by is not None or handle.seconds is None:
            return False
        if not commit.is_written_down:
            commit.is_written_down = True
            logger.info("Saved checkpoint %s in %.3f s.", handle.path, handle.seconds)
            if self._output.writer is not None:
                event = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=handle.path or "")
                self._output.writer.add_session_log(event, handle.step)
        return True


class _Commit:
    """A save, and how much has been said of it."""

    def __init__(
        self, handle: SaveHandle, session: Session, listeners: Sequence[CheckpointSaverListener]
    ) -> None:
        self.handle = handle
        self.session = session
        """Whose state is saved."""
        self.listeners = iter(listeners)
        """Those that are not told yet; who was being told when its session went is not told again."""
        self.is_written_down = False
