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
from asyncmon.runtime.protocols import ProgramMembers
from asyncmon.runtime.saves import Captured
from asyncmon.runtime.stop.control import EvaluationEndedError
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.runtime.stop.origin import marked
from asyncmon.summary.shared_writer import SharedWriter, SummaryWriter
from asyncmon.system.files import in_thread
from asyncmon.system.functions import qualified_name, settled
from asyncmon.system.members import members_of
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

    _title = "Evaluation"  # in log lines

    def __init__(
        self,
        name: str,
        output_dir: str | os.PathLike[str] | None,
        summary_writer: SummaryWriter | None,
    ) -> None:
        self.name = name
        self.metrics = Metrics(self, None, {})
        """The metrics of the last evaluation; empty before the first one."""
        self.is_open = False
        """Whether the hook belongs to an open session."""
        self._output = SharedWriter(output_dir, summary_writer)
        self.output_dir = self._output.directory
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

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._output.start(session.global_step, created_session(coord).recorder)
        self._stops = created_session(coord).stops
        self._boundary = created_session(coord).boundary
        self._saves = created_session(coord).saves

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
        self._saves.observers.record.evaluated(metrics)
        await self._publish(state.step or 0, metrics)
        return True

    async def _publish(self, step: int, metrics: dict[str, float]) -> None:
        self.metrics = Metrics(self, step, metrics)
        line = ", ".join(f"{tag} = {value:g}" for tag, value in metrics.items())
        logger.info("%s %r at step %d: %s", self._title, self.name, step, line)
        tagged = {f"{self.name}/{tag}": value for tag, value in metrics.items()}
        self._output.add_scalars(tagged, step)
        for listener in self._listeners:
            what = f"the listener {qualified_name(listener)}"
            scope = CallScope(self._stops.scopes, "listener")
            with log_errors(self, what), marked("listener", what), scope:
                await settled(listener(step, metrics))


# A state, and the averages that are evaluated with it.
_Captured = tuple[list[Captured], Mapping[str, Any] | None]


