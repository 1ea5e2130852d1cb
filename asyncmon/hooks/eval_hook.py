"""Publish metrics periodically: of evaluations, beside training or between steps, or of its runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import numpy as np

from asyncmon.checkpoint.captured_state import CapturedState
from asyncmon.checkpoint.stateful import StatefulObjects
from asyncmon.hooks.evaluation import Evaluator, Source
from asyncmon.hooks.hook_support import (
    created_session,
    leave_out,
    log_errors,
    named_tensor,
    whole_number,
)
from asyncmon.hooks.moving_average import MovingAverageHook
from asyncmon.hooks.step_schedule import StepSchedule, global_step_of, require_global_step, step_after
from asyncmon.runtime import (
    Coordinator,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    current_program,
)
from asyncmon.runtime.stop.control import EvaluationEndedError
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.runtime.stop.origin import marked
from asyncmon.summary.shared_writer import SharedWriter, SummaryWriter
from asyncmon.system.functions import qualified_name, settled
from asyncmon.system.snapshot import Snapshot

Listener = Callable[[int, Mapping[str, float]], Awaitable[None] | None]

logger = logging.getLogger(__name__)


class Metrics(dict[str, float]):
    """The metrics of a state, by name, with the hook that evaluated it and its global step."""

    def __init__(self, evaluation: Evaluations, step: int | None, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.evaluation, self.step = evaluation, step


class Evaluations(SessionRunHook):
    """Base class of hooks that evaluate. It publishes the results; a signal interrupts an evaluation.

    Args:
        name: the prefix of the summaries' tags, ``<name>/<metric>``.
        output_dir: write the metrics to the event file of this directory. Default: to the loggers of
            the session.
        summary_writer: write them to this writer instead.
    """

    def __init__(
        self,
        name: str,
        output_dir: str | os.PathLike[str] | None,
        summary_writer: SummaryWriter | None,
    ) -> None:
        self.name = name
        self.metrics = Metrics(self, None, {})
        """The metrics of the last evaluation; empty before the first one."""
        self.capture: Callable[[Session], CapturedState]
        """Captures the state of a concurrent evaluation. A hook that saves evaluated states sets this
        and ``save_evaluated``, in each session."""
        self.save_evaluated: Callable[[Session, CapturedState | None], Awaitable[bool]]
        """Saves an evaluated state; None stands for the state after this run. Returns whether it takes
        the state over."""
        self.is_open = False
        """Whether the hook belongs to an open session."""
        self._output = SharedWriter(output_dir, summary_writer)
        self._evaluator: Evaluator  # set by a subclass
        self._listeners: list[Listener] = []

    @property
    def step(self) -> int | None:
        """The global step of the last evaluated state."""
        return self.metrics.step

    def add_listener(self, listener: Listener) -> None:
        """Call a plain or async function with the step and the metrics of each evaluation."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Do not call a function any more. A function that was not added is ignored."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def begin(self) -> None:
        self.is_open = True
        self.capture, self.save_evaluated = _capture, _save_nothing

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._output.start(session.global_step)
        self._stops = created_session(coord).stops
        self._boundary = created_session(coord).boundary

    async def cleanup(self, error: BaseException | None) -> None:
        """Close the evaluation session, and release the writer."""
        self.is_open = False
        try:
            if hasattr(self, "_evaluator"):
                await self._evaluator.close()
        finally:
            await self._output.close()

    async def _evaluate_state(self, state: Snapshot, values: Mapping[str, Any] | None = None) -> bool:
        """Evaluate a state, or ``values`` in its place, and publish the metrics.

        Returns False if a signal prevents this.
        """
        if self._stops.shutdown.signalled:
            return False
        try:
            scope = CallScope(self._stops.scopes, "evaluation")
            with marked("evaluation", f"the evaluation {self.name!r}"), scope:
                metrics = await self._evaluator.evaluate(state if values is None else values)
        except EvaluationEndedError as error:
            logger.info("Evaluation %r at step %s: %s", self.name, state.step, error)
            return False
        await self._publish(state.step or 0, metrics)
        return True

    async def _publish(self, step: int, metrics: dict[str, float]) -> None:
        self.metrics = Metrics(self, step, metrics)
        line = ", ".join(f"{tag} = {value:g}" for tag, value in metrics.items())
        logger.info("Evaluation %r at step %d: %s", self.name, step, line)
        tagged = {f"{self.name}/{tag}": value for tag, value in metrics.items()}
        self._output.add_scalars(tagged, step)
        for listener in self._listeners:
            what = f"the listener {qualified_name(listener)}"
            scope = CallScope(self._stops.scopes, "listener")
            with log_errors(self, what), marked("listener", what), scope:
                await settled(listener(step, metrics))


