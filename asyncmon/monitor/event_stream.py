"""A response that streams events while its viewer is connected."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from asyncmon.monitor.feed import Feed
from asyncmon.monitor.guard import Failure

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

logger = logging.getLogger(__name__)

MOST_VIEWERS = 50

SEND_SECS = 10.0
"""Timeout in seconds for sending a chunk; after it the viewer counts as stalled."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # else nginx buffers events
]


class EventStream:
    """Streams the feed after a cursor.

    Ends when the viewer disconnects or stalls, after a minute, or with the feed.

    Raises:
        Failure: there are too many viewers.
    """

    def __init__(self, feed: Feed, after: int | None) -> None:
        if feed.viewers >= MOST_VIEWERS:
            raise Failure(503, f"{MOST_VIEWERS} viewers are connected already.", {"retry-after": "10"})
        self._feed = feed
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_wait_until_gone(receive))
        try:
            await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            gone.cancel()
            results = await asyncio.gather(sending, gone, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]

    async def _send(self, send: Send) -> None:
        stream = self._feed.stream(self._after)
        try:
            async for chunk in stream:
                async with asyncio.timeout(SEND_SECS):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:  # the server closes the connection of an answer without an end
            logger.warning("A viewer has read nothing for %g s; its events end.", SEND_SECS)
            return
        finally:
            await stream.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
