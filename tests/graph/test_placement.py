"""Which processor a thread runs on, and who is kept off it."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from asyncmon.graph.crew import Crew
from asyncmon.graph.placement import keep_off, processor

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system does not let threads be placed"
)


@contextmanager
def sleeper() -> Iterator[int]:
    """Yield the native id of a thread that waits."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    assert thread.native_id is not None
    try:
        yield thread.native_id
    finally:
        over.set()
        thread.join(10)


@contextmanager
def only_on(number: int) -> Iterator[None]:
    """Have this thread run on one processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {number})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def test_a_thread_knows_where_it_runs() -> None:
    for number in sorted(os.sched_getaffinity(0)):
        with only_on(number):
            assert processor() == number


def test_others_are_kept_off_and_the_asker_is_not() -> None:
    mine = os.sched_getaffinity(0)
    with sleeper() as thread:
        for number in sorted(mine):
            keep_off(number, [thread])
            assert os.sched_getaffinity(thread) == (mine - {number} or mine)
    assert os.sched_getaffinity(0) == mine


def test_with_one_processor_nothing_changes() -> None:
    with sleeper() as thread, only_on(number := min(os.sched_getaffinity(0))):
        before = os.sched_getaffinity(thread)
        keep_off(number, [thread])
        assert os.sched_getaffinity(thread) == before


def test_a_thread_that_has_ended_does_no_harm() -> None:
    with sleeper() as thread:
        pass
    mine = os.sched_getaffinity(0)
    keep_off(min(mine), [thread, -1])
    assert os.sched_getaffinity(0) == mine


@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: [])(0)) < 2, reason="one processor")
def test_a_helper_may_run_anywhere_but_where_it_is_called_from() -> None:
    crew = Crew(1, "placed")
    mine = os.sched_getaffinity(0)
    for _ in range(20):
        both = threading.Barrier(2, timeout=10)
        found: list[set[int]] = []

        def call(both: threading.Barrier = both, found: list[set[int]] = found) -> None:
            both.wait()
            if threading.current_thread().name.startswith("placed"):
                found.append(os.sched_getaffinity(0))

        crew.share(deque([call, call]))
        (allowed,) = found
        assert allowed < mine
        assert len(allowed) == len(mine) - 1
    assert os.sched_getaffinity(0) == mine
    crew.close()
