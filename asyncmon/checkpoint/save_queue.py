"""Saves one after another: what is pending, what is under way, what failed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

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
        return self._tail is not None and self._tail.task is not None and not self._tail.task.done()

    def submit(self, save: Save, *, coalesce: bool = False) -> None:
        """Start a save after all earlier ones.

        Args:
            save: the save.
            coalesce: replace a replaceable save that has not started, if there is one.
        """
        waiting = self._replaceable
        if coalesce and waiting is not None and not waiting.started and not waiting.dropped:
            waiting.dropped = True
            waiting.discard()
            waiting.handle.supersede(save.handle)
            if waiting is self._tail and waiting.task is not None:
                waiting.task.cancel()
                self._tail = waiting.before
        save.before = self._tail if self.busy else None
        self._tail = save
        if save.replaceable:
            self._replaceable = save
        save.task = asyncio.create_task(self._run(save), name=f"save {save.handle.path}")

    async def cancel(self, save: Save) -> None:
        """Cancel a save; return when its task has ended."""
        assert save.task is not None
        if not save.started and not save.dropped:
            save.dropped = True
            save.discard()
            save.handle.fail(CancelledError(f"Saving {save.handle.path!r} was cancelled."))
            return
        save.task.cancel()
        while not save.task.done():
            try:
                await asyncio.wait([save.task])
            except asyncio.CancelledError:  # the caller is being cancelled anyway, and raises it
                continue

    async def drain(self) -> None:
        """Wait until nothing is under way, then :meth:`raise_if_failed`."""
        save = self._tail
        while save is not None:
            save.hurry()
            save = save.before
        while self.busy:
            assert self._tail is not None
            assert self._tail.task is not None
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
            if save.before is not None and save.before.task is not None:
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
