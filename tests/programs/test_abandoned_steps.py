"""A stop that comes while a step computes in a thread, which nothing can interrupt.

In real time: virtual time waits for threads.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import asyncmon as am
from asyncmon import graph as g
from asyncmon.errors import DeadlineExceededError, FailedPreconditionError
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.program import as_program

pytestmark = pytest.mark.asyncio

IN_THREADS = am.SessionConfig(inline_ms=0)


class Block:
    """A function that waits in its thread until the end of the test."""

    def __init__(self) -> None:
        self.entered, self.released = asyncio.Event(), threading.Event()
        self.left = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wait_here(self) -> None:
        self._loop.call_soon_threadsafe(self.entered.set)
        self.released.wait()
        self._loop.call_soon_threadsafe(self.left.set)


@pytest_asyncio.fixture
async def block() -> AsyncIterator[Block]:
    made = Block()
    yield made
    made.released.set()
    await made.left.wait()


def functions(block: Block) -> tuple[Any, Any, Any]:
    program = FunctionProgram({"n": 0})

    @program.step
    def train(state: Any) -> None:
        state["n"] += 1

    @program.step(thread=True)
    def hang(state: Any) -> None:
        state["n"] += 1
        block.wait_here()

    return program, "train", "hang"


def graph(block: Block) -> tuple[Any, Any, Any]:
    with g.Graph().as_default() as made:
        step = am.get_or_create_global_step()
        train = step.assign_add(1)

        def hang() -> Any:
            block.wait_here()
            return 1

        hangs = step.assign_add(g.cast(g.py_func(hang, [], g.int64), step.dtype))
    return made, train, hangs


Make = Callable[[Block], tuple[Any, Any, Any]]


async def train(
    made: tuple[Any, Any, Any], block: Block, directory: Path, stop: Any, grace: float
) -> None:
    program, step, hangs = made
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=directory, stop_grace_period_secs=grace, config=IN_THREADS
    ) as sess:
        for _ in range(5):
            await sess.run(step)
        run = asyncio.create_task(sess.run(hangs))
        await block.entered.wait()
        stop(sess)
        await run


async def saved(directory: Path) -> str:
    return Path(await am.latest_checkpoint(directory) or "").name


def send_a_signal(sess: am.MonitoredSession) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("make", [functions, graph])
async def test_the_last_completed_state_is_saved_after_a_signal(
    make: Make, block: Block, tmp_path: Path, caplog: Any
) -> None:
    caplog.set_level("INFO")
    await train(make(block), block, tmp_path, send_a_signal, 6)
    assert await saved(tmp_path) == "model.ckpt-5"
    assert "a thread, which cannot be interrupted, is in" in caplog.text
    assert "test_abandoned_steps.py:" in caplog.text
    assert "Session ended at step 5: signal SIGTERM." in caplog.text


@pytest.mark.parametrize("make", [functions, graph])
async def test_another_stop_ends_with_the_error_of_the_step(
    make: Make, block: Block, tmp_path: Path
) -> None:
    with pytest.raises(DeadlineExceededError, match=r"is in .*, called from .*hang"):
        await train(make(block), block, tmp_path, lambda sess: sess.request_stop("enough"), 0.1)
    assert await saved(tmp_path) == "model.ckpt-0"  # as after an async step that hangs


@pytest.mark.parametrize("make", [functions, graph])
async def test_no_step_follows_and_the_abandoned_one_changes_nothing(make: Make, block: Block) -> None:
    program, _, hangs = make(block)
    if isinstance(program, FunctionProgram):
        raw, init = program.create_session(), program.init_op()
    else:
        raw, init = am.Session(graph=program, config=IN_THREADS), as_program(program).init_op()
    await raw.run(init)
    run = asyncio.create_task(raw.run(hangs))
    await block.entered.wait()
    assert len(raw.computing()) == 1
    run.cancel()
    await asyncio.sleep(0)
    assert not run.done()
    raw.abandon()
    await asyncio.wait([run])
    assert run.cancelled()
    with pytest.raises(FailedPreconditionError, match="still computing in its thread"):
        await raw.run(hangs)
    block.released.set()
    await block.left.wait()
    assert (await raw.snapshot()).step == 0
    await raw.close()
