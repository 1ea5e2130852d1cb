"""What the runtime does to any raw session."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from asyncmon.cancellation import without_unrequested

logger = logging.getLogger(__name__)

CLOSE_SECS = 60.0
"""How long a raw session may take to close before it is abandoned, named in the log."""


def step_of(raw: Any) -> int | None:
    """Return the global step of a raw session, or None where it does not count or is lost."""
    try:
        step: int | None = getattr(raw, "global_step", None)
    except Exception:
        logger.debug("The step of a lost session is unknown.", exc_info=True)
        return None
    return step


async def close_raw(raw: Any) -> None:
    """Close a raw session, in bounded time; an error is logged."""
    try:
        async with asyncio.timeout(CLOSE_SECS):
            await without_unrequested("close() of the raw session", raw.close)
    except Exception:
        logger.exception("The raw session could not be closed in order; it is abandoned.")
