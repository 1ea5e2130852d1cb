"""Bounded channels: overflow, versions, and a close that lets sent items through."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

from asyncmon.errors import CancelledError, OutOfRangeError, ResourceExhaustedError
from asyncmon.hooks import StopAtStepHook
from asyncmon.runtime import Channel, Coordinator, MonitoredSession
from asyncmon.testing import (
    ScriptedCreator,
    ScriptedSession,
    assert_nothing_left_behind,
    wait_all_tasks_blocked,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_items_come_in_order_and_a_full_channel_makes_senders_wait() -> None:
    channel: Channel[int] = Channel(2)
    await channel.send(1)
    await channel.send(2)
    sending = asyncio.ensure_future(channel.send(3))
    await wait_all_tasks_blocked()
    assert not sending.done()
    assert [await channel.receive() for _ in range(3)] == [1, 2, 3]
    await sending
    receiving = asyncio.ensure_future(channel.receive())
    await wait_all_tasks_blocked()
    await channel.send(4)
    assert await receiving == 4
    assert repr(channel) == "<Channel 'channel': 0 of 2>"


async def test_a_full_channel_may_drop_its_oldest_item() -> None:
    channel: Channel[int] = Channel(2, "drop_oldest")
    for number in range(5):
        await channel.send(number)
    assert [await channel.receive(), await channel.receive()] == [3, 4]
    statistics = channel.statistics()
    assert (statistics.sent, statistics.received, statistics.dropped) == (5, 2, 3)
    assert (statistics.capacity, statistics.size, statistics.stale) == (2, 0, 0)


async def test_a_full_channel_may_fail() -> None:
    channel: Channel[int] = Channel(1, "error", name="rollouts")
    await channel.send(1)
    with pytest.raises(ResourceExhaustedError, match="Channel 'rollouts' is full: 1 items wait"):
        await channel.send(2)
    blocking: Channel[int] = Channel(1)
    blocking.send_nowait(1)
    with pytest.raises(ResourceExhaustedError):
        blocking.send_nowait(2)


async def test_items_that_are_too_old_are_left_out() -> None:
    channel: Channel[str] = Channel(10, max_staleness=1)
    await channel.send("now")
    await channel.send("old", version=-2)
    await channel.send("made ahead", version=5)
    assert await channel.receive_versioned() == ("now", 0)
    channel.version = 1
    await channel.send("one behind", version=0)
    assert await channel.receive_versioned() == ("made ahead", 5)
    assert await channel.receive() == "one behind"
    assert channel.statistics().stale == 1
    await channel.send("becomes old")
    channel.version = 3
    await channel.send("fresh")
    assert await channel.receive() == "fresh"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"capacity": 0}, "capacity of at least 1, not 0"),
        ({"capacity": 1, "overflow": "drop"}, "not 'drop'"),
        ({"capacity": 1, "max_staleness": -1}, "must not be negative"),
    ],
)
async def test_wrong_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Channel(**arguments)


async def test_a_closed_channel_gives_what_it_has_and_then_ends() -> None:
    channel: Channel[int] = Channel(1)
    await channel.send(1)
    pending = asyncio.ensure_future(channel.send(2))
    await wait_all_tasks_blocked()
    channel.close()
    assert channel.closed
    with pytest.raises(CancelledError, match="Channel 'channel' is closed"):
        await channel.send(3)
    assert [item async for item in channel] == [1, 2]
    await pending
    with pytest.raises(OutOfRangeError):
        await channel.receive()


async def test_cancelling_loses_no_item() -> None:
    channel: Channel[int] = Channel(3)
    receiving = asyncio.ensure_future(channel.receive())
    await wait_all_tasks_blocked()
    channel.send_nowait(1)
    receiving.cancel()
    await asyncio.wait([receiving])
    assert await channel.receive() == 1


async def test_at_the_stop_what_was_sent_goes_all_the_way_through() -> None:
    """Closed in order: the second channel stays open until its sender has drained the first."""
    coord = Coordinator(())
    raw, done = coord.channel(4, name="raw"), coord.channel(4, name="done")
    sent: list[int] = []

    async def produce() -> None:
        while True:
            await raw.send(len(sent))
            sent.append(len(sent))

    async def double() -> None:
        async for number in raw:
            await asyncio.sleep(1)
            await done.send(2 * number)

    async with assert_nothing_left_behind():
        coord.create_task(produce)
        coord.create_task(double)
        got = []
        async for number in done:
            got.append(number)
            if number == 10:
                coord.request_stop()
        await coord.join()
    assert got == [2 * number for number in sent]
    assert len(got) >= 10


async def test_a_sender_ends_without_receivers() -> None:
    """KC-2, KC-4: stop while all parties are blocked; none waits for the grace period."""
    coord = Coordinator(())
    first, second = coord.channel(1), coord.channel(1)

    async def produce() -> None:
        while True:
            await first.send(1)

    async def relay() -> None:
        async for item in first:
            await second.send(item)

    async with assert_nothing_left_behind():
        for worker in (produce, produce, relay):
            coord.create_task(worker)
        assert await second.receive() == 1
        await wait_all_tasks_blocked()
        coord.request_stop()
        await coord.join(stop_grace_period_secs=1000)
    assert asyncio.get_running_loop().time() < 1


async def test_a_channel_made_after_the_stop_is_closed() -> None:
    coord = Coordinator()
    coord.request_stop()
    channel = coord.channel(1)
    await asyncio.sleep(0.1)
    assert channel.closed
    await coord.join()


@pytest.mark.parametrize("seed", range(5))
async def test_thirty_two_workers_that_fail_at_random_leave_no_orphan(seed: int) -> None:
    dice, coord = random.Random(seed), Coordinator()
    channel = coord.channel(8, max_staleness=2)
    attempts = 0

    async def attempt(number: int) -> None:
        nonlocal attempts
        attempts += 1
        while True:
            await asyncio.sleep(dice.random())
            if dice.random() < 0.05:
                raise OSError(f"worker {number} broke")
            await channel.send((number, channel.version), version=channel.version)

    async def work(number: int) -> None:
        while not coord.should_stop():
            with contextlib.suppress(OSError):
                await attempt(number)

    async with assert_nothing_left_behind():
        for number in range(32):
            coord.create_task(work, number)
        async for _number, version in channel:
            assert channel.version - version <= 2
            channel.version += 1
            if channel.version == 500:
                coord.request_stop()
                break
        await coord.join()
    assert attempts > 32
    assert coord.error is None


async def test_each_stop_closes_the_channels_made_since_the_one_before() -> None:
    coord = Coordinator()
    for _ in range(3):
        channel = coord.channel(1)

        async def work(channel: Channel[int] = channel) -> None:
            for number in range(5):
                await channel.send(number)
            coord.request_stop()

        coord.create_task(work)
        assert [number async for number in channel] == [0, 1, 2, 3, 4]
        await coord.join()
        assert channel.closed
        coord.clear_stop()


async def test_a_loop_over_a_channel_ends_at_the_last_step_though_items_are_left() -> None:
    """The example in the docstring, with a producer that is faster than the steps."""
    hooks = [StopAtStepHook(last_step=5)]
    async with MonitoredSession(ScriptedCreator(ScriptedSession(values={"x": 1})), hooks) as sess:
        assert sess.coord is not None
        channel = sess.coord.channel(64, max_staleness=4)

        async def worker() -> None:
            while True:
                await channel.send(1, version=channel.version)

        sess.coord.create_task(worker)
        async for _ in sess.iterate(channel):
            await sess.run("x")
            channel.version += 1
    assert channel.version == 5
    assert channel.statistics().size > 0


async def test_a_receiver_that_is_cancelled_leaves_its_item_to_the_next_one() -> None:
    channel: Channel[int] = Channel(3)
    first, second = (asyncio.ensure_future(channel.receive()) for _ in range(2))
    await wait_all_tasks_blocked()
    channel.send_nowait(1)
    first.cancel()
    assert await second == 1


async def test_senders_that_wait_are_served_in_order_and_may_be_cancelled() -> None:
    channel: Channel[int] = Channel(1)
    channel.send_nowait(0)
    sending = [asyncio.ensure_future(channel.send(number)) for number in (1, 2, 3)]
    await wait_all_tasks_blocked()
    assert await channel.receive() == 0
    sending[0].cancel()
    await wait_all_tasks_blocked()
    assert [await channel.receive() for _ in range(2)] == [2, 3]
    channel.close()
    with pytest.raises(OutOfRangeError):
        await channel.receive()


async def test_a_close_ends_all_receivers_that_wait() -> None:
    channel: Channel[int] = Channel(1)
    waiting = [asyncio.ensure_future(channel.receive()) for _ in range(3)]
    await wait_all_tasks_blocked()
    channel.close()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [OutOfRangeError] * 3


async def test_closed_session_refuses_a_pending_send_though_another_task_receives() -> None:
    go_on = asyncio.Event()

    async def receive(channel: Channel[int]) -> None:
        await channel.receive()
        await go_on.wait()

    async with MonitoredSession(ScriptedCreator(ScriptedSession([1]))) as sess:
        assert sess.coord is not None
        channel: Channel[int] = sess.coord.channel(1)
        receiving = asyncio.create_task(receive(channel))
        await channel.send(1)
        await wait_all_tasks_blocked()
        await channel.send(2)
        pending = asyncio.create_task(channel.send(3))
        await wait_all_tasks_blocked()
    with pytest.raises(CancelledError):
        await pending
    go_on.set()
    await receiving
