"""Queues without a graph: the order of requests, and what cancelling undoes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncmon.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from asyncmon.graph.queues.core import QueueCore, Request
from asyncmon.graph.queues.order import ByPriority, FirstInFirstOut, Order, Shuffled
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def queue(capacity: int = 3, minimum: int = 0, order: Order | None = None) -> QueueCore:
    return QueueCore("FIFOQueue 'q'", FirstInFirstOut() if order is None else order, capacity, minimum)


async def put(core: QueueCore, *values: Any) -> None:
    core.commit(await core.put(object(), [(value,) for value in values]))


def now(request: Request) -> Request:
    """Return a request that was granted at once."""
    assert request.future is None
    return request


def withdrawn(core: QueueCore, request: Request) -> bool:
    """Withdraw a request, and return whether it was pending."""
    core.withdraw(request)
    return request.future is not None and not request.future.done()


def values(taken: Request) -> list[Any]:
    return [element[0] for element in taken.elements]


async def take(core: QueueCore, count: int = 1, *, at_most: bool = False) -> list[Any]:
    return values(await core.take(object(), count, at_most=at_most))


async def test_a_put_waits_while_the_queue_is_full_and_a_take_while_it_is_empty() -> None:
    """QU-1."""
    core = queue(2)
    taking = asyncio.ensure_future(take(core))
    await wait_all_tasks_blocked()
    assert not taking.done()
    await put(core, 1, 2)
    assert await taking == [1]
    await put(core, 3)
    putting = asyncio.ensure_future(put(core, 4))
    await wait_all_tasks_blocked()
    assert not putting.done()
    assert await take(core, 2) == [2, 3]
    await putting
    assert core.size() == 1


async def test_requests_are_granted_in_the_order_of_arrival() -> None:
    core = queue(3)
    many = asyncio.ensure_future(take(core, 3))
    await wait_all_tasks_blocked()
    one = asyncio.ensure_future(take(core))
    await wait_all_tasks_blocked()
    for value in range(4):
        await put(core, value)
    assert await many == [0, 1, 2]
    assert await one == [3]


async def test_more_elements_than_fit_are_taken_as_they_come() -> None:
    core = queue(2)
    taking = asyncio.ensure_future(take(core, 5))
    for value in range(5):
        await put(core, value)
    assert await taking == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidArgumentError, match="3 elements can never fit"):
        await core.reserve(None, 3)


async def test_a_cancelled_take_puts_back_what_it_had() -> None:
    core = queue(5)
    await put(core, 1, 2)
    taking = asyncio.ensure_future(take(core, 4))
    await wait_all_tasks_blocked()
    assert core.size() == 0
    taking.cancel()
    await asyncio.wait([taking])
    assert await take(core, 2) == [1, 2]


async def test_a_take_cancelled_after_it_was_granted_puts_back_too() -> None:
    core = queue(5)
    taking = asyncio.ensure_future(take(core))
    await wait_all_tasks_blocked()
    await put(core, 1)
    taking.cancel()
    await asyncio.wait([taking])
    assert await take(core) == [1]


async def test_a_failed_run_puts_its_elements_back_to_the_head() -> None:
    core = queue(5)
    await put(core, 1, 2, 3)
    first = now(core.take("run", 1))
    second = now(core.take("run", 1))
    core.restore(second)
    core.restore(first)
    assert await take(core, 3) == [1, 2, 3]


async def test_a_cancelled_reservation_leaves_no_room_taken() -> None:
    core = queue(2)
    await put(core, 1)
    putting = asyncio.ensure_future(put(core, 2, 3))
    await wait_all_tasks_blocked()
    putting.cancel()
    await asyncio.wait([putting])
    granted = asyncio.ensure_future(core.reserve(None, 1))
    await wait_all_tasks_blocked()
    room = await granted
    assert withdrawn(core, core.reserve(None, 1))
    core.release(room)
    core.release(room)
    now(core.reserve(None, 1))


async def test_what_a_run_puts_is_seen_by_others_at_its_commit_and_by_itself_at_once() -> None:
    core = queue(1)
    room = await core.reserve("mine", 1)
    taking = asyncio.ensure_future(core.take("mine", 1))
    await wait_all_tasks_blocked()
    core.fill(room, [(7,)])
    assert (core.size("mine"), core.size("other")) == (0, 0)
    assert values(await taking) == [7]
    core.commit(room)
    assert core.size() == 0
    room = await core.reserve("mine", 1)
    core.fill(room, [(8,)])
    assert (core.size("mine"), core.size("other")) == (1, 0)
    taken = now(core.take("mine", 1))
    core.restore(taken)  # the run failed: its own elements are removed again
    core.release(room)
    assert core.size() == 0


async def test_after_the_close_nothing_is_put_and_the_rest_can_be_taken() -> None:
    """QU-2, QU-3, QU-4, QU-5."""
    core = queue(3)
    await put(core, 1, 2, 3)
    pending = asyncio.ensure_future(put(core, 4))
    await wait_all_tasks_blocked()
    core.close()
    core.close()
    assert core.closed
    with pytest.raises(CancelledError, match=r"FIFOQueue 'q' is closed\."):
        await put(core, 5)
    assert await take(core, 2) == [1, 2]
    await pending
    with pytest.raises(OutOfRangeError) as raised:
        await take(core, 3)
    assert raised.value.message == (
        "FIFOQueue 'q' is closed and has insufficient elements (requested 3, current size 2)"
    )
    assert await take(core, 3, at_most=True) == [3, 4]
    with pytest.raises(OutOfRangeError, match="requested 1, current size 0"):
        await take(core)
    with pytest.raises(OutOfRangeError, match="requested 3, current size 0"):
        await take(core, 3, at_most=True)


async def test_a_close_ends_pending_takes() -> None:
    core = queue(5)
    await put(core, 1)
    some = asyncio.ensure_future(take(core, 3, at_most=True))
    await wait_all_tasks_blocked()
    all_ = asyncio.ensure_future(take(core, 2))
    await wait_all_tasks_blocked()
    core.close()
    assert await some == [1]
    with pytest.raises(OutOfRangeError):
        await all_


async def test_a_run_that_has_room_may_still_put_after_the_close() -> None:
    core = queue(2)
    room = await core.reserve("producer", 1)
    taking = asyncio.ensure_future(take(core))
    await wait_all_tasks_blocked()
    core.close()
    await wait_all_tasks_blocked()
    assert not taking.done()
    core.fill(room, [(1,)])
    core.commit(room)
    assert await taking == [1]


async def test_a_close_may_cancel_pending_puts() -> None:
    """QU-6."""
    core = queue(1)
    await put(core, 1)
    pending = asyncio.ensure_future(put(core, 2))
    await wait_all_tasks_blocked()
    core.close(cancel_pending_enqueues=True)
    with pytest.raises(CancelledError, match="Enqueue operation was cancelled"):
        await pending
    assert await take(core) == [1]


async def test_the_end_of_the_session_cancels_all_requests() -> None:
    """QU-7."""
    taking = asyncio.ensure_future(take(empty := queue()))
    full = queue(1)
    await put(full, 1)
    putting = asyncio.ensure_future(put(full, 2))
    await wait_all_tasks_blocked()
    empty.session_closed()
    full.session_closed()
    with pytest.raises(CancelledError, match="Dequeue operation was cancelled"):
        await taking
    with pytest.raises(CancelledError, match="Enqueue operation was cancelled"):
        await putting


async def test_a_queue_that_failed_gives_what_it_has_and_then_the_error() -> None:
    core = queue()
    await put(core, 1)
    core.close(error=OSError("the producer broke"))
    core.close(error=OSError("later"))
    assert await take(core) == [1]
    with pytest.raises(OSError, match="the producer broke"):
        await take(core)


async def test_some_elements_stay_in_a_shuffled_queue_until_it_is_closed() -> None:
    core = queue(10, 2, Shuffled(seed=1))
    await put(core, 1, 2, 3)
    assert len(first := await take(core)) == 1
    assert withdrawn(core, core.take(None, 1))
    core.close()
    assert sorted(first + await take(core, 2)) == [1, 2, 3]


async def test_a_shuffled_queue_gives_the_same_order_for_the_same_seed() -> None:
    orders = []
    for seed in (1, 1, 2):
        core = queue(-1, 0, Shuffled(seed))
        await put(core, *range(50))
        orders.append(await take(core, 50))
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(50))


async def test_the_smallest_first_component_leaves_first_and_comes_back_first() -> None:
    core = queue(-1, 0, ByPriority())
    room = await core.reserve(None, 4)
    core.fill(room, [(5, "a"), (1, "b"), (5, "c"), (1, "d")])
    core.commit(room)
    taken = now(core.take(None, 3))
    assert [element[1] for element in taken.elements] == ["b", "d", "a"]
    core.restore(taken)
    again = now(core.take(None, 4))
    assert [element[1] for element in again.elements] == ["b", "d", "a", "c"]


async def test_a_run_that_puts_more_than_fits_does_not_wait_for_its_own_end() -> None:
    core, run = queue(2), object()
    rooms = [await core.put(run, [(0,)]), await core.put(run, [(1,)])]
    third = asyncio.ensure_future(core.put(run, [(2,)]))
    await wait_all_tasks_blocked()
    assert await take(core) == [0]  # put early: nothing else could be taken
    rooms.append(await third)
    assert withdrawn(core, core.take(object(), 1))
    for room in rooms:
        core.commit(room)
    assert await take(core, 2) == [1, 2]
    assert core.size() == 0


async def test_a_run_that_fits_puts_all_or_none_though_it_waits() -> None:
    core, run = queue(2), object()
    await put(core, 0)
    room = await core.put(run, [(1,)])
    second = asyncio.ensure_future(core.put(run, [(2,)]))
    await wait_all_tasks_blocked()
    second.cancel()
    await asyncio.wait([second])
    core.release(room)
    assert await take(core) == [0]
    assert core.size() == 0


async def test_what_was_put_early_stays_when_its_run_fails() -> None:
    core, run = queue(2), object()
    rooms = [await core.put(run, [(i,)]) for i in range(2)]
    third = asyncio.ensure_future(core.put(run, [(2,)]))
    await wait_all_tasks_blocked()
    third.cancel()
    await asyncio.wait([third])
    for room in rooms:
        core.release(room)
    assert core.size() == 1
    assert await take(core) == [0]


async def test_runs_that_wait_for_each_others_room_all_end() -> None:
    core = queue(2)
    runs = {run: [await core.put(run, [(run, 0)])] for run in ("first", "second")}
    waiting = {}
    for run in runs:
        waiting[run] = asyncio.ensure_future(core.put(run, [(run, 1)]))
        await wait_all_tasks_blocked()
    got = await take(core)
    runs["first"].append(await waiting["first"])
    for room in runs["first"]:
        core.commit(room)
    got += await take(core)
    runs["second"].append(await waiting["second"])
    for room in runs["second"]:
        core.commit(room)
    got += await take(core, 2)
    assert got == ["first", "first", "second", "second"]


async def test_elements_that_must_stay_leave_less_room_to_wait_for() -> None:
    core = queue(10, 5, Shuffled(seed=1))
    await put(core, *range(5))
    putting = asyncio.ensure_future(put(core, *range(5, 11)))
    await wait_all_tasks_blocked()
    got = await take(core)
    await putting
    core.close()
    assert sorted(got + await take(core, 10)) == list(range(11))


async def test_what_waits_to_be_put_in_parts_is_put_after_the_close_too() -> None:
    core = queue(2)
    putting = asyncio.ensure_future(put(core, *range(5)))
    await wait_all_tasks_blocked()
    core.close()
    assert await take(core, 5) == list(range(5))
    await putting


async def test_room_requested_ahead_is_not_awaited_where_the_run_would_wait_for_itself() -> None:
    core, run = queue(1), object()
    first = await core.reserve(run, 1)
    second = await core.reserve(run, 1)
    assert (first.count, second.count) == (1, 0)
    putting = asyncio.ensure_future(core.put(run, [(2,)]))  # the second's, which comes first
    await wait_all_tasks_blocked()
    core.fill(first, [(1,)])
    assert await take(core) == [1]
    core.commit(await putting)
    core.commit(first)
    assert await take(core) == [2]
    assert core.size() == 0


async def test_no_elements_are_taken_at_once() -> None:
    core = queue()
    waiting = asyncio.ensure_future(take(core))
    await wait_all_tasks_blocked()
    assert await take(core, 0) == []
    assert await take(core, 0, at_most=True) == []
    await put(core, 1)
    assert await waiting == [1]
