"""Members that take long: a worker is waited for, a chief without checkpoints is noticed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph
from tests.distributed.in_process import InProcessCluster
from tests.distributed.test_roles import CLUSTER, add, session, work

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_the_chief_waits_for_a_step_of_25_s_within_its_grace_period(tmp_path: Path) -> None:
    cluster = InProcessCluster(CLUSTER)

    async def compute() -> float:
        await asyncio.sleep(25)
        return 1.0

    def slow(parts: Any) -> Any:
        v, step = parts
        with graph.device("/job:worker/task:1"):
            computed = graph.py_func(compute, [], graph.float32)
            computed.set_shape([])
        with graph.control_dependencies([v.assign_add(computed)]):
            return step.assign_add(1)

    options = {"stop_grace_period_secs": 60}
    chief = session(
        cluster,
        0,
        add,
        checkpoint_dir=str(tmp_path),
        hooks=[am.StopAtStepHook(last_step=100)],
        **options,
    )
    await asyncio.gather(work(*chief, lambda: asyncio.sleep(0.05)), work(*session(cluster, 1, slow)))
    newest = await am.latest_checkpoint(str(tmp_path))
    assert newest is not None
    saved = await am.load_checkpoint(newest)
    assert await saved.get_tensor("global_step") == 101
    assert await saved.get_tensor("v") == 101
    await cluster.close()


@pytest.mark.parametrize(
    "interval", [{"save_checkpoint_secs": 20}, {"save_checkpoint_steps": 20}], ids=str
)
async def test_a_worker_warns_once_where_three_intervals_have_no_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, interval: dict[str, Any]
) -> None:
    cluster = InProcessCluster(CLUSTER)
    args = {"checkpoint_dir": str(tmp_path), **interval}
    reached, chief_ends = 0, 100

    async def step_of_chief() -> None:
        await asyncio.sleep(1)
        if reached >= chief_ends:
            await asyncio.sleep(1000)  # it hangs

    async def step_of_worker() -> None:
        nonlocal reached
        await asyncio.sleep(1)
        reached += 1
        if reached in (chief_ends, chief_ends + 50):
            assert not warnings()

    def warnings() -> list[str]:
        return [one for one in caplog.messages if "has committed no checkpoint" in one]

    hooks = [am.StopAtStepHook(last_step=500)]
    chief = asyncio.create_task(work(*session(cluster, 0, add, **args), step_of_chief))
    await work(*session(cluster, 1, add, hooks=hooks, **args), step_of_worker)
    chief.cancel()
    await asyncio.gather(chief, return_exceptions=True)
    [warning] = warnings()
    assert "three intervals: the last one of step" in warning
    await cluster.close()


async def test_a_worker_without_a_checkpoint_directory_looks_for_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    cluster = InProcessCluster(CLUSTER)
    chief = session(cluster, 0, add, hooks=[am.StopAtStepHook(last_step=50)])
    pause = [lambda: asyncio.sleep(60)] * 2
    await asyncio.gather(work(*chief, pause[0]), work(*session(cluster, 1, add), pause[1]))
    assert not caplog.messages
    await cluster.close()
