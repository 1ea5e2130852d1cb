"""Threads that help the one that computes a long step."""

from __future__ import annotations

import threading
import weakref
from queue import SimpleQueue
from time import thread_time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

__all__ = ["Crew"]


class Crew:
    """Threads that help others, started when they are needed.

    They end at :meth:`close`, or when this object is gone.

    Args:
        size: how many.
        name: what their names begin with.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._shares: SimpleQueue[_Share | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._started = 0
        self._finalizer = weakref.finalize(self, _dismiss, self._shares, size)
        self._finalizer.atexit = False

    def share(self, calls: deque[Callable[[], object]]) -> float:
        """Make all calls, here and in whichever threads are free, each taking the next one.

        Those who are busy elsewhere are not waited for.

        Returns:
            The seconds that others computed.

        Raises:
            BaseException: a call's, the first one seen; what is left is not called then.
        """
        helpers = min(self._size, len(calls) - 1)
        share = _Share(calls)
        if helpers > self._started:
            self._start(helpers)
        for _ in range(min(helpers, self._started)):
            self._shares.put(share)
        share.lead()
        return share.seconds

    def close(self) -> None:
        """Let the threads end. A second call does nothing."""
        self._finalizer()

    def _start(self, count: int) -> None:
        with self._mutex:
            while self._started < count:
                name = f"{self._name}_{self._started}"
                thread = threading.Thread(target=_help, args=(self._shares,), name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # there are no more to be had: so there is less help
                    return
                self._started += 1


class _Share:
    """Calls to make, and who is making them."""

    __slots__ = ("_calls", "_error", "_gone", "_helping", "_is_over", "_mutex", "seconds")

    def __init__(self, calls: deque[Callable[[], object]]) -> None:
        self._calls = calls
        self._mutex = threading.Lock()
        self._helping = 0
        self._is_over = False
        self._gone: threading.Lock | None = None  # held until the last one who helps is gone
        self._error: BaseException | None = None
        self.seconds = 0.0

    def lead(self) -> None:
        self._work()
        with self._mutex:
            self._is_over = True  # who comes now comes too late
            if self._helping:
                self._gone = threading.Lock()
                self._gone.acquire()
        if self._gone is not None:
            self._gone.acquire()
        if self._error is not None:
            raise self._error

    def help(self) -> None:
        with self._mutex:
            if self._is_over:
                return
            self._helping += 1
        start = thread_time()
        self._work()
        with self._mutex:
            self.seconds += thread_time() - start
            self._helping -= 1
            if not self._helping and self._gone is not None:
                self._gone.release()

    def _work(self) -> None:
        calls = self._calls
        try:
            while True:
                try:
                    call = calls.popleft()
                except IndexError:
                    return
                call()
        except BaseException as error:  # raised by the one who leads
            self._error = self._error or error
            calls.clear()


@np.errstate(all="ignore")
def _help(shares: SimpleQueue[_Share | None]) -> None:
    while (share := shares.get()) is not None:
        share.help()
        del share  # and the arrays with it


def _dismiss(shares: SimpleQueue[_Share | None], count: int) -> None:
    for _ in range(count):
        shares.put(None)
