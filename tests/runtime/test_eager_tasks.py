"""Tasks that begin in the call that creates them, by ``asyncio.eager_task_factory``."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from asyncmon import graph as g
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import ChiefSessionCreator, MonitoredSession

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.virtual_time,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12"),
]


@pytest_asyncio.fixture(autouse=True)
async def _eager() -> None:
    factory = asyncio.eager_task_factory  # type: ignore[attr-defined,unused-ignore]  # from 3.12 on
    asyncio.get_running_loop().set_task_factory(factory)


async def refusal(call: Callable[[], Awaitable[Any]]) -> str:
    """Return the text of the error of a call, made in a task that begins at once."""
    with pytest.raises(RuntimeError) as caught:
        async with asyncio.timeout(1):
            await asyncio.create_task(call())  # type: ignore[arg-type]  # a coroutine
    return str(caught.value)


@pytest.mark.parametrize("call", ["run", "sample"])
async def test_task_of_a_step_may_not_wait_for_the_run_of_that_step(call: str) -> None:
    program, texts = FunctionProgram(state={}), []

    @program.step
    async def train(state: dict[str, Any]) -> None:
        texts.append(await refusal(lambda: getattr(sess, call)("train")))

    async with MonitoredSession(ChiefSessionCreator(program=program)) as sess:
        await sess.run("train")
    assert len(texts) == 1


async def test_task_of_a_function_of_a_graph_may_not_wait_for_its_run() -> None:
    texts = []

    async def ask() -> Any:
        texts.append(await refusal(lambda: sess.run(value)))
        return 1.0

    with g.Graph().as_default() as graph:
        g.get_global_step() or g.create_global_step()
        value = g.py_func(ask, [], g.float64)
        async with MonitoredSession(ChiefSessionCreator(program=graph)) as sess:
            assert await sess.run(value) == 1.0
    assert len(texts) == 1


async def test_task_of_a_background_task_may_close_the_session() -> None:
    async with MonitoredSession(ChiefSessionCreator(program=FunctionProgram(state={}))) as sess:

        async def close() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(sess.close())

        async with asyncio.timeout(1):
            await sess.coord.create_task(close)
