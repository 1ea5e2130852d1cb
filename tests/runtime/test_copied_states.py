"""States of channels and pipelines are copied in threads, as they were when the save was ordered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import numpy as np
import pytest

import asyncmon as am
from asyncmon.checkpoint import Saver, load_checkpoint
from asyncmon.programs import FunctionProgram

pytestmark = pytest.mark.asyncio


def session(directory: Path, *hooks: Any) -> Any:
    program = FunctionProgram({"steps": 0})

    @program.step
    async def use(state: Any, x: Any = None) -> None:
        state["steps"] += 1

    creator = am.ChiefSessionCreator(program=program, checkpoint_dir=directory)
    return am.MonitoredSession(creator, hooks=hooks)


@asynccontextmanager
async def no_free_thread() -> AsyncIterator[None]:
    """Occupy the only thread inside the block."""
    limiter, release = anyio.to_thread.current_default_thread_limiter(), threading.Event()
    before, limiter.total_tokens = limiter.total_tokens, 1
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def occupy() -> None:
        loop.call_soon_threadsafe(begun.set)
        release.wait()

    occupied = asyncio.create_task(anyio.to_thread.run_sync(occupy))
    try:
        await begun.wait()
        yield
    finally:
        release.set()
        await occupied
        limiter.total_tokens = before


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def states(directory: Path) -> dict[str, Any]:
    async with await load_checkpoint(str(directory)) as reader:
        return await reader.states()


async def test_item_is_saved_as_it_was_sent_and_received_after_the_copy(tmp_path: Path) -> None:
    async with session(tmp_path) as sess:
        channel = sess.coord.channel(4, name="items")
        await channel.send({"x": np.ones(1000)})
        async with no_free_thread():
            saving = Saver().start_save(sess, tmp_path / "model.ckpt", 0)
            receiving = asyncio.create_task(channel.receive())
            await turns()
            assert not receiving.done()
        item = await receiving
        item["x"][:] = 0
        await saving
    [[_, _, saved]] = (await states(tmp_path))["channels/items"]["items"]
    assert saved["x"].tolist() == [1] * 1000


async def test_run_ends_after_the_copy_of_the_item_that_it_consumes(tmp_path: Path) -> None:
    """The body reuses the array once its step is done, and a save in the middle of the run has it."""
    saving: list[Any] = []

    class Save(am.SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            saving.append(Saver().start_save(run_context.session, tmp_path / "model.ckpt", 0))

    async with session(tmp_path, Save()) as sess:
        channel = sess.coord.channel(4, name="items")
        await channel.send(np.ones(1000))
        item = await anext(sess.iterate(channel))
        async with no_free_thread():
            running = asyncio.create_task(sess.run("use", {"x": item}))
            await turns()
            assert saving
            assert not running.done()
        await running
        item[:] = 0
        await saving[0]
    [[_, _, saved]] = (await states(tmp_path))["channels/items"]["items"]
    assert saved.tolist() == [1] * 1000


async def test_keys_that_the_body_adds_during_the_copy_are_not_saved(tmp_path: Path) -> None:
    async with session(tmp_path) as sess:
        channel = sess.coord.channel(4, name="items")
        await channel.send({"tokens": [1, 2], "more": [{"a": 1}]})
        item = await anext(sess.iterate(channel))
        async with no_free_thread():
            saving = Saver().start_save(sess, tmp_path / "model.ckpt", 0)
            item["new"] = 1
            item["tokens"].append(3)
            item["more"][0]["b"] = 2
        await saving
    [[_, _, saved]] = (await states(tmp_path))["channels/items"]["items"]
    assert saved == {"tokens": [1, 2], "more": [{"a": 1}]}


async def test_kept_result_is_saved_as_it_was_made_and_taken_after_the_copy(tmp_path: Path) -> None:
    last = asyncio.Event()

    async def make(number: int) -> Any:
        if number == 3:
            last.set()
        return np.full(1000, number)

    async with session(tmp_path) as sess:
        pipeline = sess.produce(range(4), make, workers=1, depth=4, keep="results", max_age=None)
        batches = pipeline.batches(1)
        await anext(batches)
        await sess.run("use")
        await last.wait()
        await turns()
        async with no_free_thread():
            saving = Saver().start_save(sess, tmp_path / "model.ckpt", 1)
            taking = asyncio.create_task(anext(batches))
            await turns()
            assert not taking.done()
        [item] = await taking
        item.value[:] = -1
        await saving
    results = (await states(tmp_path))["pipelines/make"]["results"]
    assert {number: value.max() for number, (_, value) in results.items()} == {"1": 1, "2": 2, "3": 3}


async def test_state_of_an_object_that_is_gone_stays_saved(tmp_path: Path) -> None:
    class Large(am.SessionRunHook):
        def __init__(self) -> None:
            self.x = np.zeros(1000)

        def state_dict(self) -> Any:
            return {"x": self.x}

        def load_state_dict(self, state: Any) -> None:
            self.x = state["x"]

    first = Large()
    first.x[:] = 7
    async with session(tmp_path, first) as sess:
        await Saver().save(sess, tmp_path / "model.ckpt", 0)
    async with session(tmp_path) as sess:
        again = Large()
        async with no_free_thread():
            saving = Saver().start_save(sess, tmp_path / "model.ckpt", 1)
            await turns()
            await sess.attach(again)
            again.x[:] = 1
        await saving
    assert (await states(tmp_path))["hooks/Large"]["x"].tolist() == [7] * 1000


async def test_failed_copy_is_the_error_of_the_save_and_of_no_run(tmp_path: Path) -> None:
    async def make(number: int) -> Any:
        return object()

    async with session(tmp_path) as sess:
        pipeline = sess.produce(range(4), make, workers=1, depth=4, keep="results", max_age=None)
        await anext(pipeline.batches(1))
        with pytest.raises(TypeError, match="has a object at"):
            await Saver().save(sess, tmp_path / "model.ckpt", 0)
        await sess.run("use")
