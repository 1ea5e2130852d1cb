"""``sess.values``: all values of each step, for a service's own stream."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph
from asyncmon.programs import FunctionProgram

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def program() -> FunctionProgram:
    made = FunctionProgram({"n": 0})

    @made.step
    def train(state: Any) -> None:
        state["n"] += 1

    return made


class Logs(am.SessionRunHook):
    async def after_run(self, run_context: Any, run_values: Any) -> None:
        step = run_context.session.global_step
        run_context.log("loss", 1.0 / step)
        run_context.log({"weights": np.arange(3), "note": "text"})


def session(*hooks: Any) -> am.MonitoredSession:
    return am.MonitoredSession(am.ChiefSessionCreator(program=program()), hooks)


async def test_reader_gets_all_values_of_each_step_until_the_stop() -> None:
    found: list[Any] = []

    async def read(sess: am.MonitoredSession) -> None:
        found.extend([one async for one in sess.values()])

    async with session(Logs(), am.StopAtStepHook(last_step=20)) as sess:
        reading = asyncio.create_task(read(sess))
        await asyncio.sleep(0)
        while not sess.should_stop():
            await sess.run("train")
            await asyncio.to_thread(sess.log, "after", 2.0)
        await reading
    assert [one.step for one in found if "loss" in one.values] == list(range(1, 21))
    assert {tag for one in found for tag in one.values} == {"loss", "weights", "note", "after"}
    assert not any(one.dropped for one in found)
    assert found[0].values["loss"] == 1.0


async def test_slow_reader_receives_the_number_of_dropped_steps() -> None:
    async with session(Logs()) as sess:
        stream = sess.values(most=4)
        for _ in range(10):
            await sess.run("train")
        first = await anext(stream)
        assert (first.step, first.dropped) == (7, 6)
        assert (await anext(stream)).dropped == 0
        stream.close()
        await sess.run("train")
        assert [(await anext(stream)).step for _ in range(2)] == [9, 10]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(stream)
        with pytest.raises(ValueError, match="most must be 1 or more, got 0"):
            sess.values(most=0)


async def test_summaries_of_the_graph_are_values(tmp_path: Any) -> None:
    with graph.Graph().as_default():
        step = graph.train.get_or_create_global_step()
        am.summary.scalar("loss", graph.constant(0.5))
        train = graph.assign_add(step, 1)
        async with am.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_summaries_steps=1, signals=None, log_step_count_steps=0
        ) as sess:
            stream = sess.values()
            await sess.run(train)
            found = await anext(stream)
            assert found.values["loss"] == 0.5


async def test_stream_that_is_dropped_leaves_no_sink() -> None:
    async with session() as sess:
        before = len(sess._hooks.recorder._groups)
        stream = sess.values()
        assert len(sess._hooks.recorder._groups) == before + 1
        del stream
        assert len(sess._hooks.recorder._groups) == before
    assert [one async for one in sess.values()] == []
