"""The application under a real server: streams, slow readers, mounting, and an end in time."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import asyncmon as am
from tests import forked
from tests.monitor.scripted import BEARER, TOKEN, ScriptedRun

SERVICE = """
import sys
from contextlib import asynccontextmanager
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
import asyncmon as am

@asynccontextmanager
async def lifespan(app):
    yield
    print("the host has ended", flush=True)

monitor = am.monitor.create_app(sys.argv[1])
host = Starlette(routes=[Mount("/train", monitor)], lifespan=lifespan)
app = host if sys.argv[2] == "mounted" else monitor
config = uvicorn.Config(app, port=0, log_level="warning")
listener = config.bind_socket()
listener.listen()
print(listener.getsockname()[1], flush=True)
uvicorn.Server(config).run(sockets=[listener])
"""


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """Serve an application on a free port of this machine; yield its URL."""
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            async with asyncio.timeout(8):
                await task


async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    kind = ""
    async for line in lines:
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            yield kind, json.loads(line[6:])


@pytest.mark.asyncio
async def test_a_stream_of_a_mounted_monitor_ends_with_its_server() -> None:
    run = ScriptedRun()
    outer = Starlette(
        routes=[
            Route("/predict", lambda _: PlainTextResponse("7")),
            Mount("/train", am.monitor.create_app(run, token=TOKEN)),
        ]
    )
    async with httpx.AsyncClient(headers=BEARER, follow_redirects=True) as http:
        async with serving(outer) as url:
            page = await http.get(f"{url}/train")
            assert str(page.url) == f"{url}/train/"
            assert "<title>" in page.text
            assert (await http.get(f"{url}/predict")).text == "7"
            stream = http.stream("GET", f"{url}/train/api/events")
            answer = await stream.__aenter__()
            found = events(answer.aiter_lines())
            assert (await anext(found))[0] == "runs"
            run.scalars.add("loss", 1, 0.5, 0.0)
            async for kind, data in found:
                if kind == "scalars":
                    assert data["series"]["loss"]["steps"] == [1]
                    break
        assert [kind async for kind, _ in found] == []  # the server has ended it, in order
        await stream.__aexit__(None, None, None)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("monitor")]


@pytest.mark.asyncio
async def test_a_reader_that_reads_nothing_is_bounded_and_delays_no_other() -> None:
    run = ScriptedRun()
    app = am.monitor.create_app(run)
    loop = asyncio.get_running_loop()
    async with serving(app) as url, httpx.AsyncClient() as http:
        port = int(url.rpartition(":")[2])
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            await loop.sock_connect(slow, ("127.0.0.1", port))
            request = b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            await loop.sock_sendall(slow, request)
            async with http.stream("GET", f"{url}/api/events") as answer:
                found = events(answer.aiter_lines())
                await anext(found)
                tracemalloc.start()
                try:
                    for number in range(40):
                        for step in range(1_500):
                            run.scalars.add("loss", 1_500 * number + step, 0.5, 1e9)
                        async for kind, data in found:
                            if kind == "scalars":
                                assert data["series"]["loss"]["steps"][0] == 1_500 * number
                                break
                    most = tracemalloc.get_traced_memory()[1]
                finally:
                    tracemalloc.stop()
        assert app.state.feed.buffered_bytes <= 1 << 20
        assert most < 16_000_000
        assert (await http.get(f"{url}/healthz")).status_code == 200


@pytest.mark.parametrize("how", ["mounted", "alone"])
def test_open_streams_do_not_hold_a_graceful_shutdown(tmp_path: Path, how: str) -> None:
    with forked.Process("-c", SERVICE, str(tmp_path), how, options=("-W", "error")) as child:
        try:
            address = ("127.0.0.1", int(child.stdout.readline()))
            prefix = "/train" if how == "mounted" else ""
            with socket.create_connection(address, timeout=10) as viewer:
                request = f"GET {prefix}/api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
                viewer.sendall(request.encode())
                received = b""
                while b"event: runs" not in received:
                    received += viewer.recv(4096)
                child.send_signal(signal.SIGTERM)
                out, err = child.communicate(timeout=8)
        finally:
            child.kill()
    assert out == ("the host has ended\n" if how == "mounted" else "")
    assert err == ""
    assert child.returncode in (0, -signal.SIGTERM)
