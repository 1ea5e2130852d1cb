"""Access control: tokens, cookies, origins, rate limits, and the headers of every response."""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asyncmon.system import clock
from asyncmon.system.asgi import Answer, Failure, Token, bearer, missing_token, wrong_token

logger = logging.getLogger(__name__)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
Authenticate = Callable[[Request], Any]
"""Returns whether a request is allowed, or an awaitable of it."""

_ALLOWED = "asyncmon.monitor.allowed"
LOGIN_SECS = 30 * 24 * 3600
"""The lifetime of a login in seconds."""


async def refuse(request: Request, error: Exception) -> Answer:
    """Answer a request with its :class:`Failure`. An exception handler of Starlette."""
    assert isinstance(error, Failure), "registered for it"
    return error.answer()


class Rates:
    """A token bucket for each client: a burst of requests, then one request per interval in seconds."""

    def __init__(self, burst: int, secs: float, most_clients: int = 1_000) -> None:
        self._burst = burst
        self._secs = secs
        self._most = most_clients
        # the time at which the whole burst is available again
        self._free_at: OrderedDict[str, float] = OrderedDict()

    def take(self, client: str) -> None:
        """Count a request.

        Raises:
            Failure: there were too many; ``retry-after`` gives the seconds to wait.
        """
        self.check(client)
        now = clock.monotonic()
        self._free_at[client] = max(now, self._free_at.get(client, now)) + self._secs
        self._free_at.move_to_end(client)
        while len(self._free_at) > self._most:
            self._free_at.popitem(last=False)

    def __len__(self) -> int:
        return len(self._free_at)

    def check(self, client: str) -> None:
        """Raise as :meth:`take` would, without counting."""
        now = clock.monotonic()
        wait = self._free_at.get(client, now) - now - (self._burst - 1) * self._secs
        if wait > 0:
            secs = int(wait) + 1
            raise Failure(429, f"Too many requests: try again in {secs} s.", {"retry-after": str(secs)})


class Credentials:
    """The token, and the login cookies signed with it.

    Args:
        token: the secret; None if no token is needed.

    Raises:
        ValueError: the token is too short or not printable ASCII.
    """

    def __init__(self, token: str | None) -> None:
        self.needed = token is not None
        self._token = None if token is None else Token(token)
        self._failures = Rates(burst=10, secs=6.0)

    def check(self, client: str, given: str) -> None:
        """Compare a token with the secret, in constant time.

        Raises:
            Failure: the token is wrong, or this client has tried too often.
        """
        self._failures.check(client)
        try:
            if self._token is None:  # there is none to be right
                raise wrong_token()
            self._token.check(given)
        except Failure:
            self._failures.take(client)
            raise

    def login_cookie(self, scope: Scope) -> str:
        """Return the header that logs a browser in: a signed cookie that expires."""
        expires = int(clock.wall()) + LOGIN_SECS
        path = scope.get("root_path", "") or "/"
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        return (
            f"{_cookie_name(scope)}={self._signed(expires)}; Path={path}; Max-Age={LOGIN_SECS}; "
            f"HttpOnly; SameSite=Strict{secure}"
        )

    def is_logged_in(self, scope: Scope, headers: Headers) -> bool:
        """Return whether a request has a valid cookie of :meth:`login_cookie`."""
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        morsel = cookies.get(_cookie_name(scope))
        expires = morsel.value.partition(".")[0] if morsel else ""
        if morsel is None or not (expires.isascii() and expires.isdigit() and len(expires) < 16):
            return False
        right = hmac.compare_digest(morsel.value.encode(), self._signed(int(expires)).encode())
        return right and int(expires) > clock.wall()

    def _signed(self, expires: int) -> str:
        text = b"asyncmon monitor login %d" % expires
        key = b"" if self._token is None else self._token.key
        digest = hmac.new(key, text, hashlib.sha256).digest()
        return f"{expires}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


