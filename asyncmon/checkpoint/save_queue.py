"""The queue of a saver's saves."""

from __future__ import annotations

import asyncio
import logging

from asyncmon.checkpoint.save import Save
from asyncmon.checkpoint.save_handle import SaveHandle
from asyncmon.errors import CancelledError
from asyncmon.system.cancellation import outlast
from asyncmon.system.error_text import add_note, phrase, text_of
from asyncmon.system.fair_lock import FairLock

logger = logging.getLogger(__name__)


class SaveQueue:
    """The saves of one saver, in order, one at a time."""

    def __init__(self) -> None:
        self._saves: list[Save] = []
        self._lock = FairLock()
        self._replaceable: Save | None = None
        self._failed: list[SaveHandle] = []

    @property
    def busy(self) -> bool:
        """Whether a save is under way or pending."""
        return any(not save.task.done() for save in self._saves)

    def submit(self, save: Save, *, coalesce: bool = False) -> None:
        """Start a save after all earlier ones.

        Args:
            save: the save.
            coalesce: replace the last one submitted so, if it is pending; a later one may replace this.
        """
        if coalesce:
            pending, self._replaceable = self._replaceable, save
            if pending is not None and self._drop(pending):
                pending.handle.supersede(save.handle)
        save.task = asyncio.create_task(self._run(save), name=f"save {save.handle.path}")
        self._saves = [*(one for one in self._saves if not one.task.done()), save]

    async def cancel(self, save: Save) -> None:
        """Cancel a save; return when its task has ended."""
        if self._drop(save):
            save.handle.fail(_cancelled(save))
            return
        save.task.cancel()
        await outlast(save.task)

    def unthrottle(self) -> None:
        """End the pauses of all saves."""
        for save in self._saves:
            save.control.unthrottle()

    async def drain(self) -> None:
        """Wait until nothing is under way, then :meth:`raise_if_failed`."""
        self.unthrottle()
        while self.busy:
            await asyncio.wait([save.task for save in self._saves])
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

    def _drop(self, save: Save) -> bool:
        """Take a pending save out of the queue; return False if it is not pending."""
        if save.started or save.dropped:
            return False
        save.dropped = True
        save.discard()
        save.task.cancel()
        return True

    async def _run(self, save: Save) -> None:
        try:
            async with self._lock:
                save.started = True
                path = await save.write(save)
        except BaseException as error:
            if save.dropped:
                raise
            save.discard()
            if not isinstance(error, Exception):
                save.handle.fail(_cancelled(save))
                raise
            save.handle.fail(error)
            if not save.handle.awaited:
                logger.error("Saving checkpoint %s failed: %s", save.handle.path, text_of(error))
                self._failed.append(save.handle)
        else:
            save.handle.settle(path)


def _cancelled(save: Save) -> CancelledError:
    return CancelledError(f"Saving {save.handle.path!r} was cancelled.")
