"""A directory for a queue on a local disk, and kinds that tests steer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am


class Steered:
    """A kind whose jobs wait until the test lets them end."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.started: list[str] = []
        self.most = 0
        self._ends: dict[str, asyncio.Event] = {}
        self._change = asyncio.Condition()

    async def __call__(self, job: am.jobs.RunningJob) -> None:
        self.started.append(job.name)
        async with self._change:
            self._change.notify_all()
        self.running.append(job.name)
        self.most = max(self.most, len(self.running))
        try:
            await self._end_of(job.name).wait()
        finally:
            self.running.remove(job.name)

    async def wait_started(self, *names: str) -> None:
        async with self._change:
            await self._change.wait_for(lambda: set(names) <= set(self.started))

    def end(self, *names: str) -> None:
        for name in names:
            self._end_of(name).set()

    def _end_of(self, name: str) -> asyncio.Event:
        return self._ends.setdefault(name, asyncio.Event())

    def register(self, queue: am.jobs.JobQueue) -> None:
        async def steered(job: Any) -> None:
            await self(job)

        queue.kind("steered")(steered)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def steered() -> Steered:
    return Steered()
