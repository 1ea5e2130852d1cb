"""Connections without a complete request cost neither the training nor other visitors anything."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

import asyncmon as am
from asyncmon.monitor import connections
from asyncmon.monitor.connections import MOST_OF_CLIENT, RESERVE, Connections
from asyncmon.system import portable
from tests.monitor.scripted import BEARER, TOKEN, ScriptedRun

pytestmark = pytest.mark.asyncio

pytest.importorskip("uvicorn", reason="the extra `web` is not installed")

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "


@asynccontextmanager
async def served() -> AsyncIterator[am.monitor.MonitorServer]:
    async with am.monitor.serve(ScriptedRun(), port=0, token=TOKEN) as monitor:
        yield monitor


@asynccontextmanager
async def visitors(monitor: am.monitor.MonitorServer, count: int) -> AsyncIterator[list[Any]]:
    """Connections that have each sent half a request."""
    port = int(monitor.url.partition("/#")[0].rpartition(":")[2])
    opened = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HALF)
            opened.append((reader, writer))
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


async def is_closed(visitor: Any) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return bool(await visitor[0].read() == b"")
    return True


async def test_half_requests_leave_room_for_a_visitor() -> None:
    async with served() as monitor, visitors(monitor, 300) as opened:
        url = monitor.url.partition("#")[0]
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(f"{url}api/runs", headers=BEARER)).status_code == 200
        # The longest of them are replaced by the latest.
        ended = [await is_closed(one) for one in opened[:-MOST_OF_CLIENT]]
        assert ended == [True] * len(ended)


async def test_head_of_a_request_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECS", 0.1)
    async with served() as monitor, visitors(monitor, 3) as opened:
        assert [await is_closed(one) for one in opened] == [True] * 3
    async with served() as monitor, visitors(monitor, 1) as opened:
        reader, writer = opened[0]
        writer.write(b"\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.write(HALF)  # a further request
        await asyncio.wait_for(reader.read(), 5)


async def test_last_descriptors_are_left_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryFile() as file:
        used = file.fileno()
    async with served() as monitor:
        monkeypatch.setattr(portable, "most_descriptors", lambda: used + RESERVE)
        async with visitors(monitor, 2) as opened:
            assert [await is_closed(one) for one in opened] == [True] * 2
        monkeypatch.setattr(portable, "most_descriptors", lambda: None)
        async with httpx.AsyncClient(trust_env=False) as http:
            url = monitor.url.partition("#")[0]
            assert (await http.get(f"{url}api/runs", headers=BEARER)).status_code == 200


class Connection:
    """A protocol that may have an open request."""

    def __init__(self, busy: bool) -> None:
        self.busy, self.aborted, self.transport = busy, False, self

    def is_busy(self) -> bool:
        return self.busy

    def abort(self) -> None:
        self.aborted = True


async def test_requests_under_way_are_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    table = Connections(most=4, most_of_client=2)
    busy, idle, others = Connection(True), Connection(False), [Connection(True) for _ in range(3)]
    assert table.add(busy, "a", 9)
    assert table.add(idle, "a", 9)
    last = Connection(True)
    assert table.add(last, "a", 9)
    assert (busy.aborted, idle.aborted) == (False, True)
    assert not table.add(Connection(False), "a", 9)  # both of this address have an open request
    assert [table.add(one, client, 9) for one, client in zip(others, "bcd", strict=True)] == [
        True, True, False,
    ]  # fmt: skip
    assert len(table) == 4
    assert caplog.text.count("refuses connections") == 1
    table.remove(last)
    assert table.add(Connection(False), "a", 9)
