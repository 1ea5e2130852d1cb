"""Hooks that inject faults."""

from __future__ import annotations

from typing import Literal

from asyncmon.errors import AbortedError
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.hook import SessionRunContext, SessionRunHook, SessionRunValues
from asyncmon.runtime.protocols import Session

Moment = Literal["begin", "after_create_session", "before_run", "after_run", "end", "cleanup"]


def fail_at_step(
    step: int,
    error: BaseException | None = None,
    *,
    moment: Literal["before_run", "after_run"] = "before_run",
    times: int = 1,
) -> SessionRunHook:
    """Return a hook that raises in the run that completes a step.

    Args:
        step: the global step, counted from 1. A run that skips it fails as well.
        error: the error to raise. Default: an :class:`~asyncmon.errors.AbortedError`, from which
            sessions recover.
        moment: ``"before_run"``, before the step, or ``"after_run"``, after the step but before its
            results are returned.
        times: the number of failures; the run that a recovery repeats succeeds after them.

    Example::

        hooks = [fail_at_step(3), fail_at_step(5, ValueError("broken"), moment="after_run")]
    """
    return _Fault(moment, error or AbortedError(f"Injected in {moment} of step {step}."), times, step)


def fail_in(moment: Moment, error: BaseException, *, times: int = 1) -> SessionRunHook:
    """Return a hook that raises in the first ``times`` calls of a method.

    Example::

        hooks = [fail_in("after_create_session", UnavailableError("not yet"), times=3)]
    """
    return _Fault(moment, error, times, None)


class _Fault(SessionRunHook):
    def __init__(self, moment: str, error: BaseException, times: int, step: int | None) -> None:
        self._moment = moment
        self._error = error
        self._left = times
        self._step = step

    def __repr__(self) -> str:
        when = "" if self._step is None else f" of step {self._step}"
        return f"<fault in {self._moment}{when}: {self._error!r}>"

    async def begin(self) -> None:
        self._reach("begin")

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._reach("after_create_session")

    async def before_run(self, run_context: SessionRunContext) -> None:
        self._reach("before_run", (run_context.session.global_step or 0) + 1)

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self._reach("after_run", run_values.step)

    async def end(self, session: Session) -> None:
        self._reach("end")

    async def cleanup(self, error: BaseException | None) -> None:
        self._reach("cleanup")

    def _reach(self, moment: str, step: int | None = None) -> None:
        if moment != self._moment or not self._left:
            return
        if self._step is not None and (step is None or step < self._step):
            return
        self._left -= 1
        raise self._error
