"""Kernels on several threads: the thread team of a session helps the thread of a run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from time import perf_counter, thread_time

import numpy as np

from asyncmon.graph.numerics.blas import single_threaded_blas
from asyncmon.system.daemon_executor import DaemonExecutor
from asyncmon.system.portable import cores

CORES = cores()
"""The number of cores that this process may use."""


class Team:
    """Daemon threads, started on demand. They end at :meth:`close`, or with this object.

    Args:
        size: the number of threads.
        name: that of the threads.
    """

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self._threads = DaemonExecutor(name, size)
        self._mutex = threading.Lock()

    def run_all(self, calls: Iterable[Callable[[], object]]) -> float:
        """Make each call once, in this thread and in idle threads of the team.

        Does not wait for threads that are busy with other calls.

        Returns:
            The CPU seconds used by threads of the team.

        Raises:
            BaseException: the first error of a call; the remaining calls are not made.
        """
        left, errors, seconds = deque(calls), list[BaseException](), 0.0
        helpers = list[Future[float]]()
        with self._mutex, suppress(RuntimeError):  # closed, or the system has no more threads
            count = min(self.size, len(left) - 1)
            helpers.extend(self._threads.submit(_help, left, errors) for _ in range(count))
        _make(left, errors)
        for helper in helpers:
            if not helper.cancel():
                seconds += helper.result()
        try:
            if errors:
                raise errors[0]
        finally:
            errors.clear()  # they refer to this frame
        return seconds

    def close(self) -> None:
        """End the threads after their current calls. A second call does nothing."""
        self._threads.shutdown()


def _make(calls: deque[Callable[[], object]], errors: list[BaseException]) -> None:
    """Make calls until none is left. An error removes the others."""
    try:
        while True:
            try:
                call = calls.popleft()
            except IndexError:
                return
            call()
    except BaseException as error:  # raised by run_all
        errors.append(error)
        calls.clear()


@np.errstate(all="ignore")
def _help(calls: deque[Callable[[], object]], errors: list[BaseException]) -> float:
    start = thread_time()
    _make(calls, errors)
    return thread_time() - start


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


def wall_clock() -> float:
    """Return wall seconds plus the CPU seconds of the team."""
    return perf_counter() + team_seconds()


def thread_clock() -> float:
    """Return the CPU seconds of this thread, which exclude waits for the interpreter lock."""
    return thread_time() + team_seconds()


@contextmanager
def split_products() -> Iterator[None]:
    """Split the products that this thread computes inside ``with``, with BLAS single-threaded."""
    # The plan of a run and the shapes of its feeds decide it, not the thread that runs it: the parts of
    # a product may differ from the whole in the last bit.
    before, _local.splitting = _local.splitting, True
    try:
        with single_threaded_blas():
            yield
    finally:
        _local.splitting = before


def is_splitting() -> bool:
    """Return whether this thread splits large products."""
    return _local.splitting
