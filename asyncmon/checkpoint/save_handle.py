"""A save that was started."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator


class SaveHandle:
    """A save that :meth:`Saver.start_save` started; awaiting it gives the checkpoint's prefix.

    Awaiting it twice, or not at all, is fine: the saver carries the error of a save that nobody awaited
    to :meth:`Saver.raise_if_failed`. Cancelling who awaits it does not cancel the save.

    The result is None for a save that was skipped because the saver was busy, and the prefix of a later
    checkpoint for one that a later save took the place of (``superseded_by``).

    Example::

        handle = saver.start_save(session, "runs/model.ckpt", global_step=10)
        ...  # steps go on
        print(await handle, handle.seconds, handle.nbytes)
    """

    def __init__(self, path: str | None, step: int | None) -> None:
        self.path: str | None = path
        """The prefix of the checkpoint; None while the step that it ends with is still to be read."""
        self.step: int | None = step
        """The global step of the saved state; None until it is known."""
        self.seconds: float | None = None
        """How long the save took from the call to the commit; None until it is done."""
        self.nbytes: int | None = None
        """The size of the checkpoint's tensor files; None until it is done."""
        self.superseded_by: SaveHandle | None = None
        """The later save that took this one's place while it waited for its turn."""
        self.awaited = False
        """Whether somebody has asked for the outcome."""
        self._outcome: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._outcome.add_done_callback(_see)

    @property
    def done(self) -> bool:
        """Whether the checkpoint is committed, or the save failed or was skipped."""
        return self._decisive._outcome.done()

    @property
    def error(self) -> BaseException | None:
        """What the save failed with, once it is done; looking at it does not count as awaiting it."""
        outcome = self._decisive._outcome
        return outcome.exception() if outcome.done() else None

    @property
    def _decisive(self) -> SaveHandle:
        """This save, or the one that in the end took its place."""
        handle = self
        while handle.superseded_by is not None:
            handle = handle.superseded_by
        return handle

    def __await__(self) -> Generator[Any, None, str | None]:
        handle = self
        while True:
            handle.awaited = True
            path = yield from asyncio.shield(handle._outcome).__await__()
            if handle.superseded_by is None:
                return path
            handle = handle.superseded_by

    def settle(self, path: str | None) -> None:
        """Say that the save is committed, or skipped. For the saver."""
        self._outcome.set_result(path)

    def fail(self, error: BaseException) -> None:
        """Say that the save failed. For the saver."""
        self._outcome.set_exception(error)

    def supersede(self, handle: SaveHandle) -> None:
        """Say that a later save takes this one's place. For the saver."""
        self.superseded_by = handle
        self._outcome.set_result(None)


def _see(outcome: asyncio.Future[str | None]) -> None:
    outcome.exception()  # the saver reports it: no warning that nobody looked
