"""Serve the monitor with uvicorn: within a script, or as a process of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

try:
    import uvicorn
    from starlette.types import Message, Receive, Scope, Send
    from uvicorn.protocols.http.auto import AutoHTTPProtocol
except ImportError as missing:
    raise ImportError("The monitor needs uvicorn: pip install 'asyncmon[web]'") from missing

from asyncmon.monitor.app import create_app
from asyncmon.monitor.connections import BACKLOG, Connections, bounded
from asyncmon.monitor.guard import is_loopback

PORT = 6060

TOKEN_VARIABLE = "ASYNCMON_TOKEN"
"""The environment variable with the token."""


class MonitorServer:
    """A server of the monitor's page. Made by :func:`serve`.

    ``async with`` serves until the end of the block. ``await`` starts it and returns it; it then serves
    until :meth:`close`, or until the event loop ends. It installs no signal handler.

    Attributes:
        app: the application; ``app.state.runs`` is the table of runs.
    """

    def __init__(self, app: Any, host: str, port: int | None, token: str | None) -> None:
        self.app = app
        self._host, self._port, self._token = host, port, token
        self._listener: socket.socket | None = None
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The page's address once it is served, with the token, if any, after ``#``.

        Raises:
            RuntimeError: it has not been started, or has ended.
        """
        if self._listener is None or self._listener.fileno() < 0:
            raise RuntimeError("The monitor is not served: await it, or enter `async with`.")
        shown = f"[{self._host}]" if ":" in self._host else self._host
        secret = f"#token={self._token}" if self._token else ""  # never sent to a server, nor logged
        return f"http://{shown}:{self._listener.getsockname()[1]}/{secret}"

    def __await__(self) -> Generator[Any, None, Self]:
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        return await self._start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _start(self) -> Self:
        listener = self._listen()
        self._server = server = _Server(self._config(self._answer, log_config=None, lifespan="off"))
        self._serving = asyncio.create_task(self._serve(server, listener), name="monitor, server")
        ready = asyncio.create_task(server.ready.wait())
        try:
            await asyncio.wait([ready, self._serving], return_when=asyncio.FIRST_COMPLETED)
            if self._serving.done():
                self._serving.result()
        except BaseException:
            self._serving.cancel()
            raise
        finally:
            ready.cancel()
        self._print()
        return self

    async def close(self) -> None:
        """End the streams of viewers and stop serving. Idempotent.

        Responses in progress get five seconds, or none if this call is cancelled.
        """
        if self._serving is None or self._server is None:
            return
        self.app.state.feed.close()
        self._server.should_exit = True
        try:
            await asyncio.wait([self._serving])
        except asyncio.CancelledError:
            self._serving.cancel()
            raise
        if not self._serving.cancelled():
            self._serving.result()

    async def _serve(self, server: _Server, listener: socket.socket) -> None:
        with listener:
            async with self.app.router.lifespan_context(self.app):
                await server.serve([listener])

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application; complete the response if the event loop ends during it."""
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except asyncio.CancelledError:
            if self._serving is None or not self._serving.cancelling():
                raise
            if not started:
                await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM. Blocks; for a process of its own."""
        listener = self._listen()
        self._print()
        uvicorn.Server(self._config(self.app)).run(sockets=[listener])

    def _listen(self) -> socket.socket:
        if self._listener is not None:
            raise RuntimeError(
                "This monitor was started before: call am.monitor.serve again for another one."
            )
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bind = partial(socket.create_server, family=family, backlog=BACKLOG)
        try:
            self._listener = bind((self._host, PORT if self._port is None else self._port))
        except OSError:
            if self._port is not None:
                raise
            self._listener = bind((self._host, 0))
        return self._listener

    def _print(self) -> None:
        sys.stdout.write(f"{self.url}\n")
        sys.stdout.flush()

    def _config(self, app: Any, **options: Any) -> uvicorn.Config:
        protocol = bounded(AutoHTTPProtocol, Connections())
        return uvicorn.Config(
            app, interface="asgi3", log_level="warning", access_log=False, server_header=False,
            timeout_graceful_shutdown=5, http=protocol, ws="none", backlog=BACKLOG, **options,
        )  # fmt: skip


class _Server(uvicorn.Server):
    """Leaves the signals to the program, and reports when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def serve(
    runs: Any,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    loggers: Iterable[str] = ("asyncmon",),
    registry: Any = None,
) -> MonitorServer:
    """Serve the monitor's page from a script, beside the training. Prints the URL on stdout.

    Use it as ``async with``, or await it.

    Args:
        runs: a session, opened or not, or what else :func:`create_app` takes.
        host: the address to bind to; this machine only by default.
        port: the port, 0 for a free one. By default 6060, or a free one if it is taken.
        token: the secret that every request needs, 16 characters or more; by default that of the
            variable ``ASYNCMON_TOKEN``, if it is set. Other hosts than this machine's own need one.
        loggers: the loggers whose records are shown.
        registry: the Prometheus registry for ``/metrics``.

    Raises:
        ValueError: other machines could reach the page without a token, or the token is too short.
        OSError: the address is taken. Raised at the start, not by this call.
        ImportError: the extra ``web`` is not installed.

    Example::

        async with am.MonitoredTrainingSession(checkpoint_dir="runs/1") as sess, am.monitor.serve(sess):
            while not sess.should_stop():
                await sess.run(train_op)
    """
    token = token or os.environ.get(TOKEN_VARIABLE) or None
    if token is None and not is_loopback(host):
        raise ValueError(
            f"The host {host} can be reached from other machines, which needs a token: pass token=..., "
            f"give the command --token-file FILE, or set {TOKEN_VARIABLE}."
        )
    app = create_app(runs, token=token, loggers=loggers, registry=registry)
    return MonitorServer(app, host, port, token)
