"""The threads of torch operations, which sessions share, and what a closed session keeps of a model."""

from __future__ import annotations

import gc
import logging
import types
import weakref
from collections.abc import Generator, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

import torch

import asyncmon as am
from asyncmon.errors import AbortedError
from asyncmon.programs.torch import TorchProgram

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def session(count: int, **options: Any) -> am.MonitoredSession:
    program = TorchProgram({"model": torch.nn.Linear(4, 1)})

    @program.step
    def threads(state: Any) -> int:
        return torch.get_num_threads()

    config = am.SessionConfig(intra_op_parallelism_threads=count, inline_ms=0)
    return am.MonitoredTrainingSession(program=program, config=config, signals=None, **options)


async def test_a_close_restores_the_number_of_threads() -> None:
    async with session(0) as earlier:
        assert await earlier.run("threads") == 4
        async with session(1) as limited:
            assert await limited.run("threads") == torch.get_num_threads() == 1
            assert await earlier.run("threads") == 4  # its thread computes already
        assert torch.get_num_threads() == 4
    async with session(0) as later:
        assert await later.run("threads") == 4


async def test_a_thread_that_started_under_a_limit_loses_it_at_the_close() -> None:
    async with session(0) as other:
        async with session(1):
            assert await other.run("threads") == 1
        assert await other.run("threads") == 4


async def test_the_first_open_session_decides_the_number(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "asyncmon"):
        async with session(2), session(1) as second:
            assert await second.run("threads") == 2
    [line] = [line for line in caplog.messages if "has no effect" in line]
    assert "intra_op_parallelism_threads=1 has no effect" in line
    assert "an open session has set 2" in line
    assert torch.get_num_threads() == 4


async def test_the_last_of_the_sessions_that_share_a_number_restores_it() -> None:
    async with session(2):
        async with session(2):
            pass
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 4


async def test_a_recovery_keeps_the_number() -> None:
    program, failures = TorchProgram({"model": torch.nn.Linear(4, 1)}), [AbortedError("lost")]

    @program.step
    def threads(state: Any) -> int:
        if failures:
            raise failures.pop()
        return torch.get_num_threads()

    config = am.SessionConfig(intra_op_parallelism_threads=1)
    recovery = am.Recovery(first_delay_secs=0.0)
    async with am.MonitoredTrainingSession(program=program, config=config, recovery=recovery) as sess:
        assert await sess.run("threads") == 1
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("fails", [False, True])
async def test_closed_sessions_keep_no_models(fails: bool) -> None:
    closed, models = [], []
    for _ in range(3):
        model = torch.nn.Linear(4, 1)
        program = TorchProgram({"model": model})
        models.append(weakref.ref(model))

        @program.step
        def train(state: Any) -> None:
            state["model"].weight.data += 1
            if fails:
                raise ValueError("no")

        sess = am.MonitoredSession(am.ChiefSessionCreator(program=program))
        closed.append(sess)
        del model, program, train
        try:
            async with sess:
                await sess.run("train")
        except ValueError:
            assert fails
    gc.collect()
    assert [model() for model in models] == [None] * 3
    assert {sess.state.value for sess in closed} == {"closed"}


def with_async_step(inline_ms: float) -> Any:
    program = TorchProgram({"model": torch.nn.Linear(4, 1)})

    @program.step
    async def train(state: Any) -> float:
        with torch.no_grad():
            state["model"].weight += 1
        return 1.0

    return program.create_session(config=am.SessionConfig(inline_ms=inline_ms))


@types.coroutine
def waits(run: Any) -> Generator[Any, Any, int]:
    """Await a run, and return the number of times that it waited."""
    count = 0
    for future in run.__await__():
        count += 1
        yield future
    return count


async def test_an_async_step_uses_no_thread_once_its_begin_and_end_are_measured() -> None:
    session = with_async_step(inline_ms=1000)
    assert await waits(session.run("train")) == 2
    assert await waits(session.run("train")) == 0
    assert session.global_step == 2
    await session.close()


async def test_the_first_run_with_other_fetches_begins_and_ends_in_the_thread() -> None:
    session = with_async_step(inline_ms=1000)
    for _ in range(2):
        await session.run("train")
    assert await waits(session.run(["train", "model/weight"])) == 2
    assert await waits(session.run(["train", "model/weight"])) == 0
    await session.close()


async def test_a_long_begin_and_end_of_an_async_step_stay_in_the_thread() -> None:
    session = with_async_step(inline_ms=0)
    for _ in range(3):
        assert await waits(session.run("train")) == 2
    await session.close()
