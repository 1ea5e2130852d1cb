"""Replies of a remote service, several calls of which are under way."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

import asyncmon as am
from asyncmon.errors import UnavailableError
from asyncmon.programs import FunctionProgram, Reply, submitted
from asyncmon.testing import RecordingHook, wait_all_tasks_blocked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Service:
    """A service that takes a second for a call, and any number of them at once."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.calls: list[int] = []
        self.under_way = self.most = 0
        self.fails_at = fails_at

    async def train(self, number: int) -> dict[str, Any]:
        self.calls.append(number)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(2.0 if number % 2 else 1.0)  # a later call may be done first
            if number == self.fails_at:
                self.fails_at = None
                raise UnavailableError("the service is being restarted")
            return {"loss": 10.0 - number}
        finally:
            self.under_way -= 1


def remote_program() -> FunctionProgram:
    program = FunctionProgram({"sum": 0.0})

    @program.step
    async def train(state: dict[str, Any], reply: Reply) -> dict[str, Any]:
        result = await reply
        state["sum"] += result["loss"]
        return result

    return program


def training(hooks: Any = (), directory: Path | None = None) -> Any:
    return am.MonitoredTrainingSession(
        checkpoint_dir=directory, hooks=hooks, program=remote_program(), save_checkpoint_steps=2,
        save_summaries_steps=0, log_step_count_steps=None, signals=None,
    )  # fmt: skip


async def test_hooks_see_all_results_in_order_while_calls_overlap() -> None:
    service, seen = Service(), RecordingHook(fetches="loss")
    began = asyncio.get_running_loop().time()
    async with training([seen]) as sess:
        async for reply in sess.iterate(submitted(range(8), service.train, in_flight=4)):
            await sess.run("train", {"reply": reply})
            assert service.under_way <= 3
        assert sess.global_step == 8
        assert await sess.peek("sum") == sum(10.0 - n for n in range(8))
    assert [values.results for values in seen.values] == [10.0 - n for n in range(8)]
    assert [values.step for values in seen.values] == list(range(1, 9))
    assert service.calls == list(range(8))
    assert service.most == 4
    assert asyncio.get_running_loop().time() - began < 6  # 12 seconds one after another


async def test_a_failed_call_is_made_again_when_the_run_is_repeated(tmp_path: Path) -> None:
    service, seen = Service(fails_at=4), RecordingHook(fetches="loss")
    async with training([seen], tmp_path) as sess:
        async for reply in sess.iterate(submitted(range(8), service.train, in_flight=3)):
            await sess.run("train", {"reply": reply})
        assert sess.global_step == 8
        assert await sess.peek("sum") == sum(10.0 - n for n in range(8))
    assert len(seen.sessions) == 2
    assert service.calls.count(4) == 2


async def test_a_session_that_resumes_submits_what_was_under_way_again(tmp_path: Path) -> None:
    services = [Service(), Service()]
    for service, steps in zip(services, (3, 8), strict=True):
        hooks = [am.StopAtStepHook(last_step=steps)]
        async with training(hooks, tmp_path) as sess:
            async for reply in sess.iterate(submitted(range(8), service.train, in_flight=4)):
                await sess.run("train", {"reply": reply})
            total = await sess.raw_session().run("sum")
    # The sixth was cancelled, before it began or soon after that.
    assert services[0].calls in ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5])
    assert services[0].under_way == 0  # cancelled
    assert services[1].calls == [3, 4, 5, 6, 7]
    assert total == sum(10.0 - n for n in range(8))


async def test_a_cancelled_run_leaves_its_call_under_way() -> None:
    service = Service()
    session = remote_program().create_session()
    replies = aiter(submitted(range(3), service.train, in_flight=2))
    reply = await anext(replies)
    task = asyncio.ensure_future(session.run("train", {"reply": reply}))
    await wait_all_tasks_blocked()
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), session.global_step) == (True, 0)
    assert (await session.run("train", {"reply": reply}))["loss"] == 10.0
    assert service.calls == [0, 1]
    await replies.aclose()
    await asyncio.sleep(0)
    assert service.under_way == 0


async def test_the_position_is_behind_the_last_reply_that_was_given() -> None:
    service = Service()
    source = submitted(range(6), service.train, in_flight=3)
    walk = aiter(source)
    assert (await anext(walk)).item == 0
    before = source.state_dict()
    assert (await anext(walk)).item == 1
    after = source.state_dict()
    assert [reply.item async for reply in _resumed(before)] == [1, 2, 3, 4, 5]
    assert [reply.item async for reply in _resumed(after)] == [2, 3, 4, 5]
    source.load_state_dict(before)
    assert [reply.item async for reply in walk] == [1, 2, 3, 4, 5]
    await walk.aclose()


def _resumed(state: Any) -> Any:
    source = submitted(range(6), Service().train, in_flight=3)
    source.load_state_dict(state)
    return source


async def test_a_walk_that_ends_early_goes_back_to_the_first_call_under_way() -> None:
    service = Service()
    source = submitted(range(4), service.train, in_flight=3)
    walk = aiter(source)
    await anext(walk)
    await walk.aclose()
    assert [reply.item async for reply in source] == [1, 2, 3]


async def test_futures_of_threads_and_what_is_no_awaitable() -> None:
    def in_thread(number: int) -> Future[int]:
        future: Future[int] = Future()
        future.set_result(number + 1)
        return future

    replies = submitted([1, 2], in_thread, in_flight=2)
    assert [await reply async for reply in replies] == [2, 3]
    async for reply in submitted([5], lambda number: number, in_flight=1):
        with pytest.raises(TypeError, match=r"submit must return an awaitable, .* returned 5"):
            await reply
    with pytest.raises(ValueError, match="in_flight must be 1 or more, got 0"):
        submitted([1], in_thread, in_flight=0)
    with pytest.raises(TypeError, match="submit must be a function, got 5"):
        submitted([1], 5, in_flight=1)  # type: ignore[arg-type]  # the mistake under test
