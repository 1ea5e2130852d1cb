"""Calls of blocking functions: inline where they are short by measurement, else in a worker thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from asyncmon.errors import FailedPreconditionError
from asyncmon.session_config import SessionConfig
from asyncmon.system.cancellation import completed, outlast
from asyncmon.system.cost import CostModel
from asyncmon.system.session_threads import SessionThreads

T = TypeVar("T")

_JOIN_SECS = 0.2


class Workers:
    """The threads of one session; none is started before it is needed.

    Args:
        config: its ``inline_ms`` is the limit; its ``workers`` compute what changes no state.
    """

    def __init__(self, config: SessionConfig | None) -> None:
        self.config = config or SessionConfig()
        self.limit = self.config.inline_ms / 1000
        """Seconds; a function that takes less on average is called inline."""
        self._threads: SessionThreads | None = None
        self._used: set[threading.Thread] = set()

    def is_inline(self, cost: CostModel, thread: bool | None = None) -> bool:
        """Return whether :meth:`call` would call a function in the caller's thread."""
        return not thread and (thread is False or cost.is_short(self.limit))

    async def call(
        self, fn: Callable[[], T], cost: CostModel, thread: bool | None = None, *, step: bool = True
    ) -> T:
        """Call a function, and take its time into account.

        A caller that is cancelled waits for the end of a call in a thread, then is cancelled.

        Args:
            fn: to be called.
            cost: the average of the calls before.
            thread: True or False to decide regardless of the average.
            step: whether the call is in the one thread of all steps, or beside it.
        """
        if self.is_inline(cost, thread):
            return timed(fn, cost, self.limit)
        if self._threads is None:
            workers = self.config.inter_op_parallelism_threads or self.config.workers
            self._threads = SessionThreads(workers, FailedPreconditionError)
        future = self._threads.submit(partial(self._in_thread, fn, cost), step=step)
        try:
            return await completed(future)
        finally:
            del future  # its error refers to this frame by now

    def _in_thread(self, fn: Callable[[], T], cost: CostModel) -> T:
        self._used.add(threading.current_thread())
        return timed(fn, cost, self.limit)

    def computing(self) -> tuple[int, ...]:
        """Return the threads that execute a call now, by their idents."""
        return () if self._threads is None else self._threads.computing()

    def abandon(self) -> None:
        """Cancel the calls in threads, which no thread is interrupted by. No further step is called."""
        if self._threads is not None:
            self._threads.abandon()

    @property
    def abandoned(self) -> bool:
        """Whether a step was abandoned in its thread."""
        return self._threads is not None and self._threads.abandoned

    async def close(self) -> None:
        """Wait for the calls in threads, also while cancelled, and end the threads."""
        cancelled, threads = None, self._threads
        if threads is not None:
            for future in threads.running:
                cancelled = await outlast(future) or cancelled
            threads.close()
            self._threads = None
            for thread in self._used:  # idle; one that ends beside the interpreter may crash in C++
                if thread.ident not in threads.computing():
                    thread.join(_JOIN_SECS)
            self._used.clear()
        try:
            if cancelled is not None:
                raise cancelled
        finally:
            del cancelled


def timed(fn: Callable[[], T], cost: CostModel, limit: float) -> T:
    """Call a function, and observe its time: all of it, for it may block without computing."""
    start = time.perf_counter()
    result = fn()
    cost.observe(time.perf_counter() - start, limit)
    return result
