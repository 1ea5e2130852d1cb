"""A task that calls a function at a fixed rate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Self, final

from asyncmon.runtime.coordinator import Coordinator
from asyncmon.system import clock
from asyncmon.system.error_text import add_note, phrase
from asyncmon.system.functions import qualified_name, settled

logger = logging.getLogger(__name__)


class LooperTask:
    """Call a function at a fixed interval until the coordinator stops. TF1: ``LooperThread``.

    The first call comes at once, the others at a fixed rate on the loop's clock; a call that takes
    longer than the interval skips the ticks it misses. A stop wakes the task at once. Override
    :meth:`start_loop`, :meth:`run_loop` and :meth:`stop_loop`, plain or async, or give a ``target``.

    Args:
        coord: the coordinator of the task; an error in the loop requests its stop.
        timer_interval_secs: the interval in seconds. None or 0: back to back.
        target: the function, plain or ``async def``.
        args: positional arguments of ``target``.
        kwargs: keyword arguments of ``target``.

    Raises:
        ValueError: ``coord`` is no coordinator, or arguments come without a target.

    Example::

        LooperTask.loop(coord, 60, target=print_loss, args=(sess,))
    """

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., Awaitable[Any] | Any] | None = None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(coord, Coordinator):
            raise ValueError(f"'coord' argument must be a Coordinator: {coord!r}")
        if target is None and (args or kwargs):
            raise ValueError("'args' and 'kwargs' argument require that you also pass 'target'")
        self._coord = coord
        if timer_interval_secs is not None:
            clock.seconds("timer_interval_secs", timer_interval_secs)
        self._secs = timer_interval_secs
        self._target = target
        self._args = tuple(args or ())
        self._kwargs = dict(kwargs or {})
        self.task: asyncio.Task[Any] | None = None
        """The running task, or None before :meth:`start`."""

    @classmethod
    def loop(
        cls,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., Awaitable[Any] | Any],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make a looper and start it. TF1: ``LooperThread.loop``."""
        looper = cls(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    @final
    def start(self) -> None:
        """Start the task.

        Raises:
            RuntimeError: it was started before.
        """
        if self.task is not None:
            raise RuntimeError("A LooperTask can be started only once.")
        name = type(self).__name__ if self._target is None else qualified_name(self._target)
        self.task = self._coord.create_task(self._run, name=f"LooperTask-{name}")

    def is_alive(self) -> bool:
        """Return whether it was started and has not ended. TF1: as threads have."""
        return self.task is not None and not self.task.done()

    async def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the task, or for ``timeout`` seconds. TF1: as threads have.

        An error of the task is not raised here, but by ``await coord.join()``.
        """
        if self.task is not None:
            await asyncio.wait([self.task], timeout=timeout)

    async def start_loop(self) -> None:
        """Start the loop: called once, before the first tick."""

    async def run_loop(self) -> None:
        """Make one call: called at each tick. The default calls the target."""
        if self._target is not None:
            await settled(self._target(*self._args, **self._kwargs))

    async def stop_loop(self) -> None:
        """Stop the loop: called once, at the end, also after an error or a cancellation."""

    async def _run(self) -> None:
        try:
            await settled(self.start_loop())
            async for _ in self._coord.every(self._secs, immediately=True):
                await settled(self.run_loop())
        except BaseException as error:
            try:
                await settled(self.stop_loop())
            except Exception as later:
                logger.exception("The stop_loop of %r failed.", self)
                add_note(error, f"Then stop_loop failed: {phrase(later)}")
            raise
        await settled(self.stop_loop())
