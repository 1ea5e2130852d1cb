"""Whose turn it is on a loop that several keep busy."""

from __future__ import annotations

import asyncio

import pytest

from asyncmon.system.loop_budget import LoopBudget

pytestmark = pytest.mark.asyncio


async def work(budget: LoopBudget, done: list[int], number: int, until: asyncio.Event) -> None:
    while not until.is_set():
        if budget.spent():
            await budget.pause()
        done.append(number)


async def test_a_loop_has_one_budget() -> None:
    budget = LoopBudget.of_running_loop()
    assert LoopBudget.of_running_loop() is budget
    assert await asyncio.to_thread(asyncio.run, other_budget()) is not budget
    assert LoopBudget.of_running_loop() is budget


async def other_budget() -> LoopBudget:
    return LoopBudget.of_running_loop()


async def test_nothing_is_spent_at_first_and_time_continues_until_the_loop_goes_round() -> None:
    budget = LoopBudget(asyncio.get_running_loop(), 0)
    assert not budget.spent()
    assert budget.spent()
    assert budget.spent()
    await asyncio.sleep(0)
    assert not budget.spent()


async def test_no_task_pauses_within_its_time() -> None:
    budget = LoopBudget(asyncio.get_running_loop(), 3600)
    assert not any(budget.spent() for _ in range(1000))


async def test_working_tasks_take_turns_one_in_each_round() -> None:
    budget, done, over = LoopBudget(asyncio.get_running_loop(), 0), [], asyncio.Event()
    tasks = [asyncio.create_task(work(budget, done, n, over)) for n in range(5)]
    while len(done) < 101:
        before = len(done)
        await asyncio.sleep(0)
        assert len(done) - before <= 1
    over.set()
    await asyncio.gather(*tasks)
    assert done[:101] == [0, *[0, 1, 2, 3, 4] * 20]  # the first one found a loop that had just begun


async def test_cancelled_waiter_does_not_delay_others() -> None:
    budget, done, over = LoopBudget(asyncio.get_running_loop(), 0), [], asyncio.Event()
    tasks = [asyncio.create_task(work(budget, done, n, over)) for n in range(4)]
    for _ in range(20):
        await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    start = len(done)
    for _ in range(20):
        await asyncio.sleep(0)
    assert done[start:].count(1) >= 8
    assert done[start:].count(3) >= 8
    assert set(done[start + 2 :]) == {1, 3}
    over.set()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_resumed_task_has_time_for_a_step() -> None:
    budget = LoopBudget(asyncio.get_running_loop(), 3600)
    budget.seconds = -1.0  # as if everything else took long
    assert not budget.spent()
    assert budget.spent()
    await budget.pause()
    assert not budget.spent()


async def test_many_have_less_time_each() -> None:
    budget = LoopBudget(asyncio.get_running_loop(), 1.0)
    waiting = [asyncio.create_task(budget.pause()) for _ in range(9)]
    await asyncio.sleep(0)
    assert budget.seconds == pytest.approx(0.2)
    await asyncio.gather(*waiting)
    assert budget.seconds == pytest.approx(1.0)


async def test_the_number_of_an_iteration_differs_in_a_later_one() -> None:
    budget = LoopBudget.of_running_loop()
    number = budget.iteration()
    assert budget.iteration() == number
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert budget.iteration() != number
