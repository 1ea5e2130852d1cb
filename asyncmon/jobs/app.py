"""The queue as an ASGI application, in the shapes of fine-tuning APIs. Mounted in a service."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError as missing:
    raise ImportError("create_app needs Starlette: pip install 'asyncmon[web]'") from missing

from asyncmon.jobs.job import Event, Job
from asyncmon.jobs.job_queue import JobQueue
from asyncmon.jobs.table import ACTIVE, State, StateError
from asyncmon.monitor.encoding import to_json
from asyncmon.monitor.event_stream import send_events
from asyncmon.monitor.guard import (
    Authenticate,
    Credentials,
    Guard,
    Rates,
    refuse,
    require_login,
)
from asyncmon.system.asgi import Answer, Failure, read_object
from asyncmon.system.signals import server_is_stopping

HEARTBEAT_SECS = 15.0
MOST_STREAMS = 100
_MOST_ROWS = 1_000
_KEYS = {"kind", "params", "name", "priority"}


def create_app(
    queue: JobQueue, authenticate: Authenticate | None = None, *, token: str | None = None
) -> Starlette:
    """Return an application that submits, lists, steers and follows jobs; see ``docs/jobs.md``.

    It may be mounted anywhere (``Mount("/jobs", app)``) and needs no lifespan: the service opens the
    queue in its own. Streams of events end when uvicorn stops.

    Args:
        queue: answers are 503 while it is not open.
        authenticate: the check of the service, in place of a token: called with each request, and
            returns whether it is allowed, or an awaitable of it.
        token: the secret that every request needs, 16 characters or more. None: only clients on this
            machine have access.

    Raises:
        ValueError: the token is too short, or there is a token beside ``authenticate``.
        ImportError: Starlette is not installed.

    Example::

        @contextlib.asynccontextmanager
        async def lifespan(app):
            async with queue:
                yield

        app = Starlette(routes=[Mount("/jobs", am.jobs.create_app(queue))], lifespan=lifespan)
    """
    if token is not None and authenticate is not None:
        raise ValueError("Pass a token or authenticate, not both: one of them decides.")
    api = _Api(queue)
    routes = [
        Route("/", _checked(api.submit), methods=["POST"]),
        Route("/", _checked(api.list), methods=["GET"]),
        Route("/{job}", _checked(api.get), methods=["GET"], name="job"),
        Route("/{job}", _checked(api.delete), methods=["DELETE"]),
        Route("/{job}/cancel", _checked(api.cancel), methods=["POST"]),
        Route("/{job}/pause", _checked(api.pause), methods=["POST"]),
        Route("/{job}/resume", _checked(api.resume), methods=["POST"]),
        Route("/{job}/events", _checked(api.events), methods=["GET"]),
    ]
    guard = Middleware(
        Guard, credentials=Credentials(token), authenticate=authenticate,
        actions=Rates(burst=1_000, secs=0.01), page="The jobs",
    )  # fmt: skip
    handlers: Any = {Failure: refuse, HTTPException: _explain, Exception: _fail}
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)


class _Api:
    """The handlers, one method each."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self._streams = 0

    async def submit(self, request: Request) -> ASGIApp:
        given = await _body(request)
        if unknown := given.keys() - _KEYS:
            raise Failure(400, f"Unknown: {', '.join(sorted(unknown))}; there are {sorted(_KEYS)}.")
        if not isinstance(given.get("kind"), str):
            raise Failure(400, 'Expected {"kind": "...", "params": {...}}.')
        try:
            spec = self._queue._spec(
                given["kind"], given.get("params"), given.get("name"), given.get("priority", 0)
            )
            ((job, is_new),) = await self._queue._submit([spec])
        except FileExistsError as error:
            raise Failure(409, str(error)) from None
        except LookupError as error:
            raise Failure(422, str(error)) from None
        except (ValueError, TypeError) as error:
            raise Failure(400, str(error)) from None
        location = str(request.url_for("job", job=job.id))
        return _json(job.as_json(), 201 if is_new else 200, {"location": location})

    async def list(self, request: Request) -> ASGIApp:
        query = request.query_params
        state, after = query.get("state"), query.get("after", "0")
        if state is not None and state not in list(State):
            raise Failure(400, f"There is no state {state!r}; there are: {', '.join(State)}.")
        limit = _integer("limit", query.get("limit", "100"), 1, _MOST_ROWS)
        if not (after.isascii() and after.isdigit()):  # the id of a job, as in other APIs
            after = str((await self._queue.get(after)).number)
        number = _integer("after", after, 0)
        jobs = await self._queue.list(state, query.get("kind"), limit + 1, number)
        page = jobs[:limit]
        last = page[-1].number if page else None
        return _list([job.as_json() for job in page], len(jobs) > limit, last)

    async def get(self, request: Request) -> ASGIApp:
        return _json((await self._job(request)).as_json())

    async def delete(self, request: Request) -> ASGIApp:
        await self._queue.delete(await self._job(request))
        return Response(status_code=204)

    async def cancel(self, request: Request) -> ASGIApp:
        return await self._steer(request, Job.cancel)

    async def pause(self, request: Request) -> ASGIApp:
        return await self._steer(request, Job.pause)

    async def resume(self, request: Request) -> ASGIApp:
        return await self._steer(request, Job.resume)

    async def _steer(self, request: Request, action: Callable[[Job], Awaitable[Job]]) -> ASGIApp:
        await _body(request)
        job = await action(await self._job(request))
        return _json(job.as_json(), 202 if job.state in ACTIVE else 200)

    async def events(self, request: Request) -> ASGIApp:
        job = await self._job(request)
        given = request.headers.get("last-event-id") or request.query_params.get("after", "0")
        after = _integer("after", given, 0)
        if "text/event-stream" in request.headers.get("accept", ""):
            if self._streams >= MOST_STREAMS:
                raise Failure(503, f"{MOST_STREAMS} streams are open already.", {"retry-after": "10"})

            async def stream(scope: Scope, receive: Receive, send: Send) -> None:
                self._streams += 1
                try:
                    await send_events(_chunks(job, after), receive, send)
                finally:
                    self._streams -= 1

            return stream
        limit = _integer("limit", request.query_params.get("limit", "100"), 1, _MOST_ROWS)
        found = await self._queue._read_events(job.id, after, limit + 1)
        last = found[:limit][-1].id if found else None
        return _list([event.as_json() for event in found[:limit]], len(found) > limit, last)

    async def _job(self, request: Request) -> Job:
        return await self._queue.get(request.path_params["job"])


