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
    SessionState.OPENING: (
        "The session is still being opened. Its hooks use the raw session, the argument of "
        "after_create_session and background. A background waits for the first run by `await "
        "coord.sample([])`, another task for the end of `start()`."
    ),
    SessionState.OPEN: "The session is open already.",
    SessionState.CLOSING: (
        "The session is closed: it is just being closed. Its hooks use the raw session in `end`."
    ),
    SessionState.CLOSED: (
        "The session is closed and cannot be used again; make a new one. `global_step`, `stop_reason` "
        "and `last_results` stay readable. Fetch other values before the end of `async with`, or read "
        "variables from a checkpoint: await asyncmon.checkpoint.load_variable(directory, name)."
    ),
}

RECOVERING = (
    "There is no session at the moment: it recovers, or the last recovery did not succeed. Hooks use "
    "the argument of after_create_session. Other code calls run(), which recovers."
)

CLOSES_ITSELF = {
    SessionState.OPENING: (
        "close() was called from inside the opening of the session, which it would wait for. Raise an "
        "error in the hook, which ends the opening, or call request_stop()."
    ),
    SessionState.OPEN: (
        "close() was called from inside a run or a listener, which it would wait for. Call "
        "request_stop(): that of run_context in a hook, of step_context in a step function, or of the "
        "session. The body then ends, and the session closes."
    ),
    SessionState.CLOSING: (
        "close() was called from inside the close of the session, which it would wait for: by a hook's "
        "`end` or `cleanup`, or by a task that the close waits for. Leave the call out."
    ),
}

LOOP_IS_GONE = (
    "The event loop in which the session was started is closed, so that the session cannot be closed "
    "any more: its last state was not saved, and its directory is free. Close it before `asyncio.run` "
    "returns, by `async with`, or use `am.run`, which closes sessions."
)

OTHER_LOOP = (
    "A session belongs to the event loop in which it was started, and this is another one. Use it "
    "there; from a thread, by asyncio.run_coroutine_threadsafe(session.run(...), loop)."
)
