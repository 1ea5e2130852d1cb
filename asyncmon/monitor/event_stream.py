"""Responses of server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from starlette.types import Receive, Send

logger = logging.getLogger(__name__)

SEND_SECS = 10.0
"""Timeout in seconds for sending a chunk; after it the viewer counts as stalled."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # else nginx buffers events
]


async def send_events(chunks: AsyncGenerator[bytes], receive: Receive, send: Send) -> None:
    """Send encoded events until they end, or the viewer disconnects or stalls. Closes the generator."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    sending = asyncio.ensure_future(_send(chunks, send))
    gone = asyncio.ensure_future(_wait_until_gone(receive))
    try:
        await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        gone.cancel()
        results = await asyncio.gather(sending, gone, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]


async def _send(chunks: AsyncGenerator[bytes], send: Send) -> None:
    try:
        async for chunk in chunks:
            async with asyncio.timeout(SEND_SECS):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except TimeoutError:  # the server closes the connection of an answer without an end
        logger.warning("A viewer has read nothing for %g s; its events end.", SEND_SECS)
        return
    finally:
        await chunks.aclose()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
