"""A thread team makes each call once and waits for no thread that is busy elsewhere."""

from __future__ import annotations

import gc
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

from asyncmon.graph.numerics.parallel import Team


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def nothing() -> None:
    pass


def test_every_call_is_made_once() -> None:
    team = Team(3, "three")
    for count in (0, 1, 2, 50):
        for _ in range(50):
            done: list[int] = []
            team.run_all([partial(done.append, i) for i in range(count)])
            assert sorted(done) == list(range(count))
    team.close()


@pytest.mark.parametrize("close", [True, False])
def test_threads_are_started_for_work_and_end_when_it_is_closed_or_forgotten(close: bool) -> None:
    team = Team(3, "going")
    team.run_all([nothing])
    assert not named("going")
    team.run_all([nothing] * 3)
    threads = named("going")
    assert len(threads) == 2
    if close:
        team.close()
        team.close()
    del team
    gc.collect()
    for thread in threads:
        thread.join(10)
    assert not named("going")


def test_a_busy_thread_is_not_waited_for() -> None:
    team = Team(1, "busy")
    both, go_on = threading.Barrier(3, timeout=10), threading.Event()

    def wait() -> None:
        both.wait()
        assert go_on.wait(10)

    leader = threading.Thread(target=team.run_all, args=([wait, wait],))
    leader.start()
    both.wait()  # the leader and the only helper are inside
    done: list[int] = []
    team.run_all([partial(done.append, i) for i in range(10)])
    assert done == list(range(10))
    go_on.set()
    leader.join(10)
    team.close()


@pytest.mark.parametrize("failing", ["MainThread", "fail"])
def test_an_error_in_any_thread_is_raised_in_the_calling_one(failing: str) -> None:
    team = Team(1, "fail")
    both = threading.Barrier(2, timeout=10)  # so that each of them takes a call
    made: list[str] = []

    def call() -> None:
        made.append(threading.current_thread().name)
        both.wait()
        if threading.current_thread().name == failing:
            raise ValueError(failing)

    with pytest.raises(ValueError, match=failing):
        team.run_all([call, call])
    assert sorted(made) == ["MainThread", "fail"]
    team.close()


def test_a_team_continues_after_an_error() -> None:
    team = Team(1, "on")
    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            team.run_all([nothing, lambda: 1 // 0, nothing, nothing])
        done: list[int] = []
        team.run_all([partial(done.append, i) for i in range(5)])
        assert sorted(done) == list(range(5))
    team.close()


def test_warnings_are_off_in_helpers() -> None:
    team = Team(1, "quiet")
    both = threading.Barrier(2, timeout=10)
    states: list[Any] = []

    def look() -> None:
        both.wait()
        states.append((threading.current_thread().name, np.geterr()["divide"]))

    team.run_all([look, look])
    assert dict(states)["quiet"] == "ignore"
    team.close()


def test_several_threads_use_one_team() -> None:
    team = Team(2, "many")
    totals: list[int] = []

    def lead() -> None:
        for _ in range(100):
            done: list[int] = []
            team.run_all([partial(done.append, i) for i in range(4)])
            totals.append(sum(done))

    threads = [threading.Thread(target=lead) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert totals == [6] * 300
    team.close()


def test_where_no_thread_can_be_started_there_is_less_help(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    team, done = Team(3, "none"), list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        team.run_all([partial(done.append, i) for i in range(4)])
    assert done == [0, 1, 2, 3]
    team.run_all([nothing] * 4)
    assert len(named("none")) == 3
    team.close()
