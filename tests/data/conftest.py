"""A count of the loop's iterations beside a pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from asyncmon.system.loop_budget import LoopBudget


@pytest_asyncio.fixture
async def turns(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[None]]:
    """A list that grows with each iteration of the loop. Its budget is always spent."""
    found: list[None] = []

    async def tick() -> None:
        while True:
            found.append(None)
            await asyncio.sleep(0)

    monkeypatch.setattr(LoopBudget, "spent", lambda self: True)
    ticker = asyncio.create_task(tick())
    yield found
    ticker.cancel()
