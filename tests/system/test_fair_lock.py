from __future__ import annotations

import asyncio

import pytest

from asyncmon.system.fair_lock import FairLock

pytestmark = pytest.mark.asyncio


async def test_turns_come_in_order() -> None:
    lock = FairLock()
    turns = [lock.ask() for _ in range(3)]
    assert [turn.done() for turn in turns] == [True, False, False]
    lock.release()
    assert [turn.done() for turn in turns] == [True, True, False]
    assert lock.held
    lock.release()
    lock.release()
    assert not lock.held


async def test_a_withdrawn_request_is_passed_over() -> None:
    lock = FairLock()
    lock.ask()
    second, third = lock.ask(), lock.ask()
    lock.withdraw(second)
    lock.release()
    assert third.done()
    assert lock.held


async def test_a_withdrawal_with_the_lock_passes_it_on() -> None:
    lock = FairLock()
    lock.ask()
    second, third = lock.ask(), lock.ask()
    lock.release()
    lock.withdraw(second)  # it had just come
    assert third.done()
    lock.withdraw(third)
    assert not lock.held


async def test_a_cancelled_waiter_is_passed_over() -> None:
    lock = FairLock()
    await lock.wait()
    waiting = [asyncio.create_task(lock.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    lock.release()
    waiting[1].cancel()  # its turn had just come
    await asyncio.wait(waiting)
    assert [task.cancelled() for task in waiting] == [True, True, False]
    assert lock.held
    lock.release()
    assert not lock.held


async def test_a_place_that_was_requested_is_awaited_and_the_block_releases() -> None:
    lock = FairLock()
    async with lock:
        first, second = lock.ask(), lock.ask()
        waiting = [asyncio.create_task(lock.wait(place)) for place in (first, second)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
    await waiting[1]
    assert lock.held
    lock.release()
    assert not lock.held
