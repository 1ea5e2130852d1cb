"""Kernels on several threads: the thread team of a session helps the thread of a run."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from time import thread_time

import numpy as np

from asyncmon.graph.numerics.blas import single_threaded_blas

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""The number of cores that this process may use."""


class Team:
    """Daemon threads, started on demand. They end at :meth:`close`, or with this object.

    Args:
        size: the number of threads.
        name: the prefix of their names.
    """

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self._name = name
        self._batches: SimpleQueue[_Batch | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._started = 0
        self._finalizer = weakref.finalize(self, _dismiss, self._batches, size)
        self._finalizer.atexit = False

    def run_all(self, calls: Iterable[Callable[[], object]]) -> float:
        """Make each call once, in this thread and in idle threads of the team.

        Does not wait for threads that are busy with other calls.

        Returns:
            The CPU seconds used by threads of the team.

        Raises:
            BaseException: the first error of a call; the remaining calls are not made.
        """
        batch = _Batch(calls)
        helpers = min(self.size, len(batch.calls) - 1)
        if helpers > self._started:
            self._start(helpers)
        for _ in range(min(helpers, self._started)):
            self._batches.put(batch)
        batch.run_here()
        return batch.seconds

    def close(self) -> None:
        """End the threads after their current calls. A second call does nothing."""
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
    """Calls to make, and the number of team threads that are making them."""

    def __init__(self, calls: Iterable[Callable[[], object]]) -> None:
        self.calls = deque(calls)
        self.seconds = 0.0
        self._changed = threading.Condition(threading.Lock())
        self._helping = 0
        self._closed = False
        self._error: BaseException | None = None

    def run_here(self) -> None:
        """Make calls until none is left, then wait for the threads that are still in one."""
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


# --- the team of the current thread -----------------------------------------------------------------
class _Local(threading.local):
    team: Team | None = None
    team_seconds = 0.0
    splitting = False


_local = _Local()


def parallel_for(calls: Iterable[Callable[[], object]]) -> None:
    """Make each call once, in this thread and in the threads of its team.

    The calls must not depend on their order, and should release the GIL for most of their time.
    """
    team = _local.team
    if team is None:
        for call in calls:
            call()
    else:
        _local.team_seconds += team.run_all(calls)


@contextmanager
def using_team(team: Team | None) -> Iterator[None]:
    """Set the team of kernels that this thread runs inside ``with``."""
    before = _local.team
    _local.team, _local.team_seconds = team, 0.0
    try:
        yield
    finally:
        _local.team, _local.team_seconds = before, 0.0


def team_seconds() -> float:
    """Return the CPU seconds that the team spent for this thread inside ``using_team``."""
    return _local.team_seconds


@contextmanager
def split_products() -> Iterator[None]:
    """Split the products that this thread computes inside ``with``, with BLAS single-threaded.

    The plan of a run and the shapes of its feeds decide it, not the thread that runs it: the parts of
    a product may differ from the whole in the last bit.
    """
    before = _local.splitting
    _local.splitting = True
    try:
        with single_threaded_blas():
            yield
    finally:
        _local.splitting = before


def is_splitting() -> bool:
    """Return whether this thread splits large products."""
    return _local.splitting
