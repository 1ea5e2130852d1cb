"""A thread team: threads that take part in what one thread computes."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from time import thread_time

import numpy as np


class Team:
    """Daemon threads, started when they are needed. They end at :meth:`close`, or with this object.

    Args:
        size: how many.
        name: the prefix of their names.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._batches: SimpleQueue[_Batch | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._started = 0
        self._finalizer = weakref.finalize(self, _dismiss, self._batches, size)
        self._finalizer.atexit = False

    def run_all(self, calls: Iterable[Callable[[], object]]) -> float:
        """Make all calls, each once, in this thread and in idle threads of the team.

        Threads that are busy elsewhere are not waited for.

        Returns:
            The seconds that threads of the team computed.

        Raises:
            BaseException: the first error of a call; the calls that are left are not made.
        """
        batch = _Batch(calls)
        helpers = min(self._size, len(batch.calls) - 1)
        if helpers > self._started:
            self._start(helpers)
        for _ in range(min(helpers, self._started)):
            self._batches.put(batch)
        batch.run_here()
        return batch.seconds

    def close(self) -> None:
        """Let the threads end. A second call does nothing."""
        self._finalizer()

    def _start(self, count: int) -> None:
        with self._mutex:
            while self._started < count:
                name = f"{self._name}_{self._started}"
                thread = threading.Thread(target=_help, args=(self._batches,), name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system has no more threads
                    return
                self._started += 1


class _Batch:
    """Calls to make, and how many threads of the team are making them."""

    def __init__(self, calls: Iterable[Callable[[], object]]) -> None:
        self.calls = deque(calls)
        self.seconds = 0.0
        self._changed = threading.Condition(threading.Lock())
        self._helping = 0
        self._closed = False
        self._error: BaseException | None = None

    def run_here(self) -> None:
        """Make calls until none is left, then wait for the threads that are still making one."""
        self._work()
        with self._changed:
            self._closed = True
            while self._helping:
                self._changed.wait()
        if self._error is not None:
            raise self._error

    def join(self) -> None:
        """Make calls in a thread of the team, unless the batch is done."""
        with self._changed:
            if self._closed:
                return
            self._helping += 1
        start = thread_time()
        self._work()
        with self._changed:
            self.seconds += thread_time() - start
            self._helping -= 1
            self._changed.notify()

    def _work(self) -> None:
        calls = self.calls
        try:
            while True:
                try:
                    call = calls.popleft()
                except IndexError:
                    return
                call()
        except BaseException as error:  # raised by run_here
            self._error = self._error or error
            calls.clear()


@np.errstate(all="ignore")
def _help(batches: SimpleQueue[_Batch | None]) -> None:
    while (batch := batches.get()) is not None:
        batch.join()
        del batch  # and the arrays with it


def _dismiss(batches: SimpleQueue[_Batch | None], count: int) -> None:
    for _ in range(count):
        batches.put(None)
