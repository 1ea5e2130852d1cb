"""The bodies of requests."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from asyncmon.monitor.guard import Failure

_MOST_BYTES = 64 * 1024


async def json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request; an empty body is an empty object."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MOST_BYTES:
            raise Failure(413, f"A body may have {_MOST_BYTES} bytes.", {"connection": "close"})
    try:
        found = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Failure(400, "The body must be a JSON object.")
    return found
