"""The step of a program that the calling code is part of."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from asyncmon.system.leavable import next_awaited

inside_step: ContextVar[object] = ContextVar("asyncmon_inside_step", default=None)
"""The call of a program's step or graph function that this code is part of, set by its raw session.

Tasks that the step starts inherit it. It is not reset, which would take as long again in each step: a
session compares it with the calls that have not ended."""


def awaits(task: asyncio.Task[Any], call: Any) -> bool:
    """Return whether a task awaits a coroutine, directly or through other coroutines."""
    coro: Any = task.get_coro()
    if getattr(coro, "cr_running", False):  # only a suspended one shows its awaited object
        # It has begun an eager task, which the calling code is part of.
        return coro is call or getattr(call, "cr_running", False)
    while coro is not None:
        if coro is call:
            return True
        coro = next_awaited(coro)
    return False
