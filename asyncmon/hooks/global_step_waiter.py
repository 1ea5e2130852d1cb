"""Delay a worker until others have done some steps."""

from __future__ import annotations

import logging

from asyncmon.errors import OutOfRangeError
from asyncmon.hooks.hook_support import whole_number
from asyncmon.hooks.step_schedule import global_step_of, require_global_step
from asyncmon.runtime import Coordinator, Session, SessionRunContext, SessionRunHook
from asyncmon.runtime.program import global_step_fetch

logger = logging.getLogger(__name__)

_POLL_SECS = 0.5
_LOG_STEPS = 1000


class GlobalStepWaiterHook(SessionRunHook):
    """Delay the first run until the global step is far enough. TF1: ``tf.train.GlobalStepWaiterHook``.

    Others advance the step meanwhile: workers of a cluster, or tasks that share the session. Waiting
    ends when a stop is requested: the run then raises :class:`~asyncmon.errors.OutOfRangeError`, the
    clean end, since this worker has done nothing.

    Args:
        wait_until_step: the step to wait for; 0 or less waits for nothing.

    Example::

        hooks = [GlobalStepWaiterHook(task_index * 1000)]
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = whole_number("wait_until_step", wait_until_step)
        self._passed = False
        self._coord: Coordinator

    async def begin(self) -> None:
        """Refuse a program without global step. A recovery does not wait again, a new session does."""
        require_global_step(self)
        self._passed = self._wait_until_step <= 0

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        global_step_of(self, session)
        self._coord = coord

    async def before_run(self, run_context: SessionRunContext) -> None:
        """Wait, before the first run.

        Raises:
            OutOfRangeError: a stop was requested first.
        """
        if self._passed:
            return
        session, wanted = run_context.session, self._wait_until_step
        line = "Waiting for global step %d before starting training."
        logger.info(line, wanted)
        logged = 0
        while (step := await self._read_step(session)) < wanted:
            if step - logged > _LOG_STEPS:
                logged = step
                logger.info(f"{line} Current step is %d.", wanted, step)
            if await self._coord.wait_for_stop(_POLL_SECS):
                raise OutOfRangeError(f"A stop was requested at step {step}, before step {wanted}.")
        self._passed = True

    async def _read_step(self, session: Session) -> int:
        fetch = global_step_fetch(session)
        if fetch is None:
            return global_step_of(self, session)
        return int(await session.run(fetch))  # the session's own is that of its last run
