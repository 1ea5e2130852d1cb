"""Saves one after another, and the handle of each."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncmon.error_text import add_note, phrase, text_of
from asyncmon.errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Job:
    """A save: how it is done, hastened, and let go of where it is not done."""

    handle: SaveHandle
    work: Callable[[], Awaitable[str | None]]
    discard: Callable[[], None]
    hurry: Callable[[], None]
    replaceable: bool = False
    started: bool = False
    dropped: bool = False
    before: Job | None = None
    task: asyncio.Task[None] | None = None


class SaveQueue:
    """The saves of one saver, in the order in which they were asked for, one at a time."""

    def __init__(self) -> None:
        self._tail: Job | None = None
        self._replaceable: Job | None = None
        self._failed: list[SaveHandle] = []

    @property
    def busy(self) -> bool:
        """Whether a save is under way or waits for its turn."""
        return self._tail is not None and self._tail.task is not None and not self._tail.task.done()

    def submit(self, job: Job, *, coalesce: bool = False) -> None:
        """Let a job have its turn after all earlier ones.

        Args:
            job: the job.
            coalesce: take the place of a replaceable job that waits for its turn, if there is one.
        """
        waiting = self._replaceable
        if coalesce and waiting is not None and not waiting.started and not waiting.dropped:
            waiting.dropped = True
            waiting.discard()
            waiting.handle.supersede(job.handle)
            if waiting is self._tail and waiting.task is not None:
                waiting.task.cancel()
                self._tail = waiting.before
        job.before = self._tail if self.busy else None
        self._tail = job
        if job.replaceable:
            self._replaceable = job
        job.task = asyncio.create_task(self._run(job), name=f"save {job.handle.path}")

    async def cancel(self, job: Job) -> None:
        """Cancel a job; return when nothing of it goes on."""
        assert job.task is not None
        if not job.started and not job.dropped:
            job.dropped = True
            job.discard()
            job.handle.fail(CancelledError(f"Saving {job.handle.path!r} was cancelled."))
            return
        job.task.cancel()
        while not job.task.done():
            try:
                await asyncio.wait([job.task])
            except asyncio.CancelledError:  # the caller is being cancelled anyway, and raises it
                continue

    async def drain(self) -> None:
        """Wait until nothing is under way, then raise the error of a save that failed unseen."""
        job = self._tail
        while job is not None:
            job.hurry()
            job = job.before
        while self.busy:
            assert self._tail is not None
            assert self._tail.task is not None
            await asyncio.wait([self._tail.task])
        self.raise_if_failed()

    def raise_if_failed(self) -> None:
        """Raise, once, the error of a save that failed while nobody awaited it."""
        if not self._failed:
            return
        errors = [handle.error for handle in self._failed if handle.error and not handle.awaited]
        self._failed.clear()
        if errors:
            for other in errors[1:]:
                add_note(errors[0], f"A later save failed too: {phrase(other)}")
            raise errors[0]

    async def _run(self, job: Job) -> None:
        try:
            if job.before is not None and job.before.task is not None:
                await asyncio.wait([job.before.task])
            job.before = None
            if job.dropped:
                return
            job.started = True
            path = await job.work()
        except BaseException as error:
            if job.dropped:
                raise
            job.discard()
            if not isinstance(error, Exception):
                job.handle.fail(CancelledError(f"Saving {job.handle.path!r} was cancelled."))
                raise
            job.handle.fail(error)
            if not job.handle.awaited:
                logger.error("Saving checkpoint %s failed: %s", job.handle.path, text_of(error))
                self._failed.append(job.handle)
        else:
            job.handle.settle(path)


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