class Guard:
    """ASGI middleware that refuses requests before the application runs.

    With a token, every request needs it, as ``Authorization: Bearer`` or as a login cookie, except for
    the page's own files, which hold no data. Without a token, only clients on this machine have access,
    and only under a local host name, so that no web page reaches the monitor by DNS rebinding. Actions
    of a browser must come from the monitor's own page.

    Args:
        app: the application. Endpoints that need the token call :func:`require_login`.
        credentials: the token.
        authenticate: the service's own check of a request, in place of all others but that of the
            origin of actions.
        actions: the rate of actions of each client.
        page: what the log names, with its address, at the first request to a mounted application.
    """

    def __init__(
        self,
        app: ASGIApp,
        credentials: Credentials,
        authenticate: Authenticate | None = None,
        actions: Rates | None = None,
        page: str = "The monitor's page",
    ) -> None:
        self._app = app
        self._credentials = credentials
        self._authenticate = authenticate
        self._actions = Rates(burst=20, secs=0.5) if actions is None else actions
        self._page = page
        self._is_announced = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._is_announced:
            self._announce(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            if self._authenticate is None:
                self._check(scope)
            else:
                await self._check_user(scope, self._authenticate)
        except Failure as failure:
            await failure.answer()(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _announce(self, scope: Scope) -> None:
        """Log the address of a mounted monitor, which is known with its first request only."""
        self._is_announced = True
        path, server = scope.get("root_path"), scope.get("server")
        if path and server and server[1] is not None:  # not a Unix socket; serve() prints its own
            host = f"[{server[0]}]" if ":" in server[0] else server[0]
            scheme = scope.get("scheme", "http")
            logger.info("%s: %s://%s:%d%s/", self._page, scheme, host, server[1], path)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        client = client_of(scope)
        acts = scope["method"] not in ("GET", "HEAD")
        if acts:
            self._actions.take(client)
        if not self._credentials.needed:
            _check_local(client, headers)
            scope[_ALLOWED] = True
        elif given := bearer(scope):
            self._credentials.check(client, given)
            scope[_ALLOWED] = True
            return  # no page of another origin can send this header
        else:
            scope[_ALLOWED] = self._credentials.is_logged_in(scope, headers)
        if acts:
            _check_origin(headers)

    async def _check_user(self, scope: Scope, authenticate: Authenticate) -> None:
        """Let the service decide, also about the files of the page."""
        if scope["method"] not in ("GET", "HEAD"):
            self._actions.take(client_of(scope))
            _check_origin(Headers(scope=scope))
        answer = authenticate(Request(scope))
        if inspect.isawaitable(answer):
            answer = await answer
        if not answer:
            raise Failure(401, "Log in to the service first.")
        scope[_ALLOWED] = True


def require_login(scope: Scope) -> None:
    """Refuse a request without the token and without a login cookie.

    Raises:
        Failure: it has neither.
    """
    if not scope[_ALLOWED]:
        raise missing_token(", or log in on the page")


def client_of(scope: Scope) -> str:
    """Return the address of the client; "local" on a socket that has none."""
    return str(scope["client"][0]) if scope.get("client") else "local"


def _cookie_name(scope: Scope) -> str:
    """Return a cookie name that has the port: all ports of a host share cookies."""
    port = scope["server"][1] if scope.get("server") else None
    return f"asyncmon-monitor-{port or 0}"


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_local(client: str, headers: Headers) -> None:
    name = _host_name(headers.get("host", ""))
    if not is_loopback(name) or not (client == "local" or is_loopback(client)):
        raise Failure(
            403,
            "Without a token only this machine has access, under localhost or 127.0.0.1. Give it a "
            "token: create_app(..., token=...) or --token-file.",
        )


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _check_origin(headers: Headers) -> None:
    """Refuse an action requested by a page of another origin."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        allowed = site == "same-origin"
    elif origin is not None:
        allowed = origin.lower().partition("://")[2] == headers.get("host", "").lower() != ""
    else:
        allowed = True  # no browser
    if not allowed:
        raise Failure(403, "Actions are taken from pages of this very server only, not from others.")