async def _chunks(job: Job, after: int) -> AsyncGenerator[bytes]:
    """Yield events as they are sent, until the job ends or the server stops."""
    events = job.events(after, ends=server_is_stopping)
    coming: asyncio.Task[Event | None] | None = None
    yield b"retry: 1000\n\n"
    try:
        while True:
            coming = coming or asyncio.create_task(_next(events), name="events of a job")
            await asyncio.wait([coming], timeout=HEARTBEAT_SECS)
            if not coming.done():
                yield b":\n\n"  # the heartbeat, a comment of the stream
                continue
            event, coming = coming.result(), None
            if event is None:
                return
            data = to_json(event.as_json())
            yield b"id: %d\nevent: %b\ndata: %b\n\n" % (event.id, event.type.encode(), data)
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait([coming])
        await events.aclose()


async def _next(events: AsyncGenerator[Event]) -> Event | None:
    try:
        return await anext(events, None)
    except (KeyError, RuntimeError, sqlite3.Error):  # it was deleted, or the queue is closed
        return None


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request; an empty body is an empty object."""
    kind = request.headers.get("content-type")
    # A page of another origin can send forms and plain text without asking first.
    if kind is not None and kind.partition(";")[0].strip().lower() != "application/json":
        raise Failure(415, f"A body must be application/json, not {kind!r}.")
    given = await read_object(request.stream())
    if given and kind is None:
        raise Failure(415, "A body must be application/json: send that as Content-Type.")
    return given


def _integer(name: str, text: str, least: int, most: int = 1 << 62) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not least <= number <= most:
        raise Failure(400, f"{name} must be a whole number from {least} to {most}, not {text!r}.")
    return number


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(to_json(value), status, headers)


def _list(data: Iterable[Any], has_more: bool, last: int | None) -> Answer:
    return _json({"object": "list", "data": data, "has_more": has_more, "after": last})


def _checked(
    handler: Callable[[Request], Awaitable[ASGIApp]],
) -> Callable[[Request], Awaitable[ASGIApp]]:
    async def respond(request: Request) -> ASGIApp:
        require_login(request.scope)
        try:
            return await handler(request)
        except KeyError as error:
            raise Failure(404, str(error.args[0])) from None
        except StateError as error:
            raise Failure(409, str(error)) from None
        except sqlite3.Error as error:
            raise Failure(503, f"The queue cannot be used: {error}.", {"retry-after": "10"}) from None
        except RuntimeError as error:  # it is not open
            raise Failure(503, str(error), {"retry-after": "10"}) from None

    return respond


async def _explain(request: Request, error: Exception) -> Answer:
    assert isinstance(error, HTTPException), "registered for it"
    return Failure(error.status_code, error.detail, dict(error.headers or {})).answer()


async def _fail(request: Request, error: Exception) -> Answer:
    return Failure(500, "The queue has failed to answer; the log says why.").answer()
