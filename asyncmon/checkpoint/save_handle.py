"""A save that was started."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any


class SaveHandle:
    """A save that :meth:`Saver.start_save` started; awaiting it gives the checkpoint's prefix.

    It can be awaited twice, or never: :meth:`Saver.raise_if_failed` raises the error of a save that was
    not awaited. Cancelling the awaiting task does not cancel the save.

    The result is None for a save that was skipped because the saver was busy, and the prefix of a later
    checkpoint for one that a later save superseded.

    Example::

        handle = saver.start_save(session, "runs/model.ckpt", global_step=10)
        ...  # steps go on
        print(await handle, handle.seconds, handle.nbytes)
    """

    def __init__(self, path: str | None, step: int | None) -> None:
        self.path: str | None = path
        """The prefix of the checkpoint; None until the step that it ends with is known."""
        self.step: int | None = step
        """The global step of the saved state; None until it is known."""
        self.seconds: float | None = None
        """Seconds from the call to the end of the save; None until it is done."""
        self.nbytes: int | None = None
        """The size of the checkpoint's tensor files; None until it is done."""
        self.superseded_by: SaveHandle | None = None
        """The later save that replaced this one while it was pending."""
        self.awaited = False
        """Whether the outcome was awaited."""
        self._outcome: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        # Retrieved in any case: the saver reports the error, and asyncio logs those that are not.
        self._outcome.add_done_callback(lambda outcome: outcome.exception())

    @property
    def done(self) -> bool:
        """Whether the checkpoint is committed, or the save failed or was skipped."""
        return self._decisive._outcome.done()

    @property
    def error(self) -> BaseException | None:
        """The error of a failed save; reading it does not count as awaiting the save."""
        outcome = self._decisive._outcome
        return outcome.exception() if outcome.done() else None

    @property
    def _decisive(self) -> SaveHandle:
        """This save, or the last one that superseded it."""
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
        """Complete with the prefix, or None for a skipped save. For the saver."""
        self._outcome.set_result(path)

    def fail(self, error: BaseException) -> None:
        """Complete with an error. For the saver."""
        self._outcome.set_exception(error)

    def supersede(self, handle: SaveHandle) -> None:
        """Complete with the outcome of a later save. For the saver."""
        self.superseded_by = handle
        self._outcome.set_result(None)
