"""The phases of a session's life, and the errors of calls in the wrong one."""

from __future__ import annotations

from enum import Enum


class SessionState(Enum):
    """The phases of a session's life, in this order."""

    NEW = "new"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


NOT_OPEN = {
    SessionState.NEW: (
        "The session is not open yet: write `async with session:` or `await session.start()` first."
    ),
    SessionState.OPENING: "The session is still being opened by another task.",
    SessionState.OPEN: "The session is open already.",
    SessionState.CLOSING: "The session is closed: it is just being closed.",
    SessionState.CLOSED: (
        "The session is closed and cannot be used again; make a new one. `global_step`, `stop_reason` "
        "and `last_results` stay readable. Fetch other values before the end of `async with`, or read "
        "variables from a checkpoint: await asyncmon.checkpoint.load_variable(directory, name)."
    ),
}

OTHER_LOOP = (
    "A session belongs to the event loop in which it was started, and this is another one. Use it "
    "there; from a thread, by asyncio.run_coroutine_threadsafe(session.run(...), loop)."
)
