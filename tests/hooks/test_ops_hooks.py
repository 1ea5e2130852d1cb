"""FinalOpsHook and FeedFnHook: HK-FINAL-1, HK-FINAL-2, HK-FEED-1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from asyncmon.errors import OutOfRangeError
from asyncmon.hooks import FeedFnHook, FinalOpsHook
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession
from tests.hooks.conftest import Train

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_the_values_have_the_shape_of_the_fetches_hk_final_1(train: Train) -> None:
    hook = FinalOpsHook({"a": ["loss", ("acc",)]}, {"x": 1})
    assert hook.final_ops_values is None
    session = await train(hook, runs=2, session=ScriptedSession(values={"loss": 0.5, "acc": 0.9}))
    assert hook.final_ops_values == {"a": [0.5, (0.9,)]}
    assert session.feeds[-1] == {"x": 1}


async def test_nothing_is_run_without_ops_hk_final_1(train: Train) -> None:
    hook = FinalOpsHook(None)
    session = await train(hook, runs=2)
    assert len(session.runs) == 2
    assert hook.final_ops_values is None


async def test_nothing_is_run_at_an_error_hk_final_1(train: Train) -> None:
    hook = FinalOpsHook("loss")
    with pytest.raises(KeyError):
        await train(hook, session=ScriptedSession([KeyError("x")]))
    assert hook.final_ops_values is None


async def test_the_values_of_an_earlier_session_are_forgotten_hk_final_1(train: Train) -> None:
    hook = FinalOpsHook("loss")
    await train(hook, runs=1, session=ScriptedSession(values={"loss": 0.5}))
    assert hook.final_ops_values == 0.5
    with pytest.raises(KeyError):
        await train(hook, session=ScriptedSession([KeyError("x")]))
    assert hook.final_ops_values is None


async def test_the_end_of_the_data_is_warned_of_and_raised_hk_final_2(
    train: Train, lines: Callable[[str], list[str]]
) -> None:
    with pytest.raises(OutOfRangeError):
        await train(FinalOpsHook("loss"), runs=2, session=ScriptedSession([None, None]))
    [warning] = lines("ops_hooks")
    assert warning.startswith(
        "An OutOfRangeError or StopIteration exception is raised by the code in FinalOpsHook."
    )


async def test_each_run_is_fed_hk_feed_1(train: Train) -> None:
    numbers = iter(range(10))
    session = await train(FeedFnHook(lambda: {"x": next(numbers)}), runs=3)
    assert session.feeds == [{"x": 0}, {"x": 1}, {"x": 2}]


async def test_the_function_may_be_async_hk_feed_1(train: Train) -> None:
    async def feed() -> dict[str, int]:
        await asyncio.sleep(3)
        return {"x": 1}

    session = await train(FeedFnHook(feed), runs=1)
    assert session.feeds == [{"x": 1}]


async def test_none_feeds_nothing_hk_feed_1(train: Train) -> None:
    session = await train(FeedFnHook(lambda: None), runs=1)
    assert session.feeds == [{}]


@pytest.mark.parametrize("end", [OutOfRangeError("end"), StopIteration(), StopAsyncIteration()])
@pytest.mark.parametrize("is_async", [False, True])
async def test_the_end_of_the_data_ends_training_cleanly_hk_feed_1(
    train: Train, end: Exception, is_async: bool
) -> None:
    left = [{"x": 1}, {"x": 2}]

    def feed() -> Any:
        if not left:
            raise end
        return left.pop()

    async def async_feed() -> Any:
        return feed()  # Python makes a RuntimeError of a StopIteration here

    recorder = RecordingHook()
    session = await train(FeedFnHook(async_feed if is_async else feed), recorder)
    assert session.global_step == 2
    assert "end" in recorder.moments()


async def test_other_errors_of_an_async_feed_function_stay(train: Train) -> None:
    async def feed() -> Any:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await train(FeedFnHook(feed))


async def test_a_key_that_the_caller_feeds_too_is_refused_hk_feed_1() -> None:
    """RA-9, through the hook."""
    creator = ScriptedCreator(ScriptedSession())
    async with MonitoredSession(creator, [FeedFnHook(lambda: {"x": 1})]) as sess:
        with pytest.raises(RuntimeError, match="Same tensor is fed by a SessionRunHook and user"):
            await sess.run("train", {"x": 2})


async def test_a_feed_function_is_callable() -> None:
    with pytest.raises(TypeError, match="feed_fn must be a function"):
        FeedFnHook({"x": 1})  # type: ignore[arg-type]  # refused
