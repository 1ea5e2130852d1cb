"""The innermost layer: hooks' fetches and feeds join the one raw run."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

from asyncmon.run_options import RunMetadata, RunOptions
from asyncmon.runtime.hook import SessionRunArgs, SessionRunContext, SessionRunValues
from asyncmon.runtime.hook_check import hook_name
from asyncmon.runtime.merge import merge_feeds, merge_options
from asyncmon.runtime.program import as_program
from asyncmon.runtime.step_fn import StepContext
from asyncmon.runtime.turn import inside_run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from asyncmon.runtime.coordinator import Coordinator
    from asyncmon.runtime.hook_set import HookSet, Step
    from asyncmon.runtime.protocol import Session
    from asyncmon.runtime.turn import Turn

__all__ = ["Hooked"]

_make = tuple.__new__  # half as long as a call of a named tuple, and there is one for each hook

_IDLE = -1  # the place of the fetches of a hook that this run leaves out


class Hooked:
    """Call the hooks around a raw run that computes what the caller and all of them want.

    Args:
        raw: the raw session.
        hooks: the hooks of the session.
        coord: its samples ride along.
        turn: told which run is under way.
        on_stop: called with the reason when a hook or a step function asks for a stop.
    """

    def __init__(
        self,
        raw: Session,
        hooks: HookSet,
        coord: Coordinator,
        turn: Turn,
        on_stop: Callable[[str], None],
    ) -> None:
        self.raw = raw
        self._hooks = hooks
        self._samples = coord.samples
        coord.samples.check = getattr(raw, "check_fetches", None)
        self._settled = coord.settled
        self.turn = turn
        self._canonical_feed = _canonical_feed(raw)
        self._on_stop = on_stop
        self._counts_steps = hasattr(raw, "global_step")
        self._no_options = RunOptions()
        self._stride = 1  # by how much the global step advanced when it last did
        self._at = 0  # the global step before the last run
        self._woken = False  # whether the next run calls hooks that idle, too

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Awaitable[Any]:
        """Run once. Where no hook does anything around a run, this is the raw run."""
        hooks = self._hooks
        if self._samples.waiting:
            pass
        elif not hooks.steps:
            return self.raw.run(fetches, feed_dict, options, run_metadata)
        elif hooks.all_idle and self._counts_steps and options is run_metadata is None:
            before = self.raw.global_step
            if before is not None and before >= self._at and not self._woken:
                self._at = before
                expected = before + self._stride
                for step in hooks.steps:
                    until = step.hook.idle_until_step
                    if until is None or until <= expected:
                        break
                else:
                    return self._run_idle(fetches, feed_dict, before, expected)
        args = _make(SessionRunArgs, (fetches, feed_dict, options))
        return self._run_with_hooks(args, run_metadata)

    async def _run_idle(self, fetches: Any, feed_dict: Any, before: int, expected: int) -> Any:
        """Run without hooks, and call those who were due after all."""
        result = await self.raw.run(fetches, feed_dict)
        if self.raw.global_step == expected:
            for step in self._hooks.steps:
                until = step.hook.idle_until_step
                if until is None or until <= expected:
                    break
            else:
                return result
        args = _make(SessionRunArgs, (fetches, feed_dict, None))
        return await self._run_with_hooks(args, None, before, (result,))

    async def _run_with_hooks(
        self,
        args: SessionRunArgs,
        run_metadata: Any,
        before: int | None = None,
        results: tuple[Any, ...] | None = None,
    ) -> Any:
        """Run with the hooks that do not idle.

        Args:
            args: of the caller.
            run_metadata: likewise.
            before: the global step before the run, if it is over.
            results: what the run has given, if it is over.
        """
        hooks, turn, raw, settled = self._hooks, self.turn, self.raw, self._settled
        steps = hooks.steps
        context = SessionRunContext(args, raw, self._request_stop)
        token, outer = inside_run.set(context), turn.run
        turn.run = context
        settled.under_way = True
        expected = math.inf  # that is, all hooks are due
        if hooks.some_idle and self._counts_steps:
            if results is None:
                before = raw.global_step
            if before is not None:
                if before >= self._at and not self._woken:  # else an earlier state was loaded
                    expected = before + self._stride
                self._at = before
        if before is not None:  # runs that left out everybody told nobody
            settled.told = before
        number = settled.told
        try:
            wanted = [args[0]]
            places = []  # of each hook's fetches in wanted; 0 where it has none
            others = []  # that feed or set something
            for step in steps:
                place = 0
                if results is not None or (step.idles and _idles(step, expected)):
                    place = _IDLE
                elif step.before is not None:
                    hooks.running = step.hook
                    asked = await step.before(context)
                    if asked is not None:
                        if not isinstance(asked, SessionRunArgs):
                            raise _wrong_args(step.hook, asked)
                        fetches, feeds, options = asked
                        if fetches is not None:
                            place = len(wanted)
                            wanted.append(fetches)
                        if feeds or options is not None:
                            others.append(asked)
                places.append(place)
            hooks.running = None
            _, feeds, options = args if not others else self._merge(args, others)
            if options is not None and run_metadata is None:
                run_metadata = RunMetadata()
            if results is not None:
                pass
            elif self._samples.waiting:
                results = await self._run_with_samples(wanted, feeds, options, run_metadata)
            elif len(wanted) == 1:
                results = (await raw.run(wanted[0], feeds, options, run_metadata),)
            else:
                results = await raw.run(tuple(wanted), feeds, options, run_metadata)
            if options is None:
                options = self._no_options
            if run_metadata is None:
                run_metadata = RunMetadata()
            number = raw.global_step if self._counts_steps else None
            if before is not None:
                self._count(before, number)
            for i, step in enumerate(steps):
                if step.after is not None:
                    if places[i] == _IDLE and (step.before or not _is_due(step, before, number)):
                        continue
                    if hooks.steps is not steps and not hooks.has(step.hook):
                        continue  # detached in this very run
                    hooks.running = step.hook
                    result = results[places[i]] if places[i] > 0 else None
                    values = _make(SessionRunValues, (result, options, run_metadata, number))
                    await step.after(context, values)
            return results[0]
        finally:
            hooks.running = None
            turn.run = outer
            inside_run.reset(token)
            settled.told = number
            settled.run_ended()

    def _count(self, before: int, number: int | None) -> None:
        """Learn how far runs advance the global step."""
        advanced = 0 if number is None else number - before
        self._woken = advanced <= 0
        if advanced > 0:
            self._stride = advanced

    def _merge(self, args: SessionRunArgs, others: list[SessionRunArgs]) -> SessionRunArgs:
        fetches, feed_dict, options = args
        if feeds := [other.feed_dict for other in others if other.feed_dict]:
            feed_dict = merge_feeds(feed_dict, feeds, self._canonical_feed)
        if more := [other.options for other in others if other.options is not None]:
            options = merge_options(options, more)
        return SessionRunArgs(fetches, feed_dict, options)

    async def _run_with_samples(self, wanted: list[Any], *args: Any) -> tuple[Any, ...]:
        samples = self._samples.take()
        fetches = (*wanted, *[sample.fetches for sample in samples])
        try:
            results: tuple[Any, ...] = await self.raw.run(fetches, *args)
        except BaseException as error:
            self._samples.put_back(samples, error)
            raise
        number = self.raw.global_step if self._counts_steps else None
        for sample, result in zip(samples, results[len(wanted) :], strict=True):
            sample.answer(result, number)
        return results

    async def run_step_fn(self, step_fn: Callable[[StepContext], Any]) -> Any:
        """Call a step function, plain or async, and return what it returns."""
        context = StepContext(self.raw, self.run, self._on_stop, self._stops_runs())
        token = inside_run.set(context)
        self.turn.run = context
        try:
            result = step_fn(context)
            return await result if inspect.isawaitable(result) else result
        finally:
            context.end()
            inside_run.reset(token)

    def _stops_runs(self) -> Callable[[], bool]:
        """Return whether a hook asked for a stop since now: an attempt that repeats the one in which
        it asked goes through."""
        hooks, before = self._hooks, self._hooks.stop_requested
        return lambda: hooks.stop_requested and not before

    def _request_stop(self, reason: str | None) -> None:
        hook = self._hooks.running
        self._on_stop(reason or f"{'a hook' if hook is None else hook_name(hook)} requested a stop")


def _canonical_feed(raw: Any) -> Callable[[Any], Hashable]:
    """Return what tells whether two keys name the same thing; without a program to ask, equality."""
    canonical: Callable[[Any], Hashable] = getattr(
        as_program(getattr(raw, "graph", raw)), "canonical_feed", lambda key: key
    )
    return canonical


def _idles(step: Step, expected: float) -> bool:
    """Return whether a run that is going to reach a global step leaves out a hook."""
    until: float | None = step.hook.idle_until_step
    return until is not None and expected < until


def _is_due(step: Step, before: int | None, number: int | None) -> bool:
    """Return whether a hook that a run left out is to be told of it after all."""
    return before is None or number is None or number < before or not _idles(step, number)


def _wrong_args(hook: Any, args: Any) -> TypeError:
    return TypeError(
        f"{hook_name(hook)}.before_run must return None or SessionRunArgs(fetches, feed_dict, "
        f"options), got {args!r}."
    )
