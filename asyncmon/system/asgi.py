"""What the ASGI applications of the package share: tokens, bodies of requests, answers in JSON.

Without a web framework, so that an application with a few paths needs none.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Mapping
from typing import Any

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

MOST_BODY_BYTES = 64 * 1024
"""The bound of a body in bytes, unless an application sets its own."""

_SHORTEST_TOKEN = 16
_CHALLENGE = {"www-authenticate": "Bearer"}


class Answer:
    """A response with a whole body. An ASGI application, as the responses of Starlette are.

    Args:
        body: its content, of the type ``application/json``.
        status: the HTTP status.
        headers: further headers, in ASCII, with names in lower case.
    """

    def __init__(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        self.body, self.status = body, status
        self.headers = {
            "content-length": str(len(body)),
            "content-type": "application/json",
            **(headers or {}),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        headers = [(name.encode(), text.encode()) for name, text in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


class Failure(Exception):
    """A refused request, with its HTTP status, its message, and further headers of the answer."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or {}

    def answer(self) -> Answer:
        """Return the response: an object with the message as ``error``."""
        return Answer(json.dumps({"error": str(self)}).encode(), self.status, self.headers)


class Token:
    """The secret that requests send as ``Authorization: Bearer``.

    Args:
        secret: 16 printable ASCII characters or more.

    Raises:
        ValueError: the secret is too short or not printable ASCII.
    """

    def __init__(self, secret: str) -> None:
        if len(secret) < _SHORTEST_TOKEN or not secret.isascii() or not secret.isprintable():
            raise ValueError(
                f"The token must have {_SHORTEST_TOKEN} printable ASCII characters or more. A good "
                "one: `python -c 'import secrets; print(secrets.token_urlsafe())'`."
            )
        self.key = secret.encode()
        """The secret in bytes, for signatures."""

    def check(self, given: str) -> None:
        """Compare a token with the secret, in constant time.

        Raises:
            Failure: it is another one.
        """
        sent = given.encode(errors="replace")  # JSON may hold half a character
        if not hmac.compare_digest(sent, self.key):
            raise wrong_token()


def wrong_token() -> Failure:
    """Return the refusal of a wrong token."""
    return Failure(401, "The token is wrong.", _CHALLENGE)


def missing_token(how: str = "") -> Failure:
    """Return the refusal of a request without a token.

    Args:
        how: another way to be let in, after a comma.
    """
    return Failure(
        401, f"A token is needed: send it as `Authorization: Bearer TOKEN`{how}.", _CHALLENGE
    )


def header(scope: Scope, name: str) -> str | None:
    """Return the first header of this name, in lower case, of a request; None without one."""
    wanted = name.encode("latin-1")
    return next((text.decode("latin-1") for key, text in scope["headers"] if key == wanted), None)


def bearer(scope: Scope) -> str:
    """Return the token that a request has sent, an empty string without one."""
    scheme, _, given = (header(scope, "authorization") or "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def path_of(scope: Scope) -> str:
    """Return the path of a request below the path at which its application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    inside = root and (path == root or path.startswith(f"{root}/"))
    return (path[len(root) :] if inside else path) or "/"


def check_method(scope: Scope, allowed: Collection[str]) -> None:
    """Refuse a request whose method is not among the allowed ones.

    Raises:
        Failure: with the status 405 and the allowed ones.
    """
    if scope["method"] not in allowed:
        names = ", ".join(sorted(allowed))
        raise Failure(405, f"{scope['method']} is not allowed here, but: {names}.", {"allow": names})


async def chunks_of(receive: Receive) -> AsyncGenerator[bytes]:
    """Yield the parts of the body of a request.

    Raises:
        Failure: the client has gone before the end.
    """
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Failure(400, "The body has ended too early.")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def read_body(chunks: AsyncIterable[bytes], most: int = MOST_BODY_BYTES) -> bytes:
    """Return the body of a request, without keeping more of it than allowed.

    Args:
        chunks: its parts: :func:`chunks_of`, or ``request.stream()`` of Starlette.
        most: the bound in bytes.

    Raises:
        Failure: the body is longer.
    """
    parts, size = [], 0
    async for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise Failure(413, f"A body may have {most} bytes.", {"connection": "close"})
        parts.append(chunk)
    return b"".join(parts)


async def read_object(chunks: AsyncIterable[bytes], most: int = MOST_BODY_BYTES) -> dict[str, Any]:
    """Return the JSON object in the body of a request; an empty body is an empty object.

    Arguments as :func:`read_body`.

    Raises:
        Failure: the body is longer, or no JSON object.
    """
    data = await read_body(chunks, most)
    try:
        found = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Failure(400, "The body must be a JSON object.")
    return found
