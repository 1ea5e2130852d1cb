"""Kernels on several threads: those of the session's team, used by the thread of a run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from asyncmon.graph.numerics.blas import single_threaded_blas
from asyncmon.graph.numerics.team import Team

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""How many cores this process may use."""


class _Local(threading.local):
    team: Team | None = None
    team_seconds = 0.0
    splitting = False


_local = _Local()


def parallel_for(calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls, each once, in this thread and in the threads of its team.

    The calls must not depend on their order, and should release the interpreter's lock for most of
    their time.
    """
    team = _local.team
    if team is None:
        for call in calls:
            call()
    else:
        _local.team_seconds += team.run_all(calls)


@contextmanager
def using_team(team: Team | None) -> Iterator[None]:
    """Let kernels that this thread runs inside ``with`` use a team."""
    before = _local.team
    _local.team, _local.team_seconds = team, 0.0
    try:
        yield
    finally:
        _local.team, _local.team_seconds = before, 0.0


def team_seconds() -> float:
    """Return the seconds that the team has computed for this thread inside ``using_team``."""
    return _local.team_seconds


@contextmanager
def split_products() -> Iterator[None]:
    """Let kernels that this thread runs inside ``with`` split products, with BLAS single-threaded.

    A run decides it by its plan and the shapes of its feeds, not by where it runs: the parts of a
    product may differ from the whole in the last bit.
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
