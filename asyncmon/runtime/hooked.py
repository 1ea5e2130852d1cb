"""The innermost layer: hooks' fetches and feeds join the one raw run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from asyncmon.graph.run_options import RunMetadata, RunOptions
from asyncmon.runtime.hook import SessionRunArgs, SessionRunContext, SessionRunValues
from asyncmon.runtime.hook_check import hook_name
from asyncmon.runtime.merge import merge_feeds, merge_options
from asyncmon.runtime.program import as_program
from asyncmon.runtime.step_fn import StepContext
from asyncmon.runtime.turn import inside_run

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from asyncmon.runtime.coordinator import Coordinator
    from asyncmon.runtime.hook_set import HookSet, Step
    from asyncmon.runtime.protocol import Session
    from asyncmon.runtime.samples import Sample
    from asyncmon.runtime.turn import Turn

__all__ = ["Hooked"]

_NO_SAMPLES: list[Sample] = []


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
        self._turn = turn
        self._canonical_feed = _canonical_feed(raw)
        self._on_stop = on_stop
        self._counts_steps = hasattr(raw, "global_step")
        self._no_options = RunOptions()

    async def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run once. Where no hook does anything around a run, this is the raw run."""
        if not self._hooks.steps and not self._samples.waiting:
            return await self.raw.run(fetches, feed_dict, options, run_metadata)
        args = SessionRunArgs(fetches, feed_dict, options)
        context = SessionRunContext(args, self.raw, on_stop=self._request_stop)
        token, outer = inside_run.set(context), self._turn.run
        self._turn.run = context
        try:
            return await self._run_with_hooks(context, args, run_metadata)
        finally:
            self._hooks.running = None
            self._turn.run = outer
            inside_run.reset(token)

    async def _run_with_hooks(
        self, context: SessionRunContext, args: SessionRunArgs, run_metadata: Any
    ) -> Any:
        hooks = self._hooks
        steps = hooks.steps
        wanted: list[Any] = [args.fetches]
        places, feeds, options = await self._ask_hooks(steps, context, wanted)
        feed_dict: Any = args.feed_dict
        if feeds:
            feed_dict = merge_feeds(feed_dict, feeds, self._canonical_feed)
        merged = merge_options(args.options, options) if options else args.options
        if run_metadata is None and merged is not None:
            run_metadata = RunMetadata()
        samples = self._samples.take() if self._samples.waiting else _NO_SAMPLES
        wanted.extend(sample.fetches for sample in samples)
        try:
            if len(wanted) == 1:
                results = (await self.raw.run(args.fetches, feed_dict, merged, run_metadata),)
            else:
                results = await self.raw.run(tuple(wanted), feed_dict, merged, run_metadata)
        except BaseException as error:
            if samples:
                self._samples.put_back(samples, error)
            raise
        number = self.raw.global_step if self._counts_steps else None
        if samples:
            for sample, result in zip(samples, results[-len(samples) :], strict=True):
                sample.answer(result, number)
        values = (merged or self._no_options, run_metadata or RunMetadata(), number)
        for step, place in zip(steps, places, strict=True):
            if step.after is not None:
                if hooks.steps is not steps and not hooks.has(step.hook):
                    continue  # detached in this very run
                hooks.running = step.hook
                result = results[place] if place else None
                await step.after(context, SessionRunValues(result, *values))
        return results[0]

    async def _ask_hooks(
        self, steps: Sequence[Step], context: SessionRunContext, wanted: list[Any]
    ) -> tuple[list[int], list[Any], list[Any]]:
        """Call each ``before_run``. Return where in ``wanted`` each hook's fetches are (0: nowhere),
        and what hooks feed and set."""
        hooks = self._hooks
        places: list[int] = []
        feeds: list[Any] = []
        options: list[Any] = []
        for step in steps:
            place = 0
            if step.before is not None:
                hooks.running = step.hook
                args = await step.before(context)
                if args is not None:
                    if not isinstance(args, SessionRunArgs):
                        raise TypeError(
                            f"{hook_name(step.hook)}.before_run must return None or "
                            f"SessionRunArgs(fetches, feed_dict, options), got {args!r}."
                        )
                    fetches, feed_dict, its_options = args
                    if fetches is not None:
                        place = len(wanted)
                        wanted.append(fetches)
                    if feed_dict:
                        feeds.append(feed_dict)
                    if its_options is not None:
                        options.append(its_options)
            places.append(place)
        hooks.running = None
        return places, feeds, options

    async def run_step_fn(self, step_fn: Callable[[StepContext], Any]) -> Any:
        """Call a step function, plain or async, and return what it returns."""
        context = StepContext(self.raw, self.run, self._on_stop, self._stops_runs())
        token = inside_run.set(context)
        self._turn.run = context
        try:
            result = step_fn(context)
            return await result if inspect.isawaitable(result) else result
        finally:
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
