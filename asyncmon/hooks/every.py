"""A hook from one async function."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from asyncmon.hooks.hook_support import log_errors
from asyncmon.hooks.step_schedule import StepSchedule, global_step_of, require_global_step, step_after
from asyncmon.runtime import Coordinator, Session, SessionRunContext, SessionRunHook, SessionRunValues
from asyncmon.runtime.hook import hook_name
from asyncmon.runtime.hook_policy import with_deadline
from asyncmon.runtime.stop.origin import marked
from asyncmon.system.functions import qualified_name

OnError = Literal["raise", "log", "detach"]


class EveryHook(SessionRunHook):
    """Call an async function periodically. Made by :func:`every`."""

    def __init__(
        self,
        fn: Callable[..., Awaitable[Any]],
        *,
        steps: int | None = None,
        secs: float | None = None,
        on_error: OnError = "raise",
        deadline: float | None = None,
    ) -> None:
        if (steps is None) == (secs is None):
            raise ValueError(f"Give one of steps and secs, got steps={steps!r} and secs={secs!r}.")
        self._schedule = StepSchedule(self, EveryHook, "", steps, secs, multiples=True)
        self._fn = fn
        self._takes_session = _takes_session(fn)
        self.name = qualified_name(fn)
        self.on_error = on_error
        self.deadline = deadline

    async def __call__(self, *args: Any) -> Any:
        """Call the function itself."""
        return await self._fn(*args)

    async def begin(self) -> None:
        self._schedule.forget_ticks()
        if self._schedule.every_steps is not None:
            require_global_step(self)

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        if self._schedule.every_steps is not None:
            self._schedule.start(global_step_of(self, session))

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Call the function if the run reached a multiple of ``steps``."""
        step = step_after(run_values)
        if not self._schedule.restarts(step) and self._schedule.is_due(step):
            self._schedule.done(step)
            await self._call(run_context.session)

    async def background(self, session: Session, coord: Coordinator) -> None:
        async for _ in self._schedule.ticks(coord):
            with log_errors(self, "a call"):
                if self.deadline is None:
                    await self._call(session)
                else:
                    await with_deadline(self.deadline, f"{hook_name(self)}.call", self._call, session)

    async def _call(self, session: Session) -> None:
        with marked("timer", f"{self.name}, called by @every"):
            await (self._fn(session) if self._takes_session else self._fn())


def every(
    *,
    steps: int | None = None,
    secs: float | None = None,
    on_error: OnError = "raise",
    deadline: float | None = None,
) -> Callable[[Callable[..., Awaitable[Any]]], EveryHook]:
    """Make a hook that calls an async function periodically.

    The function takes the raw session or no argument. Calls do not overlap.

    Args:
        steps: call it after each run that reaches a multiple of this number. The run waits for it.
        secs: call it in a background task at this interval, without drift. Recoveries keep the phase.
        on_error: see :class:`SessionRunHook`: ``"raise"`` ends training with an error of the function,
            ``"log"`` logs it and continues, ``"detach"`` logs it and calls the function no more.
        deadline: seconds that a call may take, or None.

    Raises:
        TypeError: the function is not ``async def``.
        ValueError: neither or both of ``steps`` and ``secs`` are given, or the value is not positive.

    Example::

        @am.every(secs=30)
        async def report(session):
            print(session.global_step, await session.peek(loss))

        async with am.MonitoredSession(hooks=[report]) as sess:
            ...
    """

    def make(fn: Callable[..., Awaitable[Any]]) -> EveryHook:
        if not inspect.iscoroutinefunction(fn):
            raise TypeError(f"@every takes an `async def` function, got {fn!r}.")
        return EveryHook(fn, steps=steps, secs=secs, on_error=on_error, deadline=deadline)

    return make


def _takes_session(fn: Callable[..., Any]) -> bool:
    signature = inspect.signature(fn)
    for arguments in ["session"], []:
        with contextlib.suppress(TypeError):
            signature.bind(*arguments)
            return bool(arguments)
    name = qualified_name(fn)
    raise TypeError(
        f"{name}{signature} must take the session, or nothing: `async def {name}(session)`."
    )
