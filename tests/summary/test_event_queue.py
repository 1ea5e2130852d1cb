"""The queue: what it keeps and what it drops when the disk is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from asyncmon.summary.event_queue import EventQueue, Policy, as_is

if TYPE_CHECKING:
    from collections.abc import Hashable


def filled(
    policy: Policy, tags: list[Hashable | None], *, busy: bool = True, bound: int = 2
) -> EventQueue:
    queue = EventQueue(policy, bound)
    queue.busy = busy
    for step, tag in enumerate(tags):
        queue.put((0.0, step, tag, b"", as_is))
    return queue


def taken(queue: EventQueue) -> list[tuple[Any, int]]:
    return [(entry[2], entry[1]) for entry in queue.take()]


@pytest.mark.parametrize("policy", ["drop_oldest", "coalesce"])
def test_nothing_is_dropped_while_the_disk_is_idle(policy: Policy) -> None:
    queue = filled(policy, ["a", "a", "a", "a"], busy=False)
    assert (len(queue), queue.dropped) == (4, 0)


def test_block_keeps_all() -> None:
    queue = filled("block", ["a", "a", "a"])
    assert taken(queue) == [("a", 0), ("a", 1), ("a", 2)]
    assert queue.take() == []


def test_drop_oldest_drops_the_oldest_value() -> None:
    queue = filled("drop_oldest", [None, "a", "b", "c"])
    assert taken(queue) == [(None, 0), ("c", 3)]
    assert queue.dropped == 2


def test_what_must_be_kept_is_kept_beyond_the_bound() -> None:
    queue = filled("drop_oldest", [None, None, None])
    assert (len(queue), queue.dropped) == (3, 0)
    queue = filled("coalesce", ["a", "b", None])
    assert (len(queue), queue.dropped) == (3, 0)


def test_coalesce_replaces_the_same_tags_only() -> None:
    queue = filled("coalesce", ["a", ("a", "b"), "b", "a", ("a", "b")])
    assert taken(queue) == [("b", 2), ("a", 3), (("a", "b"), 4)]
    assert queue.dropped == 2


def test_put_says_how_many_wait() -> None:
    queue = EventQueue("block", 1)
    assert [queue.put((0.0, 0, "a", b"", as_is)) for _ in range(3)] == [1, 2, 3]


def test_block_is_bounded_on_a_disk_that_stays_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncmon.summary.event_queue.MOST_PENDING", 3)
    queue = filled("block", [None, "a", "b", "c", "d"])
    assert taken(queue) == [(None, 0), ("c", 3), ("d", 4)]
    assert queue.dropped == 2
