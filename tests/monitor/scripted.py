"""A run as a test needs it, an application around it, and what reads its events."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import httpx

from asyncmon.monitor.media import Media
from asyncmon.monitor.run import ActionError, CheckpointFacts, Details, HookRow, Status
from asyncmon.monitor.scalars import Scalars

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.types import ASGIApp

    from asyncmon.monitor.run import Action

TOKEN = "a-token-that-is-long-enough"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@dataclass(eq=False)
class ScriptedRun:
    """A run whose facts are what the test sets."""

    name: str = "digits"
    kind: Literal["live", "directory"] = "live"
    scalars: Scalars = field(default_factory=Scalars)
    media: Media = field(default_factory=Media)
    config: dict[str, Any] = field(default_factory=dict)
    poll_secs: float = 0.0
    row: Status = field(default_factory=lambda: Status(state="open", step=7))
    facts: Details = field(
        default_factory=lambda: Details(
            hooks=(HookRow(id="StepCounterHook", name="StepCounterHook"),),
            checkpoints=(CheckpointFacts(path="runs/model.ckpt-7", step=7, saved=1.0, bytes=10),),
        )
    )
    asked: list[Any] = field(default_factory=list)
    hold: asyncio.Event | None = None
    reads: int = 0

    async def refresh(self) -> None:
        self.reads += 1
        if self.hold is not None:
            await self.hold.wait()

    def status(self) -> Status:
        return self.row

    async def details(self) -> Details:
        return self.facts

    async def act(self, action: Action, reason: str | None) -> Mapping[str, Any]:
        if action == "resume":
            raise ActionError("The run is not paused.")
        self.asked.append((action, reason))
        return {"path": "runs/model.ckpt-7"} if action == "save" else {}

    async def verify(self) -> tuple[CheckpointFacts, ...]:
        return self.facts.checkpoints

    async def detach(self, hook: str) -> None:
        if hook != "StepCounterHook":
            raise KeyError(hook)
        self.asked.append(("detach", hook))


def client(app: ASGIApp, address: str = "127.0.0.1", **options: Any) -> httpx.AsyncClient:
    """Return a client without a network in between, which has this address."""
    transport = httpx.ASGITransport(app=app, client=(address, 50000), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, **{"base_url": "http://127.0.0.1:6060", **options})


@dataclass
class Viewer:
    """What a viewer has received: whole events."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    status: int = 0
    received: asyncio.Event = field(default_factory=asyncio.Event)
    end: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def events(self) -> list[tuple[str, int, Any]]:
        """Kind, id and data of each event so far."""
        found = []
        for block in self.text.split("\n\n")[:-1]:
            facts = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "event" in facts:
                found.append((facts["event"], int(facts["id"]), json.loads(facts["data"])))
        return found

    async def until(self, kind: str, count: int = 1) -> list[tuple[str, int, Any]]:
        """Wait until a number of events of a kind have come; return all of them."""
        while len(found := [event for event in self.events if event[0] == kind]) < count:
            self.received.clear()
            await self.received.wait()
        return found


@asynccontextmanager
async def viewing(
    app: ASGIApp, path: str = "/api/events", viewer: Viewer | None = None, **headers: str
) -> AsyncIterator[Viewer]:
    """Open the events as a server does, and yield what comes; leave as a viewer that goes away."""
    viewer = viewer or Viewer()
    viewer.reading.set()
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:
            await viewer.gone.wait()
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            viewer.status = message["status"]
        await viewer.reading.wait()
        if not message.get("more_body", True):
            viewer.end.set()
        viewer.text += message.get("body", b"").decode()
        viewer.received.set()

    task = asyncio.create_task(app(_scope(path, headers), receive, send))  # type: ignore[arg-type]  # a coroutine
    try:
        yield viewer
    finally:
        viewer.gone.set()
        await task


async def answered(app: ASGIApp, path: str) -> tuple[int, bytes]:
    """Return status and body of the answer to a GET of this very path, as a server passes it on."""
    status, body = 0, b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    await app(_scope(path, {}), receive, send)
    return status, body


def _scope(path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    route, _, query = path.partition("?")
    given = {"host": "127.0.0.1:6060", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return {
        "type": "http", "method": "GET", "path": unquote(route), "raw_path": route.encode(),
        "query_string": query.encode(), "scheme": "http", "http_version": "1.1", "root_path": "",
        "server": ("127.0.0.1", 6060), "client": ("127.0.0.1", 50000), "asgi": {"version": "3.0"},
        "headers": [(k.encode(), v.encode()) for k, v in given.items()],
    }  # fmt: skip
