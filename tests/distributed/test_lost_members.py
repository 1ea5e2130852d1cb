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


async def others(record: RunRecord, wait: float, number: int | None = None) -> list[str]:
    seen = await record.watch("chief", "/job:worker/task:0", None, wait, 0, number, lambda: None)
    found: list[str] = seen["others"]
    return found


async def test_a_session_that_waits_for_the_others_is_not_lost_meanwhile() -> None:
    record = joined()
    waiting = asyncio.create_task(others(record, 30.0))
    await asyncio.sleep(20)
    assert record.lost() == {"lost": 1}  # the other
    assert await waiting == []
    await asyncio.sleep(4)
    assert record.lost() == {"lost": 1}
    await asyncio.sleep(2)
    assert record.lost() == {"lost": 2}


async def test_a_session_that_has_ended_may_take_its_time_to_close() -> None:
    record = joined()
    record.leave("other")
    assert await others(record, 20.0, 0) == []
    await asyncio.sleep(20)
    record.closed("other")
    assert record.lost() == {"lost": 1}  # the chief, which has not ended


async def test_a_session_whose_requests_are_answered_at_once_is_not_lost() -> None:
    record = joined()
    for _ in range(3):
        await asyncio.sleep(4)
        await others(record, 0.0)
    assert record.lost() == {"lost": 1}  # the other
