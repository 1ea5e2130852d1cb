"""iterate: through a source until its end or a stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from asyncmon.errors import AbortedError, OutOfRangeError
from asyncmon.testing import wait_all_tasks_blocked
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Source:
    def __init__(self, items: int, then: str = "end") -> None:
        self.items, self.then, self.closed = items, then, False

    async def generate(self) -> AsyncIterator[float]:
        try:
            for item in range(self.items):
                yield float(item)
            if self.then == "wait":
                await asyncio.Event().wait()
            if self.then == "raise":
                raise OutOfRangeError("through")
        finally:
            self.closed = True


async def test_a_plain_for_says_what_to_write(world: World) -> None:
    async with world.session() as sess:
        async for epoch in sess.epochs([1.0], 1):
            for wrong in (sess.iterate([1.0]), epoch, sess.epochs([1.0], 1, name="other")):
                with pytest.raises(TypeError, match="write `async for`, not `for`"):
                    list(wrong)


async def test_it_ends_with_the_data_sync_or_async(world: World) -> None:
    async with world.session() as sess:
        for source in (
            [1.0, 2.0],
            iter([1.0, 2.0]),
            Source(3).generate(),
            Source(3, "raise").generate(),
        ):
            async for batch in sess.iterate(source):
                await sess.run(world.train, world.feed(batch))
    assert sess.stop_reason == "the body ended"


async def test_it_ends_with_a_stop(world: World) -> None:
    source = Source(100)
    async with world.session() as sess:
        async for batch in sess.iterate(source.generate()):
            await sess.run(world.train, world.feed(batch))
            if sess.global_step == 3:
                sess.request_stop("enough")
        assert sess.global_step == 3
    assert source.closed


@pytest.mark.parametrize("how", ["session", "coordinator", "thread"])
async def test_a_stop_wakes_it_while_it_waits(world: World, how: str) -> None:
    source, batches = Source(2, "wait"), []

    async def consume() -> None:
        async for batch in sess.iterate(source.generate()):
            batches.append(batch)  # noqa: PERF401 -- what the body saw

    async with world.session() as sess:
        task = asyncio.create_task(consume())
        await wait_all_tasks_blocked()
        if how == "session":
            sess.request_stop()
        elif how == "coordinator":
            sess.coord.request_stop()
        else:
            await asyncio.to_thread(sess.request_stop)
        await task
    assert batches == [0.0, 1.0]
    assert source.closed


async def test_a_failure_beside_the_steps_is_raised_there(world: World) -> None:
    async def consume() -> None:
        async for _ in sess.iterate(Source(2, "wait").generate()):
            pass

    sess = await world.session().start()
    task = asyncio.create_task(consume())
    await wait_all_tasks_blocked()
    sess.coord.request_stop(ValueError("beside"))
    with pytest.raises(ValueError, match="beside"):
        await task
    with pytest.raises(ValueError, match="beside"):
        await consume()
    with pytest.raises(ValueError, match="beside"):
        await sess.close()


async def test_a_preemption_beside_the_steps_does_not_end_it(world: World) -> None:
    async with world.session() as sess:
        sess.coord.request_stop(AbortedError("x"))
        assert [batch async for batch in sess.iterate([1.0, 2.0])] == [1.0, 2.0]


async def test_a_source_may_go_through_another_one(world: World) -> None:
    async def doubled() -> AsyncIterator[float]:
        async for batch in sess.iterate(Source(2, "wait").generate()):
            yield 2 * batch

    batches = []

    async def consume() -> None:
        async for batch in sess.iterate(doubled()):
            batches.append(batch)  # noqa: PERF401 -- what the body saw

    async with world.session() as sess:
        task = asyncio.create_task(consume())
        await wait_all_tasks_blocked()
        sess.request_stop()
        await task
    assert batches == [0.0, 2.0]


async def test_other_errors_and_cancellations_pass(world: World) -> None:
    async def failing() -> AsyncIterator[Any]:
        yield 1
        raise ValueError("bad data")

    async with world.session() as sess:
        with pytest.raises(ValueError, match="bad data"):
            [batch async for batch in sess.iterate(failing())]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                [batch async for batch in sess.iterate(Source(1, "wait").generate())]
        with pytest.raises(
            TypeError, match=r"iterate\(\) takes an iterable or an async iterable, got 5"
        ):
            sess.iterate(5)
        with pytest.raises(TypeError, match=r"got <function .*>\. Call it\."):
            sess.iterate(lambda: [1])
