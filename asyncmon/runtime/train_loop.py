"""The original's training loop around a supervisor."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from asyncmon.errors import AbortedError
from asyncmon.runtime.recoverable import Recovery
from asyncmon.runtime.supervisor import Supervisor
from asyncmon.system.error_text import text_of

logger = logging.getLogger("asyncmon.supervisor")


async def basic_train_loop(
    supervisor: Supervisor,
    train_step_fn: Callable[..., Awaitable[Any] | Any],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    master: str = "",
    *,
    recovery: Recovery | None = None,
) -> None:
    """Call a step function with managed sessions until the supervisor is to stop. TF1: same name.

    After an ``AbortedError`` it continues with a new session, restored from the last checkpoint.

    Args:
        supervisor: whose sessions.
        train_step_fn: called as ``train_step_fn(sess, *args, **kwargs)``, plain or async.
        args: its further arguments.
        kwargs: its keyword arguments.
        master: where the sessions run.
        recovery: after which errors to continue, how often in a row, after what pause. Default: after
            ``AbortedError``, without limit.

    Raises:
        Exception: any other error of a step or a service.
    """
    policy = recovery or Recovery(errors=(AbortedError,))
    failures = 0
    while True:
        try:
            async with supervisor.managed_session(master) as sess:
                while not supervisor.should_stop():
                    result = train_step_fn(sess, *(args or ()), **(kwargs or {}))
                    if inspect.isawaitable(result):
                        await result
                    failures = 0
            return
        except policy.errors as error:
            failures += 1
            if policy.is_over(failures):
                raise
            logger.info("An error was raised; going on with a new session. Error: %s", text_of(error))
            await asyncio.sleep(policy.delay(failures))
