"""A service for the kill campaign: ``python killed_service.py DIRECTORY PORT EXECUTOR``."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import asyncmon as am
from tests.jobs.kinds import counting, note


async def work(job: am.jobs.RunningJob) -> None:
    """Count, under a lock of the test's own, and note each beginning and the work after the session."""
    descriptor = os.open(job.directory / "own.lock", os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(job, "overlap.txt")
        async with counting(job, job.params["steps"]) as sess:
            with open(job.directory / "began.txt", "a") as file:  # noqa: ASYNC230 - a line
                file.write(f"{sess.global_step}\n")
            while not sess.should_stop():
                await sess.run("count")
                await asyncio.sleep(job.params["pause"])
        note(job, "after.txt")
    finally:
        os.close(descriptor)


def service(directory: str, executor: str) -> Starlette:
    queue = am.jobs.JobQueue(directory, max_running=3, grace=10.0)
    queue.kind("work", executor=executor)(work)  # type: ignore[arg-type]  # a name

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with queue:
            yield

    return Starlette(routes=[Mount("/jobs", am.jobs.create_app(queue))], lifespan=lifespan)


if __name__ == "__main__":
    app = service(sys.argv[1], sys.argv[3])
    uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
