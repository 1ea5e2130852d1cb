"""Which sessions of a run count as lost: those that neither wait, nor end, nor ask again in time."""

from __future__ import annotations

import asyncio

import pytest

from asyncmon.distributed.cluster_run import RunRecord

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def joined() -> RunRecord:
    record = RunRecord()
    record.join("chief", "/job:worker/task:0", True, None)
    record.join("other", "/job:worker/task:1", False, None)
    return record


async def others(record: RunRecord, name: str, wait: float, number: int | None = None) -> list[str]:
    task = {"chief": "/job:worker/task:0"}.get(name, "/job:worker/task:2")
    seen = await record.watch(name, task, None, wait, 0, number, lambda: None)
    found: list[str] = seen["others"]
    return found


async def test_a_session_that_waits_for_the_others_is_not_lost_meanwhile() -> None:
    record = joined()
    waiting = asyncio.create_task(others(record, "chief", 30.0))
    await asyncio.sleep(20)
    assert await others(record, "third", 0.0) == ["chief"]
    assert await waiting == []
    await asyncio.sleep(4)
    assert await others(record, "third", 0.0) == ["chief"]
    await asyncio.sleep(2)
    assert await others(record, "third", 0.0) == []


async def test_a_session_that_has_ended_may_take_its_time_to_close() -> None:
    record = joined()
    record.leave("other")
    assert await others(record, "chief", 20.0, 0) == []
    await asyncio.sleep(20)
    record.closed("other")
    run = record.join("third", "/job:worker/task:2", False, None)["run"]
    stop = {"reason": "done"}
    record.stop(run, stop, None, lambda: None)
    assert record.join("late", "/job:worker/task:3", False, None)["stop"] == stop
    assert record.join("next", "/job:worker/task:1", False, None)["stop"] is None


async def test_a_session_whose_requests_are_answered_at_once_is_not_lost() -> None:
    record = joined()
    for _ in range(3):
        await asyncio.sleep(4)
        await others(record, "chief", 0.0)
    assert await others(record, "third", 0.0) == ["chief"]
