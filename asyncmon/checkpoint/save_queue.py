"""The queue of a saver's saves."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from asyncmon.cancellation import outlast
from asyncmon.error_text import add_note, phrase, text_of
from asyncmon.errors import CancelledError

if TYPE_CHECKING:
    from asyncmon.checkpoint.save import Save
    from asyncmon.checkpoint.save_handle import SaveHandle

logger = logging.getLogger(__name__)


class SaveQueue:
    """The saves of one saver, in order, one at a time."""

    def __init__(self) -> None:
        self._tail: Save | None = None
        self._replaceable: Save | None = None
        self._failed: list[SaveHandle] = []

    @property
    def busy(self) -> bool:
        """Whether a save is under way or pending."""
        return self._tail is not None and not self._tail.task.done()

    def submit(self, save: Save, *, coalesce: bool = False) -> None:
        """Start a save after all earlier ones.

        Args:
            save: the save.
            coalesce: replace the last one submitted so, if it is pending; a later one may replace this.
        """
        pending = self._replaceable if coalesce else None
        if pending is not None and not pending.started and not pending.dropped:
            pending.dropped = True
            pending.discard()
            pending.handle.supersede(save.handle)
            if pending is self._tail:
                pending.task.cancel()
                self._tail = pending.before
        save.before = self._tail if self.busy else None
        self._tail = save
        if coalesce:
            self._replaceable = save
        save.task = asyncio.create_task(self._run(save), name=f"save {save.handle.path}")

    async def cancel(self, save: Save) -> None:
        """Cancel a save; return when its task has ended."""
        if not save.started and not save.dropped:
            save.dropped = True
            save.discard()
            save.handle.fail(CancelledError(f"Saving {save.handle.path!r} was cancelled."))
            return
        save.task.cancel()
        await outlast(save.task)

    async def drain(self) -> None:
        """Wait until nothing is under way, then :meth:`raise_if_failed`."""
        save = self._tail
        while save is not None:
            save.control.unthrottle()
            save = save.before
        while self._tail is not None and self.busy:
            await asyncio.wait([self._tail.task])
        self.raise_if_failed()

    def raise_if_failed(self) -> None:
        """Raise the error of a failed save that was not awaited, once."""
        if not self._failed:
            return
        errors = [handle.error for handle in self._failed if handle.error and not handle.awaited]
        self._failed.clear()
        if errors:
            for other in errors[1:]:
                add_note(errors[0], f"A later save failed too: {phrase(other)}")
            raise errors[0]

    async def _run(self, save: Save) -> None:
        try:
            if save.before is not None:
                await asyncio.wait([save.before.task])
            save.before = None
            if save.dropped:
                return
            save.started = True
            path = await save.write(save)
        except BaseException as error:
            if save.dropped:
                raise
            save.discard()
            if not isinstance(error, Exception):
                save.handle.fail(CancelledError(f"Saving {save.handle.path!r} was cancelled."))
                raise
            save.handle.fail(error)
            if not save.handle.awaited:
                logger.error("Saving checkpoint %s failed: %s", save.handle.path, text_of(error))
                self._failed.append(save.handle)
        else:
            save.handle.settle(path)
