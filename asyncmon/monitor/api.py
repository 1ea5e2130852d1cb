"""The handlers of the endpoints."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Mapping
from typing import Any, Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from asyncmon.errors import OpError
from asyncmon.monitor.encoding import encode_series, members, to_json
from asyncmon.monitor.endpoints import ACTIONS
from asyncmon.monitor.feed import READ_SECS, EventStream, Feed
from asyncmon.monitor.guard import Credentials, client_of
from asyncmon.monitor.log_lines import LogLines
from asyncmon.monitor.media import Picture, Record, image_type, records_json
from asyncmon.monitor.page_files import page_file
from asyncmon.monitor.run import ActionError
from asyncmon.monitor.runs import Entry, Runs
from asyncmon.monitor.scalars import Part, downsample, means
from asyncmon.system.asgi import Answer, Failure, read_object
from asyncmon.system.files import in_thread

logger = logging.getLogger(__name__)

_MOST_TAGS = 200


class Api:
    """The endpoints, one public method each."""

    def __init__(
        self, runs: Runs, feed: Feed, log: LogLines, credentials: Credentials, registry: Any
    ) -> None:
        self._runs = runs
        self._feed = feed
        self._log = log
        self._credentials = credentials
        self._registry = registry

    async def runs(self, request: Request) -> ASGIApp:
        await self._runs.read(READ_SECS)
        return _json({"runs": self._runs.rows()})

    async def run(self, request: Request) -> ASGIApp:
        entry = await self._entry(request)
        details = await entry.run.details()
        return _json({**entry.row(), **members(details)})

    async def scalars(self, request: Request) -> ASGIApp:
        entry = await self._entry(request)
        self._feed.publish()
        return _json({"tags": [point._asdict() for point in entry.run.scalars.tags()]})

    async def points(self, request: Request) -> ASGIApp:
        query = request.state.query
        tags, after = query["tag"], query["after"]
        if not 0 < len(tags) <= _MOST_TAGS:
            raise Failure(400, f"Give 1 to {_MOST_TAGS} parameters `tag`, not {len(tags)}.")
        part = _part(query)
        reduce = means if query["reduce"] == "mean" else downsample
        entry = await self._entry(request)
        scalars = entry.run.scalars
        cursor = self._feed.publish()
        resumes = after is not None and after <= cursor and scalars.knows(tags, after)
        series = scalars.points(tags, after if resumes else None)

        def encode() -> bytes:
            kept = series if part is None else {tag: part.of(one) for tag, one in series.items()}
            return encode_series({tag: reduce(one, query["max_points"]) for tag, one in kept.items()})

        encoded = await in_thread(encode)
        body = b'{"cursor":%d,"reset":%b,"series":%b}'
        reset = b"true" if after is not None and not resumes else b"false"
        return Response(body % (cursor, reset, encoded), media_type="application/json")

    async def media(self, request: Request) -> ASGIApp:
        entry = await self._entry(request)
        return _json({"tags": [last._asdict() for last in entry.run.media.tags()]})

    async def records(self, request: Request) -> ASGIApp:
        entry = await self._entry(request)
        records = self._records(request, entry)
        return _json(await in_thread(records_json, records, request.state.query["bins"]))

    async def image(self, request: Request) -> ASGIApp:
        number = request.state.query["id"]
        for record in self._records(request, await self._entry(request)):
            if record.id == number and isinstance(record.content, Picture):
                type_ = image_type(record.content.data)
                return Response(record.content.data, media_type=type_)
        raise Failure(404, f"There is no image {number}; older ones are dropped.")

    def _records(self, request: Request, entry: Entry) -> list[Record]:
        tag = request.state.query["tag"] or ""
        found = entry.run.media.records(tag)
        if not found:
            raise Failure(404, f"The run {entry.name!r} has no histogram, image or text {tag!r}.")
        return found

    async def table(self, request: Request) -> ASGIApp:
        columns = request.state.query["column"]
        if len(columns) > _MOST_TAGS:
            raise Failure(400, f"Give up to {_MOST_TAGS} parameters `column`, not {len(columns)}.")
        await self._runs.read(READ_SECS)
        self._feed.publish()
        rows = []
        for entry in self._runs:
            last = {point.tag: point.value for point in entry.run.scalars.tags(columns)}
            rows.append({"id": entry.id, "config": entry.run.config, "last": last})
        return _json({"runs": rows})

    async def log(self, request: Request) -> ASGIApp:
        entry = await self._entry(request)
        after = request.state.query["after"]
        lines = self._log.after(after, self._runs.id_of) if entry.run.kind == "live" else []
        shown = [line for line in lines if line["run"] in (None, entry.id)]  # None: of no single run
        return _json({"next": self._log.next, "lines": shown})

    async def events(self, request: Request) -> EventStream:
        after = request.state.query["after"]
        resumed = request.headers.get("last-event-id", "")
        if resumed.isascii() and resumed.isdigit() and len(resumed) < 20:
            after = int(resumed)
        return EventStream(self._feed, after)

    async def act(self, request: Request) -> ASGIApp:
        entry = self._find(request)
        action = request.path_params["action"]
        if action not in ACTIONS:
            raise Failure(404, f"There is no action {action!r}; there are: {', '.join(ACTIONS)}.")
        reason = (await read_object(request.stream())).get("reason")
        if reason is not None and not isinstance(reason, str):
            raise Failure(400, f"The reason must be a text, not {reason!r}.")
        logger.info("%s of the run %r, for %s", action, entry.name, client_of(request.scope))
        if action == "verify":
            checkpoints = await _done(entry.run.verify())
            return _json({"ok": True, "checkpoints": checkpoints})
        return _json({"ok": True, **await _done(entry.run.act(action, reason))})

    async def remove(self, request: Request) -> ASGIApp:
        entry = self._find(request)
        await read_object(request.stream())
        logger.info("remove the run %r, for %s", entry.name, client_of(request.scope))
        self._runs.remove(entry.id)
        self._feed.publish()
        return _json({"ok": True})

    async def detach(self, request: Request) -> ASGIApp:
        entry = self._find(request)
        hook = request.path_params["hook"]
        await read_object(request.stream())
        logger.info("detach %r of %r, for %s", hook, entry.name, client_of(request.scope))
        try:
            await _done(entry.run.detach(hook))
        except KeyError:
            raise Failure(404, f"The run {entry.name!r} has no hook {hook!r}.") from None
        return _json({"ok": True})

    async def login(self, request: Request) -> ASGIApp:
        token = (await read_object(request.stream())).get("token")
        if not isinstance(token, str):
            raise Failure(400, 'Expected {"token": "..."}.')
        if not self._credentials.needed:
            return _json({"ok": True})
        self._credentials.check(client_of(request.scope), token)
        cookie = self._credentials.login_cookie(request.scope)
        return _json({"ok": True}, {"set-cookie": cookie})

    async def healthz(self, request: Request) -> ASGIApp:
        return _json({"ok": True})

    async def metrics(self, request: Request) -> ASGIApp:
        try:
            import prometheus_client
        except ImportError:
            raise Failure(404, "Metrics need prometheus-client: pip install 'asyncmon[web]'") from None
        text = prometheus_client.generate_latest(self._registry or prometheus_client.REGISTRY)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    async def page(self, request: Request) -> ASGIApp:
        file = await page_file(request.path_params.get("name", ""))
        if file is None:
            raise HTTPException(404)
        headers = {"etag": file.tag, "cache-control": "no-cache"}
        tags = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
        if file.tag in tags or "*" in tags:
            return Response(status_code=304, headers=headers)
        return Response(file.body, headers=headers, media_type=file.type)

    def _find(self, request: Request) -> Entry:
        given = request.path_params["run"]
        try:
            return self._runs[given]
        except KeyError:
            raise Failure(404, f"There is no run {given!r}: api/runs lists them.") from None

    async def _entry(self, request: Request) -> Entry:
        """Return the run of a request, after reading its new data."""
        try:
            entry = self._find(request)
        except Failure:
            await self._runs.read(READ_SECS)  # the first scan finds the runs of a log directory
            entry = self._find(request)
        else:
            await self._runs.read(READ_SECS, entry)
        return entry


def _json(value: Any, headers: dict[str, str] | None = None) -> Answer:
    return Answer(to_json(value), headers=headers)


def _part(query: Mapping[str, Any]) -> Part | None:
    """Return the range given by the parameters ``by``, ``low`` and ``high``; None for all points."""
    low, high = query["low"], query["high"]
    if low is None and high is None:
        return None
    by: Literal["steps", "wall_times"] = "steps" if query["by"] == "step" else "wall_times"
    return Part(by, -math.inf if low is None else low, math.inf if high is None else high)


async def _done(action: Awaitable[Any]) -> Any:
    """Await an action of a run; its failure becomes a response with status 409."""
    try:
        return await action
    except (ActionError, OpError, OSError, RuntimeError) as error:
        raise Failure(409, str(error) or repr(error)) from error
