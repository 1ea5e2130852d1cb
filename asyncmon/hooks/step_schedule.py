"""The global step around runs, and the schedule of a hook: by steps or by seconds."""

from __future__ import annotations

from asyncmon.hooks.hook_support import leave_out, positive, whole_number
from asyncmon.runtime import (
    Coordinator,
    SecondOrStepTimer,
    Session,
    SessionRunHook,
    SessionRunValues,
    current_program,
)
from asyncmon.runtime.timer import Ticks
from asyncmon.system.error_text import add_note


def require_global_step(hook: SessionRunHook) -> None:
    """Reject a program without a global step. For ``begin``."""
    if not current_program().has_global_step():
        raise _no_global_step(hook)


def global_step_of(hook: SessionRunHook, session: Session) -> int:
    """Return the committed global step of a session. Raises RuntimeError if it has none."""
    step = session.global_step
    if step is None:
        raise _no_global_step(hook)
    return step


def step_after(run_values: SessionRunValues) -> int:
    """Return the global step after a run of a program that has one."""
    assert run_values.step is not None, "checked in begin and in after_create_session"
    return run_values.step


def let_idle(hook: SessionRunHook, owner: type[SessionRunHook]) -> None:
    """Skip a hook in runs before its ``idle_until_step``.

    A subclass of ``owner`` that overrides ``before_run`` or ``after_run`` is called in each run.
    """
    methods = "before_run", "after_run"
    if all(getattr(type(hook), method) is getattr(owner, method) for method in methods):
        hook.idle_until_step = 0


def idle_until(hook: SessionRunHook, step: float) -> None:
    """Set the step up to which runs skip a hook, if it can be skipped."""
    if hook.idle_until_step is not None:
        hook.idle_until_step = step


class StepSchedule:
    """The schedule of a hook: by steps around runs, or by seconds in its background task.

    By steps, runs skip the hook until its next due step. Methods for the other kind of schedule are
    disabled. A method that a subclass of ``owner`` overrides is always called.

    Args:
        hook: the hook.
        owner: the class that defines the hook's methods.
        prefix: the hook's arguments are ``<prefix>steps`` and ``<prefix>secs``, for error messages.
        every_steps: the interval in global steps.
        every_secs: the interval in seconds.
        at_once: whether the first step of a session is due, or the step after one interval.
        multiples: the steps that reach a multiple of ``every_steps`` are due, in every session alike.
            Otherwise those an interval after the last due step are, as in TF1.
        both_ways: disable no methods.
    """

    def __init__(
        self,
        hook: SessionRunHook,
        owner: type[SessionRunHook],
        prefix: str,
        every_steps: int | None,
        every_secs: float | None,
        *,
        at_once: bool = True,
        multiples: bool = False,
        both_ways: bool = False,
    ) -> None:
        self._timer = SecondOrStepTimer(every_secs=every_secs, every_steps=every_steps)
        self.every_secs, self.every_steps = every_secs, every_steps
        if every_secs is not None:
            positive(f"{prefix}secs", every_secs)
            others = ["before_run", "after_run"]
        else:
            self.every_steps = whole_number(f"{prefix}steps", every_steps, least=1)
            others = ["background"]
            let_idle(hook, owner)
        if not both_ways:
            leave_out(hook, owner, *others)
        self._hook = hook
        self._at_once = at_once and not multiples
        self._unit = self.every_steps if multiples and self.every_steps else 1
        self._ticks: Ticks | None = None

    @property
    def last_step(self) -> int | None:
        """The last due step, or the multiple that it reached; None if the next step is due."""
        return self._timer.last_triggered_step()

    def start(self, step: int) -> None:
        """Reset the schedule to the step of a new session or of a restored state."""
        self._timer.reset()
        if not self._at_once:
            self._timer.update_last_triggered_step(self._reached(step))
        self._idle()

    def restarts(self, step: int) -> bool:
        """Reset the schedule if a state before the last due step was loaded. Return whether it was."""
        last = self.last_step
        if last is None or self._reached(step) >= last:
            return False
        self.start(step)
        return True

    def is_due(self, step: int) -> bool:
        """Return whether a step is due. Steps before the last due step are."""
        return self._timer.should_trigger_for_step(self._reached(step))

    def done(self, step: int) -> tuple[float, int] | tuple[None, None]:
        """Record a due step. Return the seconds and steps since the previous one, or None."""
        elapsed = self._timer.update_last_triggered_step(self._reached(step))
        self._idle()
        return elapsed

    def forget_ticks(self) -> None:
        """Begin a new phase at the next :meth:`ticks`."""
        self._ticks = None

    def ticks(self, coord: Coordinator) -> Ticks:
        """Return ticks every ``every_secs``. They keep their phase over recoveries."""
        # A tick missed during a recovery fires right after it: otherwise failures that are more
        # frequent than the interval would prevent all ticks.
        self._ticks = coord.every(self.every_secs, continuing=self._ticks)
        return self._ticks

    def _reached(self, step: int) -> int:
        return step - step % self._unit

    def _idle(self) -> None:
        if self.every_steps is not None:
            last = self.last_step
            idle_until(self._hook, 0 if last is None else last + self.every_steps)


def _no_global_step(hook: SessionRunHook) -> RuntimeError:
    error = RuntimeError(f"Global step should be created to use {type(hook).__name__}.")
    add_note(
        error,
        "In a graph, call am.get_or_create_global_step() and pass it to minimize(). Another program is "
        "given to the session by program=.",
    )
    return error