class EvalHook(Evaluations):
    """Evaluate periodically, concurrently with training.

    An evaluation uses the consistent state of one step, in a separate session, and averages metrics
    over batches. If an evaluation is due before the previous one has ended, the newest state is
    pending and states in between are skipped. A successful end waits for pending evaluations. One that
    was due but not made when a checkpoint was saved is made of the restored state.

    ``hook.metrics`` and ``hook.step`` are the last result. Add a listener for each result with
    ``hook.add_listener(fn)``.

    Args:
        metrics: fetches of one number per batch, by name; or a single fetch of a mapping from names to
            numbers, such as the step function of an evaluation.
        feeds: a feed dict, an iterable or async iterable of them, or a plain or async function that
            returns one of these. Each evaluation iterates it from the start. None runs once without
            feeds.
        every_steps: evaluate the states that reach a multiple of this global step, over restarts.
        every_secs: the interval in seconds, if the step has changed. Recoveries keep the phase.
        every_epochs: evaluate at the end of each epoch of ``sess.epochs``, or of those whose number is
            a multiple of this, over restarts.
        program: another program to evaluate, such as a graph without dropout, of which ``metrics`` are
            fetches. It gets the state by name. Default: the program of the session.
        batches: the largest number of batches.
        weight: a fetch of the weight of a batch in the averages.
        concurrent: False pauses training during an evaluation: the run, or the body between epochs.
        at_start: also evaluate before the first step, so that an evaluation that fails does so at once.
        at_end: also evaluate the last state at a successful end. Default: only with ``every_epochs``.
        averages: a hook of the session. Its averages are evaluated in place of the weights.
        name: the prefix of the summaries' tags.
        output_dir: write the metrics to the event file of this directory. Default: to the loggers of
            the session.
        summary_writer: write them to this writer instead.

    Raises:
        ValueError: not exactly one of ``every_steps``, ``every_secs`` and ``every_epochs`` is given, or
            it is not positive.

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
        every_epochs: int | None = None,
        program: Any = None,
        batches: int | None = None,
        weight: Any = None,
        concurrent: bool = True,
        at_start: bool = False,
        at_end: bool | None = None,
        averages: MovingAverageHook | None = None,
        name: str = "eval",
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        super().__init__(name, output_dir, summary_writer)
        self._schedule: StepSchedule | None = None
        if every_epochs is None or (every_steps, every_secs) != (None, None):
            if every_epochs is not None:
                raise ValueError(
                    "Can not provide both every_epochs and another interval: got "
                    f"every_epochs={every_epochs!r}, {every_steps=} and {every_secs=}."
                )
            self._schedule = StepSchedule(
                self, EvalHook, "every_", every_steps, every_secs, multiples=True, both_ways=True
            )
        else:
            whole_number("every_epochs", every_epochs, least=1)
        self._every_secs, self._every_epochs = every_secs, every_epochs
        self._concurrent = concurrent
        self._at_start = at_start
        self._at_end = every_epochs is not None if at_end is None else at_end
        self._averages = averages
        self._program = program
        self._new_evaluator = partial(
            Evaluator, metrics=metrics, feeds=feeds, batches=batches, weight=weight
        )
        self._is_beside = concurrent or every_epochs is not None  # the background task evaluates
        self._arrived: asyncio.Event
        self._idle: asyncio.Event
        self._evaluating: asyncio.Lock
        if (concurrent and every_secs is not None) or every_epochs is not None:
            leave_out(self, EvalHook, "after_run")
        elif not concurrent and every_steps is not None:
            leave_out(self, EvalHook, "background")

    async def begin(self) -> None:
        """Reject a program without a global step, and prepare it for evaluations."""
        await super().begin()
        require_global_step(self)
        self._arrived, self._idle = asyncio.Event(), asyncio.Event()  # of this loop
        self._evaluating = asyncio.Lock()
        self._starts = self._at_start
        self._restored: tuple[bool, int | None] = False, None
        self._leave_epochs: Callable[[], None] = lambda: None
        program = current_program() if self._program is None else self._program
        self._evaluator = self._new_evaluator(program)
        self._evaluator.prepare()
        if self._schedule is not None:
            self._schedule.forget_ticks()

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        await super().after_create_session(session, coord)
        created = created_session(coord)
        if self._averages is not None and self._averages not in created.hooks():
            raise RuntimeError(
                f"EvalHook {self.name!r} evaluates the averages of {self._averages!r}, which is not "
                "among the session's hooks. Pass both of them."
            )
        self._session, self._stop = session, coord.wait_for_stop
        self._tick_passed = False
        #   due        captured             begun             done
        #   _is_owed   _pending, _arrived   _seen: its step   not _is_owed, unless one is _pending
        #
        #   A newer state takes the place of the _pending one. _idle: none is pending or evaluated.
        #   Checkpoints have _is_owed and _seen: an evaluation that is due is made after a restart.
        (self._is_owed, self._seen), self._restored = self._restored, (False, None)
        self._pending: asyncio.Future[_Captured] | None = None
        step = global_step_of(self, session)
        if self._schedule is not None:
            self._schedule.start(step)
        if self._every_epochs is not None:
            self._leave_epochs()
            self._leave_epochs = created.observers.epochs.add(self._at_epoch)
        if self._starts or (self._is_owed and not self._is_beside):
            self._starts = False
            await self._evaluate(await session.snapshot())

    def state_dict(self) -> dict[str, Any]:
        """Return whether an evaluation is due and not made, and the step of the last one that began."""
        return {"is_owed": self._is_owed, "step": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state of an earlier session. For ``after_create_session``."""
        self._restored = state["is_owed"], state["step"]

    def _is_due(self, step: int) -> bool:
        schedule = self._schedule
        assert schedule is not None, "after_run is left out by epochs"
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
        session, self._is_owed = run_context.session, True
        if self._concurrent:  # a pending state that is skipped is released with its last reference
            self._pending = self._boundary.call_after_run(partial(self._captured, session))
            self._arrived.set()
        else:
            if await self._evaluate(await session.snapshot()):
                await self._saves.evaluated(self, session, None)

    async def background(self, session: Session, coord: Coordinator) -> None:
        """Evaluate at ticks, or pending states. With a pause, mark the next run as due."""
        if self._is_owed and self._is_beside and self._pending is None:
            self._order(session)
        try:
            if self._every_secs is None:
                while await self._arrived.wait():
                    self._arrived.clear()
                    await self._evaluate_pending()
            else:
                await self._evaluate_at_ticks(session, coord)
        finally:
            self._idle.set()  # nothing may wait for a task that has ended

    async def end(self, session: Session) -> None:
        """Wait for pending evaluations; with ``at_end``, evaluate the last state."""
        await self._evaluate_pending()
        if self._at_end and self._seen != session.global_step:
            await self._evaluate(await session.snapshot())

    async def cleanup(self, error: BaseException | None) -> None:
        self._pending = None
        self._leave_epochs()
        await super().cleanup(error)

    async def _evaluate_at_ticks(self, session: Session, coord: Coordinator) -> None:
        assert self._schedule is not None, "by seconds"
        with log_errors(self, "an evaluation"):
            await self._evaluate_pending()
        async for _ in self._schedule.ticks(coord):
            if not self._concurrent:
                self._tick_passed = True
            elif session.global_step != self._seen:
                self._order(session)
                with log_errors(self, "an evaluation"):
                    await self._evaluate_pending()

    async def _at_epoch(self, number: int) -> None:
        """Make an evaluation of this state pending, at the end of an epoch; or wait for it, too."""
        assert self._every_epochs is not None, "registered by epochs"
        step = self._session.global_step
        if number % self._every_epochs or step == self._seen:
            return  # seen: the end of an epoch is repeated after a restart from its checkpoint
        self._order(self._session)
        if self._concurrent:
            return
        idle, stop = asyncio.ensure_future(self._idle.wait()), asyncio.ensure_future(self._stop())
        try:
            await asyncio.wait((idle, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            idle.cancel()
            stop.cancel()

    def _captured(self, session: Session) -> _Captured:
        averages = None if self._averages is None else self._averages.averages
        # The captured states are saved after this evaluation, which is owed no more then.
        before = self._is_owed, self._seen
        self._is_owed, self._seen = False, session.global_step
        try:
            return self._saves.capture(self, session), averages
        finally:
            self._is_owed, self._seen = before

    def _order(self, session: Session) -> None:
        """Make an evaluation of the current state pending. A pending state is skipped."""
        self._is_owed = True
        self._pending = asyncio.get_running_loop().create_future()
        self._pending.set_result(self._captured(session))
        self._idle.clear()
        self._arrived.set()

    async def _evaluate_pending(self) -> None:
        async with self._evaluating:
            pending, self._pending = self._pending, None
            try:
                if pending is not None:
                    await self._evaluate_captured(await pending)
            finally:
                if self._pending is None:
                    self._idle.set()

    async def _evaluate_captured(self, captured: _Captured) -> None:
        states, averages = captured
        try:
            snapshot = cast("Snapshot", await states[0][1].snapshot(pull=True))
            is_done = await self._evaluate(snapshot, averages, release=False)
        except BaseException:
            is_done = False
            raise
        finally:
            if not is_done:
                for _, state in states:
                    state.discard()
        if is_done:
            await self._saves.evaluated(self, states[0][1].session, states)

    async def _evaluate(
        self, state: Snapshot, averages: Mapping[str, Any] | None = None, *, release: bool = True
    ) -> bool:
        self._seen = state.step
        try:
            with state if release else nullcontext():
                if self._averages is None:
                    done = await self._evaluate_state(state)
                else:
                    applied = await in_thread(self._averages.applied, state, averages)
                    done = await self._evaluate_state(state, applied)
        except Exception:
            if self.on_error != "log":
                raise
            logger.exception("Evaluation %r at step %s failed.", self.name, state.step)
            self._is_owed = self._pending is not None
            return False
        if done:  # else a signal has ended it, and it is made after a restart
            self._is_owed = self._pending is not None
        return done


class TrainingMetricsHook(Evaluations):
    """Average values that training runs fetch over intervals, and publish them like an evaluation.

    For early stopping on a training value, for the ``metrics`` of a ``CheckpointSaverHook``, and for
    curves of the norm of gradients. The learning rates that schedulers of a ``TorchProgram`` set are
    among the averages, as ``learning_rate``, with the present value.

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

    _title = "Training metrics"

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
        rates = members_of(ProgramMembers, current_program()).learning_rates
        self._rates: Callable[[], Mapping[str, float]] = rates or dict
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
            await self._publish(
                self._step, {**self._rates(), **dict(zip(self._fetches, means, strict=True))}
            )
            await self._saves.evaluated(self, run_context.session, None)
