"""The inner layer: one raw run for the caller and all hooks."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from asyncmon.protobuf.run_options import RunMetadata, RunOptions
from asyncmon.runtime.graph_program import is_needed
from asyncmon.runtime.hook import SessionRunArgs, SessionRunContext, SessionRunValues, hook_name
from asyncmon.runtime.hook_set import HookSet, RunCalls
from asyncmon.runtime.program import program_of
from asyncmon.runtime.protocols import ProgramMembers, Run, Session, SessionMembers
from asyncmon.runtime.recovery import Recovery, Retries
from asyncmon.runtime.session_coordinator import SessionCoordinator
from asyncmon.runtime.step_fn import StepContext, call_step_fn
from asyncmon.runtime.stop.origin import mark, marked, own_generator_exit
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.system.error_text import add_note
from asyncmon.system.members import members_of

_make = tuple.__new__  # takes half the time of a named tuple's call, and there is one for each hook


class Hooked:
    """Call hooks around each raw run, and add their fetches and feeds to it.

    ``on_stop`` is called when a hook or a step function requests a stop.
    """

    def __init__(
        self,
        coord: SessionCoordinator,
        hooks: HookSet,
        on_stop: Callable[[Stop], None],
        recovery: Recovery,
    ) -> None:
        raw = self.raw = coord.raw
        self._hooks = hooks
        self.samples = coord.samples
        self._boundary = coord.boundary
        self._stops = coord.stops
        self._current = coord.stops.scopes.current
        self._on_stop = on_stop
        self._stop_by_hook, self._log = self._request_stop, hooks.recorder.log  # bound once
        self._runs: Session | Retries = raw
        self.raw_nowait = _run_nowait_of(raw)
        """The ``run_nowait`` of the raw session, or None."""
        if recovery.retries and members_of(SessionMembers, raw).transactional:
            self._runs = Retries(raw, recovery, coord.wait_for_stop)
            self.raw_nowait = None
        self._counts_steps = hasattr(raw, "global_step")  # else it is read in each run
        program = members_of(ProgramMembers, program_of(raw))
        self._canonical_feed = program.canonical_feed or (lambda key: key)
        self._no_options = RunOptions()
        self._step = raw.global_step if self._counts_steps else None  # seen by all hooks
        self._last_step: float = 0  # after the last run; inf if it did not advance the step
        self._made: tuple[int, tuple[Any]] | None = None
        """A run of :meth:`run_nowait` that wakes idle hooks: the step before it, and its result."""

    def run_bare(self, run: Run) -> Awaitable[Any]:
        """Run once without hooks."""
        return self._runs.run(*run)

    def run_nowait(self, run: Run) -> tuple[Any] | None:
        """Make a run that calls no hook, by ``raw_nowait``. None: :meth:`run` makes it, or ends it."""
        fetches, feeds, options, run_metadata = run
        if self.samples.waiting or options is not None or run_metadata is not None:
            return None
        assert self.raw_nowait is not None, "checked by the caller"
        hooks = self._hooks
        if not hooks.steps:
            return self.raw_nowait(fetches, feeds)
        before = self.raw.global_step if self._counts_steps else None
        if before is None or not self._last_step <= before < hooks.wake_step - 1:
            return None
        results = self.raw_nowait(fetches, feeds)
        if results is None or self._leaves_idle(before):
            return results
        self._made = before, results  # the hooks that it wakes are awaited
        return None

    def run(self, run: Run) -> Awaitable[Any]:
        """Run once. If no hook is called around it, this is the raw run."""
        if self._made is not None:
            (before, results), self._made = self._made, None
            return self._run_with_hooks(run, (), before, results)
        hooks, alone, step = self._hooks, not self.samples.waiting, None
        if alone and not hooks.steps:
            return self._runs.run(*run)
        if hooks.always is not hooks.steps and self._counts_steps:
            step = self.raw.global_step
            if alone and step is not None and self._last_step <= step < hooks.wake_step - 1:
                if hooks.always:
                    return self._run_with_hooks(run, hooks.always, step)
                return self._run_idle(run, step)
        return self._run_with_hooks(run, hooks.steps, step)

    async def _run_idle(self, run: Run, before: int) -> Any:
        """Run without hooks, then call the idle hooks that this run wakes."""
        result = await self._runs.run(*run)
        if self._leaves_idle(before):
            return result
        return await self._run_with_hooks(run, (), before, (result,))

    def _leaves_idle(self, before: int) -> bool:
        """Return whether a run that is done wakes no idle hook, and note its step."""
        step = self._step = self.raw.global_step
        # A run is expected to advance the step. After one that does not, the next one calls all hooks.
        self._last_step = step if step is not None and step > before else math.inf
        return step is not None and before <= step < self._hooks.wake_step

    async def _run_with_hooks(
        self,
        run: Run,
        calls: tuple[RunCalls, ...],
        before: int | None = None,
        results: tuple[Any, ...] | None = None,
    ) -> Any:
        """Run once, and call hooks before and after it.

        Args:
            run: of the caller.
            calls: of the hooks that are called before it. If others are idle and this run wakes them,
                they are called after it.
            before: the global step before the run; None if no hook is idle.
            results: of a run that has been made already.
        """
        hooks, boundary, task = self._hooks, self._boundary, asyncio.current_task()
        args = _make(SessionRunArgs, run[:3])
        context = SessionRunContext(args, self.raw, self._stop_by_hook, self._log)
        outer = self._current.begin(context)
        boundary.began_at = self._step if before is None else before
        present, wanted, places = hooks.steps, [run[0]], [0] * len(calls)
        try:
            if results is None:
                run = await self._call_before(calls, context, run, wanted, places)
                alone = len(wanted) == 1 and not self.samples.waiting
                results = (await self._runs.run(*run),) if alone else await self._run_all(wanted, run)
            if before is None:
                self._step = self.raw.global_step if self._counts_steps else None
            elif not self._leaves_idle(before) and calls is not present:
                calls, places = _with_woken(calls, places, present)
            await self._call_after(calls, context, run, results, places, present)
            return results[0]
        except BaseException as error:
            boundary.failed_at = boundary.began_at
            if (hook := hooks.running) is not None and (
                fault := own_generator_exit(error, hook_name(hook), task)
            ):
                raise fault from error
            if isinstance(error, Exception):  # else it is an interruption
                self._explain(
                    error, "before_run" if results is None else "after_run", calls, places, wanted
                )
            raise
        finally:
            # A run that was left behind comes here when another one may be current, and ends nothing.
            if self._current.end(context, outer):
                hooks.running = None
                if calls is not hooks.always:
                    hooks.find_wake_step()
                boundary.run_ends()

    async def _call_before(
        self,
        calls: tuple[RunCalls, ...],
        context: SessionRunContext,
        run: Run,
        wanted: list[Any],
        places: list[int],
    ) -> Run:
        """Call ``before_run`` of hooks. Return the run with their feeds and options.

        ``wanted`` gets the fetches of hooks, and ``places`` the place of each hook's fetches in it. It
        keeps 0 for a hook without any.
        """
        hooks, requests = self._hooks, []
        for i, call in enumerate(calls):
            if call.before is None:
                continue
            hooks.running = call.hook
            request = await call.before(context)
            if request is None:
                continue
            if not isinstance(request, SessionRunArgs):
                raise TypeError(
                    f"{hook_name(call.hook)}.before_run must return None or SessionRunArgs("
                    f"fetches, feed_dict, options), got {request!r}."
                )
            if request[0] is not None:
                places[i] = len(wanted)
                wanted.append(request[0])
            if request[1] or request[2] is not None:
                requests.append(request)
        hooks.running = None
        return self._merged(run, requests) if requests or run[2] is not None else run

    def _merged(self, run: Run, requests: list[SessionRunArgs]) -> Run:
        """Return a run with the feeds and options of hooks. With options it has metadata."""
        fetches, feeds, options, run_metadata = run
        feeds = merge_feeds(feeds, [r[1] for r in requests if r[1]], self._canonical_feed)
        options = merge_options(options, [r[2] for r in requests if r[2] is not None])
        if options is not None and run_metadata is None:
            run_metadata = RunMetadata()
        return fetches, feeds, options, run_metadata

    def _run_all(self, wanted: list[Any], run: Run) -> Awaitable[tuple[Any, ...]]:
        """Make the raw run of all fetches, with those of samples."""
        _, feeds, options, run_metadata = run
        if self.samples.waiting:
            return self._run_with_samples(wanted, feeds, options, run_metadata)
        return self._runs.run(tuple(wanted), feeds, options, run_metadata)

    async def _call_after(
        self,
        calls: tuple[RunCalls, ...],
        context: SessionRunContext,
        run: Run,
        results: tuple[Any, ...],
        places: list[int],
        present: tuple[RunCalls, ...],
    ) -> None:
        """Call ``after_run`` of hooks with the results of their fetches."""
        hooks, step = self._hooks, self._step
        _, _, options, run_metadata = run
        if options is None:
            options = self._no_options
        if run_metadata is None:
            run_metadata = RunMetadata()
        for call, place in zip(calls, places, strict=True):
            if call.after is None:
                continue
            if hooks.steps is not present and not hooks.has(call.hook):
                continue  # detached in this very run
            hooks.running = call.hook
            result = results[place] if place else None
            await call.after(context, _make(SessionRunValues, (result, options, run_metadata, step)))

    def _explain(
        self,
        error: Exception,
        moment: str,
        calls: tuple[RunCalls, ...],
        places: list[int],
        wanted: list[Any],
    ) -> None:
        """Note in the error of a run which hook has raised it, or needs the node that has."""
        hooks = self._hooks
        if (hook := hooks.running) is not None:
            hooks.failed(hook, error)
            mark(error, "hook", f"{hook_name(hook)}.{moment}")
        elif moment == "before_run":
            asked = [(hook_name(calls[i].hook), wanted[k]) for i, k in enumerate(places) if k]
            _name_hooks(error, wanted[0], asked)

    async def _run_with_samples(self, wanted: list[Any], *args: Any) -> tuple[Any, ...]:
        """Return the results of all fetches, and complete the samples that join them."""
        samples = self.samples.take()
        fetches = (*wanted, *[sample.fetches for sample in samples])
        try:
            results: tuple[Any, ...] = await self._runs.run(fetches, *args)
        except BaseException as error:
            self.samples.put_back(samples, error)
            raise
        step = self.raw.global_step if self._counts_steps else None
        for sample, result in zip(samples, results[len(wanted) :], strict=True):
            if not sample.result.done():
                sample.result.set_result((result, step))
        return results

    async def run_step_fn(self, step_fn: Callable[[StepContext], Any]) -> Any:
        """Return the result of a step function, plain or async."""
        stops, before = self._stops, self._stops.stopped_by_hook

        def check() -> None:  # a repeated attempt may run even if the first one requested the stop
            if stops.stopped_by_hook and not before:
                raise stops.refused_run()

        async def run(run: Run) -> Any:
            with marked("step", f"the run of {run[0]!r:.100}"):
                return await self.run(run)

        context = StepContext(self.raw, run, self._on_stop, check, self._log)
        outer = self._current.begin(context)
        try:
            with marked("step function", "the step function"):
                return await call_step_fn(step_fn, context)
        finally:
            context.end()
            self._current.end(context, outer)

    def leave_run(self) -> None:
        """End the current run, the coroutine of which was left behind."""
        self._hooks.running = None
        self._current.leave()
        self._boundary.run_ends()

    def _request_stop(self, reason: str | None) -> None:
        hook = self._hooks.running
        name = "a hook" if hook is None else hook_name(hook)
        self._boundary.at_end(self._stops.refuse_samples)  # this run still completes those it has
        self._on_stop(Stop(Cause.HOOK, reason or f"{name} requested a stop", name))


def _run_nowait_of(raw: Any) -> Callable[[Any, Any], tuple[Any] | None] | None:
    """Return the ``run_nowait`` of a session, unless it is that of an object that this one wraps."""
    owner = next((cls for cls in type(raw).__mro__ if "run" in vars(cls)), object)
    return members_of(SessionMembers, raw).run_nowait if "run_nowait" in vars(owner) else None


def _with_woken(
    calls: tuple[RunCalls, ...], places: list[int], present: tuple[RunCalls, ...]
) -> tuple[tuple[RunCalls, ...], list[int]]:
    """Return the calls after a run that wakes the idle hooks, and the places of their fetches."""
    # An idle hook with a before_run, which was not called, is left to the next run.
    place = {id(call): place for call, place in zip(calls, places, strict=True)}
    calls = tuple(call for call in present if call.before is None or id(call) in place)
    return calls, [place.get(id(call), 0) for call in calls]


def _name_hooks(error: Exception, fetches: Any, asked: Sequence[tuple[str, Any]]) -> None:
    """Name the hooks of which the fetches need the node that failed, if those of the caller do not."""
    op = getattr(error, "op", None)
    if op is None or not asked or is_needed(op, fetches):
        return
    names = [name for name, one in asked if is_needed(op, one)]
    if names:
        add_note(
            error,
            f"asyncmon: the fetches of {', '.join(names)} need it, those of the caller do not. Feed "
            "the placeholders of a hook's fetches in each run in which it is due.",
        )


def merge_feeds(
    own: Mapping[Any, Any] | None,
    others: Sequence[Mapping[Any, Any]],
    canonical: Callable[[Any], Hashable],
) -> Mapping[Any, Any] | None:
    """Return the feeds of the caller and of all hooks, in a new dict if hooks have feeds.

    ``canonical`` returns the same value for all keys of one tensor. A tensor that is fed twice is a
    ``RuntimeError``.
    """
    if not others:
        return own
    merged = dict(own or {})
    by_caller = {canonical(key) for key in merged}
    by_hooks: set[Hashable] = set()
    for feeds in others:
        named = {canonical(key): key for key in feeds}
        if twice := [key for name, key in named.items() if name in by_hooks]:
            raise RuntimeError(f"Same tensor is fed by two hooks. Conflict(s): {twice}")
        if twice := [key for name, key in named.items() if name in by_caller]:
            raise RuntimeError(f"Same tensor is fed by a SessionRunHook and user. Conflict(s): {twice}")
        by_hooks.update(named)
        merged.update(feeds)
    return merged


def merge_options(own: Any, others: Sequence[Any]) -> Any:
    """Return the options of the caller, merged with those of the hooks into a new object.

    Numbers become the maximum, booleans are or-ed, lists appended; other fields of hooks are ignored. A
    hook can only lengthen a timeout, but its finite one replaces a missing one of the caller.
    """
    if not others:
        return own
    merged = copy.deepcopy(own) if own is not None else type(others[0])()
    for other in others:
        for field in fields(merged):
            mine, theirs = getattr(merged, field.name), getattr(other, field.name)
            if isinstance(mine, bool):
                setattr(merged, field.name, mine or theirs)
            elif isinstance(mine, int | float):
                setattr(merged, field.name, max(mine, theirs))
            elif isinstance(mine, list):
                mine.extend(theirs)
    return merged
