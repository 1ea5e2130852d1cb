"""The queue needs no web framework; its HTTP API names the missing packages."""

from __future__ import annotations

from pathlib import Path

from tests import forked

CODE = """
import asyncio, sys
sys.modules["starlette"] = sys.modules["uvicorn"] = None
import asyncmon as am

queue = am.jobs.JobQueue("jobs")

@queue.kind("one")
async def one(job):
    job.report(1, loss=0.5)

async def main():
    async with queue:
        print((await (await queue.submit("one", name="a")).wait()).outcome.metrics)

asyncio.run(main())
try:
    am.jobs.create_app(queue)
except ImportError as error:
    print(error)
"""


def test_jobs_run_without_the_extra_and_the_http_api_names_it(tmp_path: Path) -> None:
    done = forked.run("-c", CODE, cwd=tmp_path, check=True)
    assert done.stdout.splitlines() == [
        "{'loss': 0.5}",
        "create_app needs Starlette: pip install 'asyncmon[web]'",
    ]