_Captured = tuple[CapturedState, Mapping[str, Any] | None]
"""A state, and the averages that are evaluated with it."""


class EvalHook(Evaluations):
    """Evaluate periodically, concurrently with training.

    An evaluation uses the consistent state of one step, in a separate session, and averages metrics
    over batches. If an evaluation is due before the previous one has ended, the newest state is
    pending and states in between are skipped. A successful end waits for pending evaluations. Loading
    an earlier state resets the schedule.

    ``hook.metrics`` and ``hook.step`` are the last result. Add a listener for each result with
    ``hook.add_listener(fn)``.

    Args:
        metrics: fetches of one number per batch, by name; or a single fetch of a mapping from names to
            numbers, such as the step function of an evaluation.
        feeds: a feed dict, an iterable or async iterable of them, or a plain or async function that
            returns one of these. Each evaluation iterates it from the start. None runs once without
            feeds.
        every_steps: the interval in global steps.
        every_secs: the interval in seconds, if the step has changed. Recoveries keep the phase.
        program: another program to evaluate, such as a graph without dropout, of which ``metrics`` are
            fetches. It gets the state by name. Default: the program of the session.
        batches: the largest number of batches.
        weight: a fetch of the weight of a batch in the averages.
        concurrent: False pauses training during an evaluation.
        at_start: also evaluate before the first step, so that an evaluation that fails does so at once.
        at_end: also evaluate the last state at a successful end.
        averages: a hook of the session. Its averages are evaluated in place of the weights.
        name: the prefix of the summaries' tags.
        output_dir: write the metrics to the event file of this directory. Default: to the loggers of
            the session.
        summary_writer: write them to this writer instead.

    Raises:
        ValueError: not exactly one of ``every_steps`` and ``every_secs`` is given.

    Example::

        evaluation = EvalHook({"accuracy": accuracy}, lambda: test_feeds, every_steps=500)
    """

    def __init__(
        self,
        metrics: Any,
        feeds: Source = None,
        every_steps: int | None = None,
        every_secs: float | None = None,
        *,
        program: Any = None,
        batches: int | None = None,
        weight: Any = None,
        concurrent: bool = True,
        at_start: bool = False,
        at_end: bool = False,
        averages: MovingAverageHook | None = None,
        name: str = "eval",
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        super().__init__(name, output_dir, summary_writer)
        self._schedule = StepSchedule(
            self, EvalHook, "every_", every_steps, every_secs, at_once=False, both_ways=True
        )
        self._concurrent = concurrent
        self._at_start, self._at_end = at_start, at_end
        self._averages = averages
        self._program = program
        self._new_evaluator = partial(
            Evaluator, metrics=metrics, feeds=feeds, batches=batches, weight=weight
        )
        self._arrived: asyncio.Event
        self._evaluating: asyncio.Lock
        if concurrent and every_secs is not None:
            leave_out(self, EvalHook, "after_run")
        elif not concurrent and every_steps is not None:
            leave_out(self, EvalHook, "background")

    async def begin(self) -> None:
        """Reject a program without a global step, and prepare it for evaluations."""
        await super().begin()
        require_global_step(self)
        self._arrived, self._evaluating = asyncio.Event(), asyncio.Lock()  # of this loop
        self._starts = self._at_start
        program = current_program() if self._program is None else self._program
        self._evaluator = self._new_evaluator(program)
        self._evaluator.prepare()
        self._schedule.forget_ticks()

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        await super().after_create_session(session, coord)
        if self._averages is not None and self._averages not in created_session(coord).hooks():
            raise RuntimeError(
                f"EvalHook {self.name!r} evaluates the averages of {self._averages!r}, which is not "
                "among the session's hooks. Pass both of them."
            )
        self._tick_passed = False
        self._seen: int | None = None  # the step of the newest evaluation that began
        self._pending: asyncio.Future[_Captured] | None = None
        self._schedule.start(global_step_of(self, session))
        if self._starts:
            self._starts = False
            await self._evaluate(await session.snapshot())

    def _is_due(self, step: int) -> bool:
        schedule = self._schedule
        if schedule.every_secs is not None:
            due, self._tick_passed = self._tick_passed, False
            return due
        if schedule.restarts(step):
            self._seen = None
        if not schedule.is_due(step):
            return False
        schedule.done(step)
        return True

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """If an evaluation is due, evaluate the state after this run or make it pending."""
        if not self._is_due(step_after(run_values)):
            return
        session = run_context.session
        if self._concurrent:  # a pending state that is skipped is released with its last reference
            self._pending = self._boundary.call_after_run(partial(self._captured, session))
            self._arrived.set()
        else:
            if await self._evaluate(await session.snapshot()):
                await self.save_evaluated(session, None)

    async def background(self, session: Session, coord: Coordinator) -> None:
        """Evaluate at ticks, or pending states. With a pause, mark the next run as due."""
        if self._schedule.every_secs is not None:
            async for _ in self._schedule.ticks(coord):
                if not self._concurrent:
                    self._tick_passed = True
                elif session.global_step != self._seen:
                    with log_errors(self, "an evaluation"):
                        async with self._evaluating:
                            await self._evaluate_captured(self._captured(session))
        else:
            while await self._arrived.wait():
                self._arrived.clear()
                await self._evaluate_pending()

    async def end(self, session: Session) -> None:
        """Wait for pending evaluations; with ``at_end``, evaluate the last state."""
        await self._evaluate_pending()
        if self._at_end and self._seen != session.global_step:
            await self._evaluate(await session.snapshot())

    async def cleanup(self, error: BaseException | None) -> None:
        self._pending = None
        await super().cleanup(error)

    def _captured(self, session: Session) -> _Captured:
        averages = None if self._averages is None else self._averages.averages
        return self.capture(session), averages

    async def _evaluate_pending(self) -> None:
        async with self._evaluating:
            pending, self._pending = self._pending, None
            if pending is not None:
                await self._evaluate_captured(await pending)

    async def _evaluate_captured(self, captured: _Captured) -> None:
        (state, averages), is_taken = captured, False
        try:
            snapshot = cast("Snapshot", await state.snapshot(pull=True))
            if await self._evaluate(snapshot, averages, release=False):
                is_taken = await self.save_evaluated(state.session, state)
        finally:
            if not is_taken:
                state.discard()

    async def _evaluate(
        self, state: Snapshot, averages: Mapping[str, Any] | None = None, *, release: bool = True
    ) -> bool:
        self._seen = state.step
        try:
            with state if release else nullcontext():
                if self._averages is None:
                    return await self._evaluate_state(state)
                return await self._evaluate_state(state, self._averages.applied(state, averages))
        except Exception:
            if self.on_error != "log":
                raise
            logger.exception("Evaluation %r at step %s failed.", self.name, state.step)
            return False


def _capture(session: Session) -> CapturedState:
    return CapturedState(session, StatefulObjects(), session_states=False)


async def _save_nothing(_session: Session, _state: CapturedState | None) -> bool:
    return False


class TrainingMetricsHook(Evaluations):
    """Average values that training runs fetch over intervals, and publish them like an evaluation.

    For early stopping on a training value, for the ``metrics`` of a ``CheckpointSaverHook``, and for
    curves of a learning rate or the norm of gradients.

    Args:
        metrics: fetches of numbers by name; the mean of an array is used.
        every_steps: the interval in global steps.
        name: the prefix of the tags of the averages, which the session's loggers get.

    Raises:
        ValueError: ``every_steps`` is not positive, or there is no metric.

    Example::

        training = TrainingMetricsHook({"loss": loss}, every_steps=100)
        hooks = [training, stop_if(training, "loss", no_decrease_in=5)]
    """

    def __init__(
        self,
        metrics: Mapping[str, Any],
        every_steps: int = 100,
        *,
        name: str = "train",
    ) -> None:
        super().__init__(name, None, None)
        if not metrics:
            raise ValueError("TrainingMetricsHook was given no metric: pass fetches, {'loss': loss}.")
        self._fetches = dict(metrics)
        self._every_steps = whole_number("every_steps", every_steps, least=1)

    async def begin(self) -> None:
        await super().begin()
        require_global_step(self)
        self._args = SessionRunArgs({tag: named_tensor(one) for tag, one in self._fetches.items()})

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        await super().after_create_session(session, coord)
        self._step, self._rows = global_step_of(self, session), list[list[float]]()

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return self._args

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Add the values of a step; publish the averages at each multiple of ``every_steps``."""
        before, self._step = self._step, step_after(run_values)
        if self._step <= before:
            return  # no training
        self._rows.append([float(np.mean(value)) for value in run_values.results.values()])
        if self._step // self._every_steps > before // self._every_steps:
            means, self._rows = np.mean(self._rows, axis=0).tolist(), []
            await self._publish(self._step, dict(zip(self._fetches, means, strict=True)))
            await self.save_evaluated(run_context.session, None)
