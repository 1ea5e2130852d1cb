"""The JSON endpoints: their answers and their refusals."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.monitor.endpoints import ACTIONS, ENDPOINTS
from asyncmon.monitor.media import Picture
from asyncmon.monitor.run import Details, LoopLag, Saving, Status
from asyncmon.runtime.session_statistics import QueueStatistics, TaskStatistics, TimerStatistics
from asyncmon.summary import FileWriter
from tests.monitor.scripted import ScriptedRun, client

RUN = "/api/runs/digits"


@pytest.mark.asyncio
async def test_runs_have_rows_and_details() -> None:
    run = ScriptedRun(row=Status(state="open", step=7, rate=float("inf")))
    async with client(am.monitor.create_app(run)) as http:
        rows = (await http.get("/api/runs")).json()["runs"]
        assert [(row["id"], row["kind"], row["step"]) for row in rows] == [("digits", "live", 7)]
        assert rows[0]["rate"] == "Infinity"
        details = (await http.get(RUN)).json()
    assert details["hooks"][0]["name"] == "StepCounterHook"
    assert details["checkpoints"][0]["verified"] is None
    assert details["step"] == 7


@pytest.mark.asyncio
async def test_runs_may_come_and_go() -> None:
    app = am.monitor.create_app({"a": ScriptedRun("a"), "b c/d": ScriptedRun("b c/d")})
    async with client(app) as http:
        given = app.state.runs.add(None, ScriptedRun("a"))
        rows = (await http.get("/api/runs")).json()["runs"]
        assert [row["id"] for row in rows] == ["a", "b-c-d", given] == ["a", "b-c-d", "a-2"]
        assert [row["name"] for row in rows] == ["a", "b c/d", "a (2)"]
        app.state.runs.remove("b c/d")
        assert (await http.get("/api/runs/b-c-d")).status_code == 404
    with pytest.raises(KeyError, match="There is no run 'x'"):
        app.state.runs.remove("x")


@pytest.mark.asyncio
async def test_run_is_removed_and_its_directory_does_not_come_back(tmp_path: Path) -> None:
    for name in ("a", "b"):
        async with FileWriter(tmp_path / name) as writer:
            writer.add_scalar("loss", 0.5, 1)
    app = am.monitor.create_app([str(tmp_path), ScriptedRun()])
    async with client(app) as http:
        rows = (await http.get("/api/runs")).json()["runs"]
        assert {row["id"] for row in rows} == {"digits", "a", "b"}
        for one in ("digits", "a"):
            assert (await http.post(f"/api/runs/{one}/remove")).json() == {"ok": True}
        assert (await http.post("/api/runs/a/remove")).status_code == 404
        app.state.runs._scan_due = 0.0
        rows = (await http.get("/api/runs")).json()["runs"]
        assert [row["id"] for row in rows] == ["b"]
    assert (tmp_path / "a").exists()


@pytest.mark.asyncio
async def test_points_are_reduced_and_resumed() -> None:
    run = ScriptedRun()
    for step in range(1_000):
        run.scalars.add("loss", step, 1.0 if step == 500 else 0.0, float(step))
    run.scalars.add("nan", 0, float("nan"), 0.0)
    async with client(am.monitor.create_app(run)) as http:
        tags = (await http.get(f"{RUN}/scalars")).json()["tags"]
        assert [(tag["tag"], tag["points"], tag["value"]) for tag in tags] == [
            ("loss", 1_000, 0.0),
            ("nan", 1, "NaN"),
        ]
        found = (await http.get(f"{RUN}/scalars/points?tag=loss&tag=x&max_points=50")).json()
        assert found["series"].keys() == {"loss"}
        assert len(found["series"]["loss"]["steps"]) <= 50
        assert max(found["series"]["loss"]["values"]) == 1.0
        run.scalars.add("loss", 1_000, 0.5, 1_000.0)
        after = f"{RUN}/scalars/points?tag=loss&after={found['cursor']}"
        new = (await http.get(after)).json()
        assert new["reset"] is False
        assert new["series"]["loss"] == {"steps": [1_000], "values": [0.5], "wall_times": [1_000.0]}
        stretch = f"{RUN}/scalars/points?tag=loss&by=step&low=10&high=12&reduce=mean"
        assert (await http.get(stretch)).json()["series"]["loss"]["steps"] == [9, 10, 11, 12, 13]
        future = f"{RUN}/scalars/points?tag=loss&after={new['cursor'] + 5}"
        assert (await http.get(future)).json()["reset"] is True


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/api/runs/x", 404, "There is no run 'x'"),
        ("/api/runs/x/scalars", 404, "There is no run 'x'"),
        (f"{RUN}/scalars/points", 400, "Give 1 to 200 parameters `tag`, not 0."),
        (f"{RUN}/scalars/points?tag=a&max_points=1", 400, "max_points must be an integer from 8"),
        (f"{RUN}/scalars/points?tag=a&after=-1", 400, "after must be an integer"),
        (f"{RUN}/scalars/points?tag=a&after=٣", 400, "after must be an integer"),
        (f"{RUN}/scalars/points?tag=a&low=x", 400, "low must be a number, not 'x'"),
        (f"{RUN}/scalars/points?tag=a&by=time", 400, "by must be step or wall_time"),
        ("/api/events?after=x", 400, "after must be an integer"),
        ("/api/nothing", 404, "api/runs lists the runs"),
        ("/../../etc/passwd", 404, "There is nothing here"),
    ],
)
async def test_what_is_not_there_is_refused_with_a_sentence(path: str, status: int, text: str) -> None:
    async with client(am.monitor.create_app(ScriptedRun())) as http:
        answer = await http.get(path)
    assert answer.status_code == status
    assert text in answer.json()["error"]


@pytest.mark.asyncio
async def test_actions_reach_the_run() -> None:
    run = ScriptedRun()
    async with client(am.monitor.create_app(run)) as http:
        saved = await http.post(f"{RUN}/save")
        assert saved.json() == {"ok": True, "path": "runs/model.ckpt-7"}
        assert (await http.post(f"{RUN}/stop", json={"reason": "late"})).json() == {"ok": True}
        refused = await http.post(f"{RUN}/resume")
        assert (refused.status_code, refused.json()["error"]) == (409, "The run is not paused.")
        assert (await http.post(f"{RUN}/verify")).json()["checkpoints"][0]["step"] == 7
        assert (await http.post(f"{RUN}/hooks/StepCounterHook/detach")).json() == {"ok": True}
        assert (await http.post(f"{RUN}/hooks/x/detach")).status_code == 404
        assert (await http.post(f"{RUN}/explode")).status_code == 404
        assert (await http.post(f"{RUN}/stop", json={"reason": 3})).status_code == 400
        assert (await http.post(f"{RUN}/stop", content=b"[1]")).status_code == 400
        assert (await http.post(f"{RUN}/stop", content=b"{")).status_code == 400
        assert (await http.post("/api/runs/x/stop")).status_code == 404
        assert (await http.get(f"{RUN}/stop")).status_code in (404, 405)
    assert run.asked == [("save", None), ("stop", "late"), ("detach", "StepCounterHook")]


@pytest.mark.asyncio
async def test_an_oversized_body_is_refused_unread() -> None:
    run = ScriptedRun()
    read = 0

    async def endless() -> Any:
        nonlocal read
        while read < 10_000_000:
            read += 10_000
            yield b" " * 10_000

    async with client(am.monitor.create_app(run)) as http:
        answer = await http.post(f"{RUN}/stop", content=endless())
    assert answer.status_code == 413
    assert "65536 bytes" in answer.json()["error"]
    assert run.asked == []


@pytest.mark.asyncio
async def test_metrics_and_health_are_answered() -> None:
    from prometheus_client import CollectorRegistry, Counter

    registry = CollectorRegistry()
    Counter("asyncmon_steps", "Steps.", registry=registry).inc(3)
    async with client(am.monitor.create_app([], registry=registry)) as http:
        assert "asyncmon_steps_total 3.0" in (await http.get("/metrics")).text
        assert (await http.get("/healthz")).json() == {"ok": True}


@pytest.mark.asyncio
async def test_an_error_of_a_run_is_an_answer_and_not_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(ScriptedRun):
        async def details(self) -> Any:
            raise LookupError("secret")

        async def refresh(self) -> None:
            raise LookupError("no such disk")

    async with client(am.monitor.create_app(Broken())) as http:
        assert (await http.get("/api/runs")).status_code == 200
        answer = await http.get(RUN)
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "The monitor cannot read the run 'digits'." in caplog.text


ROW = {"id", "name", "kind", *(one.name for one in fields(Status))}

ANSWERS = {
    "runs": {"runs"},
    "run": {*ROW, *(one.name for one in fields(Details))},
    "scalars": {"tags"},
    "points": {"cursor", "reset", "series"},
    "media": {"tags"},
    "records": {"kind", "records"},
    "table": {"runs"},
    "log": {"next", "lines"},
    "detach": {"ok"},
    "act": {"ok", "checkpoints"},
    "login": {"ok"},
    "healthz": {"ok"},
}
"""The members of the JSON answers, by handler."""


@pytest.mark.asyncio
async def test_each_endpoint_answers_and_refuses_foreign_host_names() -> None:
    run = ScriptedRun()
    run.scalars.add("loss", 1, float("nan"), 2.0)
    run.media.add("digit", 1, 2.0, Picture(b"\x89PNG\r\n\x1a\n", 1, 1))
    run.config["rate"] = 0.5
    run.facts = Details(
        hooks=run.facts.hooks,
        checkpoints=run.facts.checkpoints,
        tasks=(TaskStatistics(name="background", waits_for="sleep", done=False),),
        timers=(TimerStatistics(name="saver", every_secs=600.0, next_secs=3.5),),
        loop_lag=LoopLag(p50=0.1, p95=0.2, p99=0.3, max=0.4),
        queues=(QueueStatistics(name="input", size=3, capacity=10),),
        saving=Saving(path="runs/model.ckpt-8", step=8, started=1.0),
    )
    fill = {"{run}": "digits", "{action}": "verify", "{hook}": "StepCounterHook", "{name}": "main.js"}
    app = am.monitor.create_app(run)
    async with client(app) as http:
        for endpoint in ENDPOINTS:
            if endpoint.handler == "events":
                continue  # a stream: test_feed.py
            path = endpoint.path
            for key, value in fill.items():
                path = path.replace(key, value)
            given = {"points": "loss", "records": "digit", "image": "digit"}.get(endpoint.handler)
            query = {"tag": given, "id": "0"} if given else {}
            body = {"token": "x"} if endpoint.handler == "login" else None
            answer = await http.request(endpoint.method, path, params=query, json=body)
            assert answer.status_code == 200, path
            if endpoint.handler == "remove":
                app.state.runs.add(None, run)
            if endpoint.handler in ANSWERS:
                assert answer.json().keys() == ANSWERS[endpoint.handler], path
            refused = await http.request(endpoint.method, path, headers={"host": "evil.example"})
            assert refused.status_code == 403
            assert refused.json().keys() == {"error"}
    routes: list[Any] = am.monitor.create_app(run).routes
    routed = {(method, route.path) for route in routes for method in route.methods - {"HEAD"}}
    assert routed == {(endpoint.method, endpoint.route) for endpoint in ENDPOINTS}
    assert set(ACTIONS) == {"save", "stop", "pause", "resume", "verify"}
