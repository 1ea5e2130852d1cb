"""The HTTP API: status codes, shapes, access and streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.jobs import table
from tests.jobs.conftest import Steered

pytest.importorskip("starlette", reason="the extra web is not installed")
httpx = pytest.importorskip("httpx", reason="a test package is not installed")

pytestmark = [pytest.mark.asyncio]
JSON = {"content-type": "application/json"}


@asynccontextmanager
async def served(
    root: Path, steered: Steered, host: str = "127.0.0.1", **options: Any
) -> AsyncGenerator[tuple[Any, am.jobs.JobQueue]]:
    queue = am.jobs.JobQueue(root)
    steered.register(queue)
    app = am.jobs.create_app(queue, **options)
    transport = httpx.ASGITransport(app=app, client=(host, 1), raise_app_exceptions=False)
    async with queue, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client, queue


async def test_a_job_is_submitted_found_and_ended(root: Path, steered: Steered) -> None:
    async with served(root, steered) as (client, queue):
        body = {"kind": "steered", "params": {"rate": 0.5}, "name": "a", "priority": 2}
        new = await client.post("/", json=body)
        assert (new.status_code, new.json()["object"], new.json()["state"]) == (201, "job", "queued")
        assert new.json()["params"] == {"rate": 0.5}
        again = await client.post("/", json=body)
        assert (again.status_code, again.json()["id"]) == (200, new.json()["id"])
        assert new.headers["location"].endswith("/" + new.json()["id"])
        found = [(await client.get(path)).json() for path in (new.headers["location"], "/a")]
        assert found[0]["id"] == found[1]["id"]
        steered.end("a")
        await (await queue.get("a")).wait()
        ended = (await client.get("/a")).json()
        assert (ended["state"], ended["attempt"], ended["error"]) == ("completed", 1, None)
        assert (await client.delete("/a")).status_code == 204
        assert (await client.get("/a")).status_code == 404
        assert (await client.delete("/a")).status_code == 404


@pytest.mark.parametrize(
    ("content", "headers", "status", "text"),
    [
        (b"{", JSON, 400, "must be a JSON object"),
        (b"[]", JSON, 400, "must be a JSON object"),
        (b"", JSON, 400, "Expected"),
        (b'{"kind": 1}', JSON, 400, "Expected"),
        (b'{"kind": "steered", "parameters": {}}', JSON, 400, "Unknown: parameters"),
        (b'{"kind": "steered", "params": [1]}', JSON, 400, "values by name"),
        (b'{"kind": "steered", "params": {"x": NaN}}', JSON, 400, "not JSON compliant"),
        (b'{"kind": "steered", "name": "../x"}', JSON, 400, "A name has up to 80"),
        (b'{"kind": "steered", "name": 5}', JSON, 400, "A name has up to 80"),
        (b'{"kind": "steered", "priority": "high"}', JSON, 400, "whole number"),
        (b'{"kind": "other"}', JSON, 422, "There is no kind 'other'"),
        (b'{"kind": "steered", "params": {"n": 2}, "name": "taken"}', JSON, 409, "already"),
        (b'{"kind": "steered"}', {"content-type": "text/plain"}, 415, "application/json"),
        (b'{"kind": "steered"}', {}, 415, "application/json"),
        (b"kind=steered", {"content-type": "application/x-www-form-urlencoded"}, 415, "must be"),
    ],
)
async def test_a_wrong_submission_is_refused(
    root: Path, steered: Steered, content: bytes, headers: Any, status: int, text: str
) -> None:
    async with served(root, steered) as (client, queue):
        await queue.submit("steered", {"n": 1}, name="taken")
        answer = await client.post("/", content=content, headers=headers)
        assert (answer.status_code, text in answer.json()["error"]) == (status, True), answer.text
        assert len(await queue.list()) == 1


async def test_requests_answer_with_what_was_done(root: Path, steered: Steered) -> None:
    async with served(root, steered) as (client, queue):
        await client.post("/", json={"kind": "steered", "name": "runs"})
        await client.post("/", json={"kind": "steered", "name": "waits"})
        await steered.wait_started("runs")
        assert (await client.post("/waits/pause")).status_code == 200
        assert (await client.post("/waits/resume", json={})).status_code == 200
        requested = await client.post("/runs/pause")
        assert (requested.status_code, requested.json()["request"]) == (202, "pause")
        early = await client.post("/runs/resume")
        if early.status_code != 409:  # it was paused by then, and runs again
            assert (early.status_code, early.json()["attempt"]) == (200, 1)
            await client.post("/runs/pause")
        await (await queue.get("runs")).wait("paused")
        assert (await client.delete("/waits")).status_code == 409
        assert (await client.post("/runs/cancel")).status_code == 200
        late = await client.post("/runs/cancel")
        assert (late.status_code, late.json()) == (409, {"error": "The job 'runs' is cancelled."})
        for path in ("/none/cancel", "/none/events", "/none"):
            method = "POST" if path.endswith("cancel") else "GET"
            assert (await client.request(method, path)).status_code == 404
        # Routes are listed one by one: no other method of a job can be called.
        for path in ("/runs/refresh", "/runs/wait", "/runs/_row"):
            assert (await client.post(path)).status_code == 404
        assert (await client.put("/runs")).status_code == 405


async def test_lists_are_pages(root: Path, steered: Steered) -> None:
    async with served(root, steered) as (client, queue):
        jobs = await queue.submit_many("steered", [{"n": n} for n in range(5)])
        first = (await client.get("/?limit=3&kind=steered")).json()
        assert (first["object"], len(first["data"]), first["has_more"]) == ("list", 3, True)
        for after in (first["after"], first["data"][-1]["id"]):  # a number, or as in other APIs
            rest = (await client.get(f"/?after={after}")).json()
            assert [one["params"]["n"] for one in rest["data"]] == [3, 4]
            assert not rest["has_more"]
        empty = (await client.get("/?state=failed")).json()
        assert (empty["data"], empty["after"]) == ([], None)
        for query in ("limit=0", "limit=x", "limit=9999", "state=done", f"after={'9' * 30}"):
            assert (await client.get(f"/?{query}")).status_code in (400, 404), query
        steered.end(*[job.name for job in jobs])


async def test_events_are_a_list_or_a_stream_that_resumes_and_ends_with_the_job(
    root: Path, steered: Steered
) -> None:
    async with served(root, steered) as (client, queue):
        job = await queue.submit("steered", name="a")
        stream = asyncio.create_task(client.get("/a/events", headers={"accept": "text/event-stream"}))
        await steered.wait_started("a")
        steered.end("a")
        await job.wait()
        text = (await stream).text
        found = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert [one["data"]["state"] for one in found] == ["queued", "opening", "completed"]
        assert found[0].keys() == {"object", "id", "created_at", "type", "level", "message", "data"}
        listed = (await client.get("/a/events?limit=2")).json()
        assert (listed["data"], listed["has_more"]) == (found[:2], True)
        headers = {"accept": "text/event-stream", "last-event-id": str(found[1]["id"])}
        rest = (await client.get("/a/events", headers=headers)).text
        assert [line for line in rest.splitlines() if line.startswith("id: ")] == [
            f"id: {found[2]['id']}"
        ]


async def test_access_is_guarded_as_the_monitor_is(root: Path, steered: Steered) -> None:
    secret = "a secret of sixteen"
    async with served(root / "local", steered) as (client, _):
        assert (await client.get("/", headers={"host": "evil.example"})).status_code == 403
        foreign = {"origin": "http://evil.example"}
        assert (await client.post("/", json={"kind": "steered"}, headers=foreign)).status_code == 403
    async with served(root / "remote", steered, host="10.0.0.9") as (client, _):
        assert (await client.get("/")).status_code == 403
    async with served(root / "token", steered, host="10.0.0.9", token=secret) as (client, _):
        assert (await client.get("/")).status_code == 401
        assert (await client.post("/", json={"kind": "steered"})).status_code == 401
        right = {"authorization": f"Bearer {secret}"}
        assert (await client.get("/", headers=right)).status_code == 200

    async def check(request: Any) -> bool:
        return bool(request.headers.get("x-user") == "me")

    async with served(root / "user", steered, host="10.0.0.9", authenticate=check) as (client, _):
        assert (await client.get("/")).status_code == 401
        assert (await client.get("/", headers={"x-user": "me"})).status_code == 200
    with pytest.raises(ValueError, match="not both"):
        am.jobs.create_app(am.jobs.JobQueue(root), token=secret, authenticate=check)


async def test_a_full_disk_and_a_closed_queue_answer_503(root: Path, steered: Steered) -> None:
    async with served(root, steered) as (client, queue):
        pages = await queue._store.write(
            lambda db: db.execute("PRAGMA page_count").fetchone()["page_count"]
        )
        await queue._store.write(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        params = {"text": "x" * 50_000}
        answer = await client.post("/", json={"kind": "steered", "params": params})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert "full" in answer.json()["error"]
        await queue._store.write(lambda db: db.execute("PRAGMA max_page_count = 9999").fetchone())
        assert (await client.post("/", json={"kind": "steered"})).status_code == 201
    app = am.jobs.create_app(queue)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost"
    ) as closed:
        assert (await closed.get("/")).status_code == 503


async def test_what_is_not_finite_is_text_in_answers(root: Path, steered: Steered) -> None:
    queue = am.jobs.JobQueue(root)

    @queue.kind("nan")
    async def nan(job: Any) -> None:
        job.report(1, loss=float("nan"), rate=float("inf"))

    app = am.jobs.create_app(queue)
    async with (
        queue,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://localhost"
        ) as client,
    ):
        await (await queue.submit("nan", name="x")).wait()
        (row,) = (await client.get("/")).json()["data"]
        assert row["metrics"] == {"loss": "NaN", "rate": "Infinity"}
        assert row["state"] in table.FINAL
