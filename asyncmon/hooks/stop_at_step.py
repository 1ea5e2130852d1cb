"""Stop at a step."""

from __future__ import annotations

from asyncmon.hooks.hook_support import whole_number
from asyncmon.hooks.step_schedule import (
    global_step_of,
    idle_until,
    let_idle,
    require_global_step,
    step_after,
)
from asyncmon.runtime import Coordinator, Session, SessionRunContext, SessionRunHook, SessionRunValues


class StopAtStepHook(SessionRunHook):
    """Request a stop at a step. TF1: ``tf.train.StopAtStepHook``.

    A session that is created at or beyond the step is stopped at once, before any run.

    Args:
        num_steps: how many steps to do, counted from the step at which the first session begins; a
            recovery does not count anew.
        last_step: the step to stop at.

    Raises:
        ValueError: neither or both are given.
        TypeError: the one given is no whole number.

    Example::

        hooks = [StopAtStepHook(last_step=10_000)]
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = None if num_steps is None else whole_number("num_steps", num_steps)
        self.last_step = None if last_step is None else whole_number("last_step", last_step)
        """The step to stop at; None while ``num_steps`` has no session to count from."""
        self.stops_at_step = self.last_step
        let_idle(self, StopAtStepHook)

    async def begin(self) -> None:
        require_global_step(self)

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Compute the last step, once. Request a stop if the session has reached it already."""
        step = global_step_of(self, session)
        if self.last_step is None:
            assert self._num_steps is not None, "one of the two is given"
            self.last_step = self.stops_at_step = step + self._num_steps
        idle_until(self, self.last_step)
        if step >= self.last_step:
            coord.request_stop(reason=self._reason(step))

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        # A hook before this one may have waited for an update, or another replica made one.
        step = max(step_after(run_values), global_step_of(self, run_context.session))
        assert self.last_step is not None, "set in after_create_session"
        if step >= self.last_step:
            run_context.request_stop(self._reason(step))

    def _reason(self, step: int) -> str:
        return f"StopAtStepHook: step {step} reached the last step, {self.last_step}"
