"""The queue of jobs: ``python tests/benchmarks/jobs.py [row ...]``.

Rows: submit, list. The medians of three queues, each with its jobs queued and none of them run.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from harness import Row, command

import asyncmon as am

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

COUNT, ROUNDS, PAGE = 10_000, 3, 100
MOST_SECS, MOST_PAGE_SECS = 2.0, 0.020


@asynccontextmanager
async def opened() -> AsyncGenerator[am.jobs.JobQueue]:
    """Open a queue whose only place is taken, so that submitted jobs wait."""
    with tempfile.TemporaryDirectory() as directory:
        queue = am.jobs.JobQueue(directory)

        @queue.kind("waits")
        async def waits(job: am.jobs.RunningJob) -> None:
            await asyncio.sleep(1_000)

        async with queue:
            await (await queue.submit("waits", name="first")).wait("opening")
            yield queue


async def submit() -> list[Row]:
    """Submit jobs in one call, gathered, and one after another."""
    many, gathered, single = [], [], []
    for _ in range(ROUNDS):
        async with opened() as queue:
            start = time.perf_counter()
            await queue.submit_many("waits", [{"n": n} for n in range(COUNT)])
            many.append(time.perf_counter() - start)
            start = time.perf_counter()
            await asyncio.gather(*[queue.submit("waits", {"n": n}) for n in range(COUNT)])
            gathered.append(time.perf_counter() - start)
            start = time.perf_counter()
            for n in range(COUNT // 50):
                await queue.submit("waits", {"n": n})
            single.append((time.perf_counter() - start) * 50)
    at_once, together, alone = map(statistics.median, (many, gathered, single))
    said = f"submit_many {at_once:.2f} s, gathered {together:.2f} s, one after another {alone:.1f} s"
    met = max(at_once, together) < MOST_SECS
    return [Row(f"{COUNT:,} jobs submitted", said, f"the first two {MOST_SECS:g} s", met)]


async def page() -> list[Row]:
    """Read pages of 10,000 jobs."""
    found = []
    async with opened() as queue:
        jobs = await queue.submit_many("waits", [{"n": n} for n in range(COUNT)])
        for n in range(ROUNDS * 10):
            start = time.perf_counter()
            await queue.list(limit=PAGE, after=jobs[n * 300].number)
            found.append(time.perf_counter() - start)
    secs = statistics.median(found)
    said = f"{secs * 1e3:.1f} ms ({min(found) * 1e3:.1f} to {max(found) * 1e3:.1f})"
    work = f"a page of {PAGE} of {COUNT:,} jobs"
    return [Row(work, said, f"under {MOST_PAGE_SECS * 1e3:g} ms", secs < MOST_PAGE_SECS)]


if __name__ == "__main__":
    sys.exit(command("jobs", {"submit": submit, "list": page}))
