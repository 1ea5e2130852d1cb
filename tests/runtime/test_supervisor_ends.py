"""Ends of the body of a managed session other than its normal end."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.errors import OutOfRangeError
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.variable_ops import assign_add
from asyncmon.graph.variables.global_step import create_global_step
from asyncmon.graph.variables.variable import Variable
from asyncmon.runtime import Supervisor
from asyncmon.summary import SessionLog, summary_iterator
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@dataclass
class Model:
    train: Any


@pytest.fixture
def model() -> Iterator[Model]:
    with Graph().as_default():
        Variable(np.float32(0), name="weight")
        yield Model(assign_add(create_global_step(), 1))


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_body_that_waits_on_is_interrupted_after_the_grace_period_sv_7(
    model: Model, cancelled: bool
) -> None:
    """AX-15, with grace: a service has failed while the body waits for what never comes."""
    sv = Supervisor(stop_grace_secs=5)

    async def fail() -> None:
        await asyncio.sleep(1)
        raise OSError("the disk is gone")

    async def train() -> None:
        async with sv.managed_session():
            sv.loop(60, fail)
            await asyncio.Event().wait()

    task = asyncio.create_task(train())
    await asyncio.sleep(3)
    assert sv.should_stop()
    if cancelled:
        task.cancel()
    async with assert_nothing_left_behind():
        with pytest.raises(asyncio.CancelledError if cancelled else OSError):
            await task
    assert asyncio.get_running_loop().time() == (3 if cancelled else 6)


async def test_a_cancelled_body_closes_in_order(model: Model, tmp_path: Path) -> None:
    sv = Supervisor(logdir=tmp_path)
    done = []

    async def train() -> None:
        async with sv.managed_session() as sess:
            sv.loop(1, lambda: None)
            try:
                while True:
                    await sess.run(model.train)
                    await asyncio.sleep(1)
            finally:
                done.append(True)

    async with assert_nothing_left_behind(tmp_path):
        task = asyncio.create_task(train())
        await asyncio.sleep(5)
        task.cancel()
        await wait_all_tasks_blocked()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert done
    (name,) = (name for name in os.listdir(tmp_path) if name.startswith("events."))
    *_, last = [event async for event in summary_iterator(tmp_path / name)]
    assert last.session_log.status == SessionLog.STOP


async def test_a_managed_session_names_a_service_that_ignores_its_cancellation(model: Model) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    sv = Supervisor(stop_grace_secs=1)

    async def train() -> None:
        async with sv.managed_session():
            sv.coord.create_task(stubborn, name="stubborn")
            await wait_all_tasks_blocked()

    with pytest.raises(RuntimeError, match="stopped with threads still running: stubborn"):
        await train()
    release.set()
    await wait_all_tasks_blocked()


async def test_the_end_of_the_data_in_an_init_fn_is_raised(model: Model) -> None:
    error = OutOfRangeError("no first element")

    def init(sess: Any) -> None:
        raise error

    sv = Supervisor(init_fn=init)
    with pytest.raises(OutOfRangeError) as raised:
        async with sv.managed_session():
            raise AssertionError("the session was not opened")
    assert raised.value is error
