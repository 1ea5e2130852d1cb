"""``am.monitor.serve`` in a script, and a module-level application with a session in each lifespan."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import asyncmon as am
from asyncmon.monitor.serving import PORT
from tests import forked
from tests.monitor.scripted import BEARER, TOKEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.applications import Starlette

pytest.importorskip("uvicorn", reason="the extra `web` is not installed")

SCRIPT = """
import asyncio, sys
import asyncmon as am

program = am.programs.FunctionProgram(state={"weight": 0.0})

@program.step
async def train(state):
    state["weight"] += 0.1

async def main():
    session = am.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], program=program)
    await am.monitor.serve({"script": session}, port=0)
    async with session:
        while not session.should_stop():
            await session.run("train")
            await asyncio.sleep(0.01)

am.run(main)
"""


def make_session(directory: Path) -> am.MonitoredSession:
    program = am.programs.FunctionProgram(state={"weight": 0.0})

    @program.step
    async def train(state: Any) -> None:
        state["weight"] += 0.1

    return am.MonitoredTrainingSession(checkpoint_dir=directory, program=program, name="session")


async def see(sess: am.MonitoredSession, monitor: am.monitor.MonitorServer, printed: str) -> None:
    assert printed == f"{monitor.url}\n"
    assert monitor.url.startswith("http://127.0.0.1:")
    await sess.run("train")
    async with httpx.AsyncClient(base_url=monitor.url) as http:
        row = (await http.get("api/runs")).json()["runs"][0]
        assert (row["id"], row["state"], row["step"]) == ("session", "open", 1)
        assert "asyncmon" in (await http.get("")).text
        await http.post("api/runs/session/stop", json={"reason": "enough"})
    assert sess.stop_reason == "enough"


@pytest.mark.asyncio
async def test_a_session_is_served_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with make_session(tmp_path) as sess:
        handlers = list(map(signal.getsignal, (signal.SIGINT, signal.SIGTERM)))
        async with am.monitor.serve(sess, port=0) as monitor:
            await see(sess, monitor, capsys.readouterr().out)
            assert handlers == list(map(signal.getsignal, (signal.SIGINT, signal.SIGTERM)))
            url = monitor.url
    async with httpx.AsyncClient(base_url=url) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("api/runs")
    with pytest.raises(RuntimeError, match="not served"):
        assert monitor.url
    with pytest.raises(RuntimeError, match="started before"):
        await monitor


@pytest.mark.asyncio
async def test_viewers_do_not_delay_the_end(tmp_path: Path) -> None:
    monitor = await am.monitor.serve(tmp_path, port=0)
    http = httpx.AsyncClient(base_url=monitor.url, timeout=None)
    async with http, http.stream("GET", "api/events") as answer:
        chunks = answer.aiter_bytes()
        assert b"event: runs" in await anext(chunks)
        async with asyncio.timeout(2):
            await monitor.close()
            assert all([chunk is not None async for chunk in chunks])  # the stream ends in order
    await monitor.close()


@pytest.mark.asyncio
async def test_a_token_is_needed_beyond_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASYNCMON_TOKEN", raising=False)
    with pytest.raises(ValueError, match="from other machines, which needs a token: pass token="):
        am.monitor.serve(tmp_path, host="0.0.0.0")
    with pytest.raises(ValueError, match="16 printable"):
        am.monitor.serve(tmp_path, token="short")
    monkeypatch.setenv("ASYNCMON_TOKEN", TOKEN)
    async with am.monitor.serve(tmp_path, port=0) as monitor:
        assert monitor.url.endswith(f"/#token={TOKEN}")
        async with httpx.AsyncClient(base_url=monitor.url.partition("#")[0]) as http:
            assert (await http.get("api/runs")).status_code == 401
            assert (await http.get("api/runs", headers=BEARER)).status_code == 200


@pytest.mark.asyncio
async def test_a_taken_port_is_an_error_only_if_it_was_requested(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        await am.monitor.serve(tmp_path, port=other.getsockname()[1])
    async with am.monitor.serve(tmp_path) as first, am.monitor.serve(tmp_path) as second:
        assert first.url != second.url
        assert f":{PORT}/" not in second.url


def test_a_script_serves_until_it_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = forked.Process(script, str(tmp_path / "run"))
    try:
        url = process.stdout.readline().strip()
        while (row := httpx.get(f"{url}api/runs").json()["runs"][0])["state"] != "open":
            assert row["state"] in ("new", "opening")
        assert httpx.post(f"{url}api/runs/script/save").status_code == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert "Traceback" not in errors, errors
    assert process.returncode == 75, errors  # stopped by the signal, to be continued


VIEWED = """
import asyncio, sys, threading, urllib.request
import asyncmon as am

async def main():
    monitor = await am.monitor.serve(sys.argv[1], port=0)
    seen = asyncio.get_running_loop().create_future()

    def view():
        with urllib.request.urlopen(monitor.url + "api/events") as answer:
            answer.readline()
            seen.get_loop().call_soon_threadsafe(seen.set_result, None)
            answer.read()
        sys.stdout.write("in order")

    viewer = threading.Thread(target=view)
    viewer.start()
    await seen
    return viewer

asyncio.run(main()).join()
"""


def test_a_viewer_at_the_end_of_a_script_gets_the_end_of_its_stream(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(VIEWED)
    done = forked.run(script, str(tmp_path), options=("-W", "error"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("in order")


def service(directory: Path) -> Starlette:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Mount, Route

    monitor = am.monitor.create_app([])

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with make_session(directory) as app.state.session:
            monitor.state.runs.add("service", app.state.session)
            yield

    async def learn(request: Request) -> JSONResponse:
        await request.app.state.session.run("train")
        return JSONResponse(request.app.state.session.global_step)

    routes = [Route("/learn", learn, methods=["POST"]), Mount("/train", monitor)]
    return Starlette(routes=routes, lifespan=lifespan)


def test_a_service_opens_a_session_in_each_lifespan(tmp_path: Path) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    app = service(tmp_path)
    for first in (0, 2):
        options = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 50000)}
        with testclient.TestClient(app, **options) as http:
            assert [http.post("/learn").json() for _ in range(2)] == [first + 1, first + 2]
            rows = http.get("/train/api/runs").json()["runs"]
            assert [(row["id"], row["name"], row["state"]) for row in rows] == [
                ("service", "service", "open")
            ]
            assert http.get("/train/api/runs/service").json()["step"] == first + 2
