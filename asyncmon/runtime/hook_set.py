"""The hooks of one session: the order of their calls, deadlines, and the handling of errors."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.failures import Failures
from asyncmon.runtime.hook import SAVER, HookMembers, hook_name, in_order, overrides
from asyncmon.runtime.hook_policy import (
    LONGEST_PAUSE_SECS,
    Method,
    pause_secs,
    with_deadline,
    with_origin,
)
from asyncmon.runtime.observation import Observers
from asyncmon.runtime.protocols import Session
from asyncmon.runtime.recorder import Recorder
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.deadline import Stage
from asyncmon.runtime.stop.origin import Kind
from asyncmon.runtime.tasks import stop_tasks
from asyncmon.system import clock
from asyncmon.system.cancellation import is_unrequested, shielded, without_unrequested
from asyncmon.system.forgotten_await import note_use_of_coroutine
from asyncmon.system.leavable import Leavable, leavable
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)

F = TypeVar("F")

CLEANUP_SECS = 120.0
"""The deadline of ``cleanup`` of a hook without a deadline."""

NOTICE_SECS = 10.0
"""After this time the log names the hook whose ``end`` is still awaited."""


_IN_RUNS = ("before_run", "after_run")
_FAILED = object()  # the result of a call whose error was tolerated


class RunCalls(NamedTuple):
    """The calls of one hook around a run, at least one of the two."""

    hook: Any
    before: Callable[[Any], Awaitable[Any]] | None
    after: Callable[[Any, Any], Awaitable[None]] | None


class AttachedHook:
    """The result of ``MonitoredSession.attach``. Leaving ``async with`` detaches the hook.

    Example::

        async with await sess.attach(PrintLoss()):
            ...  # these steps are printed
    """

    def __init__(self, hook: Any, detach: Callable[[Any], Awaitable[None]]) -> None:
        self.hook = hook
        self._detach = detach

    async def detach(self) -> None:
        """Remove the hook after the current run: ``end``, then ``cleanup``.

        A second call does nothing, nor does a call after the close of the session.
        """
        await self._detach(self.hook)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.detach()


class HookSet:
    """Checked hooks in the order of their priorities, and their calls.

    Calls are bound when the set changes. A method that a hook does not override is in no list and costs
    nothing.
    """

    def __init__(self, hooks: Sequence[Any]) -> None:
        self.hooks = in_order(hooks)
        self.observers = Observers()
        self.observers.when_changed(self._bind)
        self.recorder = Recorder(lambda: self.observers.step)
        self.failures: dict[str, Failures] = {}
        """The errors of a hook, by its label, that were raised in runs or tolerated."""
        self._labels: dict[int, str] = {}
        self._named: Counter[str] = Counter()
        self.running: Any = None
        """The hook that is awaited in a run, for reports."""
        self.wake_step: float = -math.inf
        """Runs that end before this global step need not call idle hooks."""
        self.begun: list[Any] = []
        """The hooks whose ``begin`` was called, and ``cleanup`` not yet, in order."""
        self._backgrounds: dict[int, asyncio.Task[Any]] = {}
        self._bind()

    def label(self, hook: Any) -> str:
        """Return the name of a hook, with a number if an earlier one of this session has it.

        The label is kept until the hook's ``cleanup``. No later hook gets the same one.
        """
        label = self._labels.get(id(hook))
        if label is None:
            name = hook_name(hook)
            label = self._labels[id(hook)] = f"{name}_{count}" if (count := self._named[name]) else name
            self._named[name] += 1
        return label

    def _bind(self) -> None:
        for hook in self.hooks:
            self.label(hook)
        self.steps = tuple(
            RunCalls(hook, self._call(hook, "before_run"), self._call(hook, "after_run"))
            for hook in self.hooks
            if overrides(hook, "before_run") or overrides(hook, "after_run")
        )
        self._idling = tuple(
            calls for calls in self.steps if _members(calls.hook).idle_until_step is not None
        )
        self.always = self.steps
        """The calls of ``steps`` that every run makes."""
        if self._idling:
            self.always = tuple(calls for calls in self.steps if calls not in self._idling)
        self.find_wake_step()

    def find_wake_step(self) -> None:
        """Find the lowest step of the idle hooks. Called when they may have changed it."""
        steps = [calls.hook.idle_until_step for calls in self._idling]
        self.wake_step = min((-math.inf if step is None else step for step in steps), default=-math.inf)

    def _call(self, hook: Any, moment: str) -> Callable[..., Awaitable[Any]] | None:
        """Return a method of a hook, wrapped in its deadline and its policy for errors."""
        if not overrides(hook, moment):
            return None
        method: Callable[..., Awaitable[Any]] = getattr(hook, moment)
        name = f"{hook_name(hook)}.{moment}"
        kind: Kind = "background" if moment == "background" else "hook"
        secs = None if moment == "background" else _members(hook).deadline
        if secs is not None:
            method = functools.partial(with_deadline, secs, name, method)
        if moment not in _IN_RUNS or _members(hook).on_error != "raise":  # else the run notes it
            method = functools.partial(with_origin, kind, name, method)
        method = self._observed(hook, moment, method)
        if moment == "end":
            method = functools.partial(without_unrequested, name, method)
        if _members(hook).on_error != "raise":
            method = functools.partial(self._with_policy, hook, moment, method)
            if moment == "background" and _members(hook).on_error == "log":
                method = functools.partial(self._again, hook, method)
        return method

    def _observed(
        self, hook: Any, moment: str, method: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        """Return a method of a hook, wrapped in a span if there are observers."""
        if not self.observers:
            return method
        label, span = self.label(hook), self.observers.span
        kind, name = "background" if moment == "background" else "hook", f"{label}.{moment}"
        attributes = {"hook": label, "method": moment}

        async def in_span(*args: Any) -> Any:
            with span(kind, name, attributes):
                return await method(*args)

        return in_span

    async def _with_policy(
        self, hook: Any, moment: str, method: Callable[..., Awaitable[Any]], *args: Any
    ) -> Any:
        if moment != "begin" and not self.has(hook):
            return None  # removed by an earlier failure in this very run
        try:
            return await method(*args)
        except asyncio.CancelledError as error:
            if not is_unrequested():
                raise
            await self._tolerate(hook, moment, error)
        except Exception as error:
            await self._tolerate(hook, moment, error)
        return _FAILED if moment == "background" else None

    async def _again(self, hook: Any, method: Method, session: Session, coord: Coordinator) -> None:
        """Call ``background`` again after each failure, with growing pauses, until the stop."""
        failures, began = 0, clock.monotonic()
        while await method(session, coord) is _FAILED and self.has(hook):
            ended = clock.monotonic()
            failures = 1 if ended - began > LONGEST_PAUSE_SECS else failures + 1
            if await coord.wait_for_stop(pause_secs(failures)):
                return
            began = clock.monotonic()

    def failed(self, hook: Any, error: BaseException) -> None:
        """Count an error of a hook."""
        note_use_of_coroutine(error)
        self._failures_of(hook).add(error)

    def _failures_of(self, hook: Any) -> Failures:
        return self.failures.setdefault(self.label(hook), Failures())

    async def _tolerate(self, hook: Any, moment: str, error: BaseException) -> None:
        note_use_of_coroutine(error)
        policy = _members(hook).on_error
        # A hook that could not begin is not called any more: it would fail in each run.
        line = "%s.%s failed; on_error=%r."
        line += " The hook is detached." if moment == "begin" and policy == "log" else ""
        self._failures_of(hook).log(error, line, hook_name(hook), moment, policy)
        if policy == "detach" or moment == "begin":
            self._remove(hook)
            if any(hook is begun for begun in self.begun):
                await self.clean_up(hook, error)

    def has(self, hook: Any) -> bool:
        """Return whether this very object is among the hooks."""
        return any(hook is one for one in self.hooks)

    # -- the moments --------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Call ``begin`` of each hook, in order, up to the first error."""
        for hook in self.hooks:
            await self._begin(hook)

    async def _begin(self, hook: Any) -> None:
        self.begun.append(hook)
        if (call := self._call(hook, "begin")) is not None:
            await call()

    async def created(self, session: Session, coord: Coordinator) -> None:
        """Call ``after_create_session`` of each hook, in order, then start their backgrounds."""
        self._backgrounds.clear()
        for hook in self.hooks:
            if (call := self._call(hook, "after_create_session")) is not None:
                await call(session, coord)
        for hook in self.hooks:
            self._start_background(hook, session, coord)
        self.find_wake_step()
        if self._backgrounds:
            await asyncio.sleep(0)  # so that each runs to its first wait before the first run begins

    def _start_background(self, hook: Any, session: Session, coord: Coordinator) -> None:
        if (call := self._call(hook, "background")) is not None:
            self._backgrounds[id(hook)] = coord.create_task(
                call, session, coord, name=f"{hook_name(hook)}.background", cancel_on_stop=True
            )

    async def end(self, session: Session, stops: StopControl, errors: list[BaseException]) -> None:
        """Call ``end`` of every hook, in order, and add their errors to ``errors``.

        A cancellation of this task cancels the current call only, as the end of its stage does. If the
        session stops for a signal that is no error, unless the hook saves and has not saved the last
        step. A hook that exceeds its stage, since it ignores that, costs no other hook its save.
        """
        shutdown, saving = stops.shutdown, False
        for hook in self.hooks:
            if (call := self._call(hook, "end")) is None:
                continue
            saves = _members(hook).priority >= SAVER
            if saves and not saving:
                saving = True
                shutdown.extend(Stage.SAVES)
            stage = Stage.SAVES if saves else Stage.ENDS
            seen, what = len(errors), "was not called"
            if over := shutdown.is_over(stage):
                logger.warning("Grace period over: %s.end is not called.", hook_name(hook))
            else:
                what = "did not finish"
                caller = Leavable()
                async with shutdown.limit(stage, caller) as limit:
                    await self._end(hook, leavable(caller, call(session)), errors)
                over = limit.expired()
            if over:
                del errors[seen:]
                unsaved = saves and shutdown.unsaved() is not None
                if unsaved or not stops.is_preempted():
                    errors.append(shutdown.timeout(f"{hook_name(hook)}.end {what}"))

    async def end_on_cancel(self, session: Session, secs: float, errors: list[BaseException]) -> None:
        """Call ``end`` of the hooks with ``ends_on_cancel``, each with a timeout."""
        for hook in self.hooks:
            if _members(hook).ends_on_cancel and (call := self._call(hook, "end")) is not None:
                async with asyncio.timeout(secs):
                    await self._end(hook, call(session), errors)

    async def _end(self, hook: Any, ending: Awaitable[None], errors: list[BaseException]) -> None:
        notice = asyncio.get_running_loop().call_later(
            NOTICE_SECS, logger.info, "Waiting for %s.end.", hook_name(hook)
        )
        try:
            await ending
        except asyncio.CancelledError as error:
            logger.warning("Grace period over: %s.end was cancelled.", hook_name(hook))
            errors.append(error)
        except GeneratorExit:
            raise
        except BaseException as error:  # an exit is raised after the other hooks have saved
            logger.exception("%s.end failed.", hook_name(hook))
            self.failed(hook, error)
            errors.append(error)
        finally:
            notice.cancel()

    async def clean_up(self, hook: Any, error: BaseException | None) -> Exception | None:
        """Call ``cleanup`` of a hook that began, once. Return its error, which is logged."""
        self.begun = [begun for begun in self.begun if begun is not hook]
        try:
            if not overrides(hook, "cleanup"):
                return None
            name, secs = f"{hook_name(hook)}.cleanup", _members(hook).deadline or CLEANUP_SECS
            method = self._observed(hook, "cleanup", hook.cleanup)
            method = functools.partial(with_deadline, secs, name, method)
            await without_unrequested(name, with_origin, "hook", name, method, error)
        except Exception as failure:
            logger.exception("%s.cleanup failed.", hook_name(hook))
            return failure if _members(hook).on_error == "raise" else None
        finally:
            if not self.has(hook):
                self._labels.pop(id(hook), None)
        return None

    def can_save(self) -> bool:
        """Return whether a hook saves checkpoints."""
        return any(_members(hook).save_now is not None for hook in self.hooks)

    async def save_now(self, session: Session) -> str:
        """Let the first hook that can save do so. See ``MonitoredSession.save``."""
        for hook in self.hooks:
            if (save := _members(hook).save_now) is not None:
                return await save(session)
        raise RuntimeError(
            "No hook of this session saves checkpoints. Pass a CheckpointSaverHook in hooks, or a "
            "checkpoint_dir to MonitoredTrainingSession."
        )

    def release(self) -> None:
        """Let the hooks go, which refer to the program: the session is closed."""
        self.hooks, self.begun, self.running = (), [], None
        self._backgrounds.clear()
        self._labels.clear()
        self._bind()

    # -- changes while the session runs -------------------------------------------------------------

    async def attach(self, hook: Any, session: Session, coord: Coordinator) -> None:
        """Add a checked hook to an open session, and make the calls it has missed."""
        running = self.running
        self.hooks = in_order((*self.hooks, hook))
        self.running = hook
        try:
            with self.observers.entered():
                await self._begin(hook)
            if (call := self._call(hook, "after_create_session")) is not None:
                await call(session, coord)
        except BaseException as error:
            self._remove(hook)  # other hooks may have been added or removed since
            await self._clean_up_shielded(hook, error)
            raise
        finally:
            self.running = running
        if self.has(hook):  # else on_error="detach" has removed it
            self._start_background(hook, session, coord)
            self._bind()

    async def detach(self, hook: Any, session: Session) -> None:
        """Remove a hook with the calls of a successful end. A second call does nothing."""
        if not self.has(hook):
            return
        background = self._remove(hook)
        try:
            if background is not None:
                await stop_tasks(lambda: set() if background.done() else {background}, 0)
            if (call := self._call(hook, "end")) is not None:
                await call(session)
        except BaseException as error:
            await self._clean_up_shielded(hook, error)
            raise
        failed = await self._clean_up_shielded(hook, None)
        if failed is not None:
            raise failed

    async def _clean_up_shielded(self, hook: Any, error: BaseException | None) -> Exception | None:
        return await shielded(self.clean_up, hook, error, name=f"{hook_name(hook)}.cleanup")

    def _remove(self, hook: Any) -> asyncio.Task[Any] | None:
        self.hooks = tuple(one for one in self.hooks if one is not hook)
        self._bind()
        background = self._backgrounds.pop(id(hook), None)
        if background is None or background is asyncio.current_task():
            return None
        background.cancel()
        return background


def _members(hook: Any) -> HookMembers:
    return members_of(HookMembers, hook)
