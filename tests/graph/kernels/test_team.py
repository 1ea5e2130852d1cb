"""Threads that help: nothing is done twice, nobody is waited for who has not begun."""

from __future__ import annotations

import gc
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from asyncmon.graph.kernels.team import Crew

if TYPE_CHECKING:
    from collections.abc import Callable


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def nothing() -> None:
    pass


def test_every_call_is_made_once() -> None:
    crew = Crew(3, "three")
    for count in (0, 1, 2, 50):
        for _ in range(50):
            done: list[int] = []
            crew.share(deque([partial(done.append, i) for i in range(count)]))
            assert sorted(done) == list(range(count))
    crew.close()


@pytest.mark.parametrize("close", [True, False])
def test_threads_are_started_for_work_and_end_when_it_is_closed_or_forgotten(close: bool) -> None:
    crew = Crew(3, "going")
    crew.share(deque([nothing]))
    assert not named("going")
    crew.share(deque([nothing] * 3))
    threads = named("going")
    assert len(threads) == 2
    if close:
        crew.close()
        crew.close()
    del crew
    gc.collect()
    for thread in threads:
        thread.join(10)
    assert not named("going")


def test_one_who_is_busy_is_not_waited_for() -> None:
    crew = Crew(1, "busy")
    both, go_on = threading.Barrier(3, timeout=10), threading.Event()

    def wait() -> None:
        both.wait()
        assert go_on.wait(10)

    leader = threading.Thread(target=crew.share, args=(deque([wait, wait]),))
    leader.start()
    both.wait()  # the leader and the only helper are inside
    done: list[int] = []
    crew.share(deque([partial(done.append, i) for i in range(10)]))
    assert done == list(range(10))
    go_on.set()
    leader.join(10)
    crew.close()


@pytest.mark.parametrize("failing", ["MainThread", "fail_0"])
def test_an_error_ends_all_and_is_raised_by_the_one_who_leads(failing: str) -> None:
    crew = Crew(1, "fail")
    both = threading.Barrier(2, timeout=10)  # so that each of them takes a call
    calls: deque[Callable[[], object]] = deque()

    def call() -> None:
        both.wait()
        if threading.current_thread().name == failing:
            raise ValueError(failing)

    calls += [call, call]
    with pytest.raises(ValueError, match=failing):
        crew.share(calls)
    assert not calls
    crew.close()


def test_a_crew_goes_on_after_an_error() -> None:
    crew = Crew(1, "on")
    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            crew.share(deque([nothing, lambda: 1 // 0, nothing, nothing]))
        done: list[int] = []
        crew.share(deque([partial(done.append, i) for i in range(5)]))
        assert sorted(done) == list(range(5))
    crew.close()


def test_warnings_are_off_in_helpers() -> None:
    crew = Crew(1, "quiet")
    both = threading.Barrier(2, timeout=10)
    states: list[Any] = []

    def look() -> None:
        both.wait()
        states.append((threading.current_thread().name, np.geterr()["divide"]))

    crew.share(deque([look, look]))
    assert dict(states)["quiet_0"] == "ignore"
    crew.close()


def test_several_may_lead_at_a_time() -> None:
    crew = Crew(2, "many")
    totals: list[int] = []

    def lead() -> None:
        for _ in range(100):
            done: list[int] = []
            crew.share(deque([partial(done.append, i) for i in range(4)]))
            totals.append(sum(done))

    threads = [threading.Thread(target=lead) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert totals == [6] * 300
    crew.close()


def test_where_no_thread_can_be_started_there_is_less_help(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    crew, done = Crew(3, "none"), list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        crew.share(deque([partial(done.append, i) for i in range(4)]))
    assert done == [0, 1, 2, 3]
    assert crew._shares.empty()
    crew.share(deque([nothing] * 4))
    assert len(named("none")) == 3
    crew.close()
