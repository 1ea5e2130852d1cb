"""The monitor as an ASGI application, served alone or mounted in a service."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.routing import Route
    from starlette.types import ASGIApp
except ImportError as missing:
    raise ImportError("The monitor needs Starlette: pip install 'asyncmon[web]'") from missing

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

from asyncmon.monitor.api import Api
from asyncmon.monitor.endpoints import ENDPOINTS, Endpoint, read_query
from asyncmon.monitor.feed import Feed
from asyncmon.monitor.guard import Authenticate, Credentials, Guard, refuse, require_login
from asyncmon.monitor.log_lines import LogLines
from asyncmon.monitor.runs import Runs
from asyncmon.system.asgi import Answer, Failure
from asyncmon.system.signals import server_is_stopping


def create_app(
    runs: Any,
    *,
    token: str | None = None,
    loggers: Iterable[str] = ("asyncmon",),
    registry: Any = None,
    authenticate: Authenticate | None = None,
) -> Starlette:
    """Return an application that shows runs on one page and has a JSON API.

    It may be mounted anywhere (``Mount("/train", app)``) and needs no lifespan: no task runs without a
    viewer. ``app.state.runs`` is the table of runs; runs may be added to it at any time.

    Args:
        runs: a session, opened or not; the path of a log directory; a list of these; or a mapping of
            names to them.
        token: the secret that every request needs, 16 characters or more. None: only clients on this
            machine have access.
        loggers: the loggers whose records are shown, from this call on.
        registry: the Prometheus registry for ``/metrics``; the process's by default.
        authenticate: the check of a service that mounts this application: called with each request,
            and returns whether it is allowed, or an awaitable of it. In place of a token.

    Raises:
        ValueError: the token is too short, or there is a token beside ``authenticate``.
        ImportError: Starlette is not installed.

    Example::

        app = Starlette(routes=[Mount("/train", am.monitor.create_app(session))], lifespan=lifespan)
    """
    if token is not None and authenticate is not None:
        raise ValueError("Pass a token or authenticate, not both: one of them decides.")
    table = Runs(runs)
    credentials = Credentials(token)
    log = LogLines(loggers)
    feed = Feed(table, log, server_is_stopping)
    api = Api(table, feed, log, credentials, registry)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            feed.close()
            await table.close()
            log.close()

    routes = [
        Route(
            endpoint.route,
            _checked(getattr(api, endpoint.handler), endpoint),
            methods=[endpoint.method],
            name=endpoint.handler,
        )
        for endpoint in ENDPOINTS
    ]
    handlers: Any = {Failure: refuse, HTTPException: _explain, Exception: _fail}
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, credentials=credentials, authenticate=authenticate)],
        exception_handlers=handlers,
        lifespan=lifespan,
    )
    app.state.runs = table
    app.state.feed = feed
    return app


def _checked(
    handler: Callable[[Request], Awaitable[ASGIApp]], endpoint: Endpoint
) -> Callable[[Request], Awaitable[ASGIApp]]:
    async def respond(request: Request) -> ASGIApp:
        if not endpoint.public:
            require_login(request.scope)
        request.state.query = read_query(endpoint, request.query_params)
        return await handler(request)

    return respond


async def _explain(request: Request, error: Exception) -> Answer:
    assert isinstance(error, HTTPException), "registered for it"
    text = {
        404: "There is nothing here: api/runs lists the runs.",
        405: f"{request.method} is not allowed here.",
    }.get(error.status_code, error.detail)
    return Failure(error.status_code, text, dict(error.headers or {})).answer()


async def _fail(request: Request, error: Exception) -> Answer:
    return Failure(500, "The monitor has failed to answer; its log says why.").answer()
