"""Save checkpoints periodically, concurrently with steps, and restore the best one at the end."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, cast

from asyncmon.checkpoint import Saver, locations
from asyncmon.checkpoint.captured_state import CapturedState
from asyncmon.checkpoint.directory import Directory
from asyncmon.checkpoint.saver import WhenBusy
from asyncmon.errors import PREEMPTION
from asyncmon.graph import Graph
from asyncmon.hooks.checkpoint_listeners import CheckpointSaverListener, check_listeners
from asyncmon.hooks.eval_hook import Evaluations, Metrics
from asyncmon.hooks.hook_support import created_session, current_graph, log_errors, next_sample
from asyncmon.hooks.step_schedule import StepSchedule, global_step_of, require_global_step, step_after
from asyncmon.runtime import (
    SAVER,
    Coordinator,
    Scaffold,
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    current_program,
)
from asyncmon.runtime.graph_program import saver_of
from asyncmon.runtime.program import default_saver, program_scope
from asyncmon.runtime.protocols import Program
from asyncmon.runtime.record_keeper import DirectoryClaim, claim_of_caller
from asyncmon.runtime.saves import Order, SaveOrders, Saves, StateTaker
from asyncmon.runtime.step_boundary import StepBoundary
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.runtime.stop.origin import marked
from asyncmon.summary.graph_events import write_graph_text
from asyncmon.summary.shared_writer import SharedWriter
from asyncmon.system.error_groups import is_only
from asyncmon.system.files import in_thread
from asyncmon.system.functions import function_of
from asyncmon.system.loop_end import AtLoopEnd
from asyncmon.system.urls import is_url

logger = logging.getLogger(__name__)

_PAUSES_SECS = (0.5, 2.0)  # before the last checkpoint is tried again


class CheckpointSaverHook(SessionRunHook):
    """Save checkpoints periodically. TF1: ``tf.train.CheckpointSaverHook``.

    It saves the initial state (unless it was restored from that checkpoint), whenever a save is due
    and, if the step has changed, at a successful end. No step is saved twice. The state is that of a
    step for which all hooks were called; it is written concurrently with steps. With an interval in
    steps, it is the state after the run that made the save due. With an interval in seconds, a
    background task takes it if the step has changed, during a long step the state before that step.

    After a signal, a part of the grace period is reserved for the last save: twice the longest of the
    last five saves, or half of the period before the first save.

    An error of a save or of a listener in the background interrupts the run. The last save is tried
    three times if a server or the network fails. With ``on_save_error="log"`` a save that fails for its
    disk or store, because it is full or its token has expired for example, is a warning in the log, and
    the next save tries again. The first save, at the opening, and the last one raise their error, so
    that the last one decides about the exit status; so does ``sess.save()``. Errors of the program stay
    errors: a state of a wrong type, another process that saves into the directory. After
    :func:`~asyncmon.hooks.veto_saving`, for example because of a NaN, nothing is saved.

    Args:
        checkpoint_dir: the directory of the checkpoints, made if missing, and of the event file with
            ``CHECKPOINT`` events. Two hooks for one directory are an error.
        save_secs: the interval in seconds. Recoveries keep the phase.
        save_steps: the interval in global steps.
        saver: the saver to use. Default: that of the program, or a new one for all its state.
        checkpoint_basename: the prefix of the file names.
        scaffold: use the saver of this scaffold instead.
        listeners: the listeners of saves.
        save_graph_def: also write the graph, to the event file and to ``graph.pbtxt``.
        save_on_cancel: also save the last state when the session is cancelled or interrupted, or when
            a run exceeded the grace period after a stop.
        metrics: the metrics of the checkpoints: a hook that evaluates, such as an
            :class:`~asyncmon.hooks.EvalHook`, or a function that returns them, called at each save and
            after a restore. A checkpoint gets those of its own step only. With a ``keep_best`` of the
            saver, each evaluated state is also saved with its metrics.
        timeout_secs: with an interval in steps, the longest time that a run waits for the previous
            save, so that it is not superseded, and for its own save if a listener has an
            ``after_save``, so that a stop takes effect at that step. After that, the saver's
            ``when_busy`` applies. 0 never waits.
        on_save_error: ``"log"`` survives a save that fails for its disk or store.

    Raises:
        ValueError: neither or both of ``save_secs`` and ``save_steps``, or both of ``saver`` and
            ``scaffold``, are given, or an interval is not positive.

    Example::

        hooks = [CheckpointSaverHook("runs/digits", save_secs=60, saver=Saver(max_to_keep=3))]
    """

    priority = SAVER

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str],
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Saver | None = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Scaffold | None = None,
        listeners: Iterable[CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
        *,
        save_on_cancel: bool = False,
        metrics: Evaluations | Callable[[], Mapping[str, float]] | None = None,
        timeout_secs: float = 1.0,
        on_save_error: Literal["raise", "log"] = "raise",
    ) -> None:
        logger.info("Create CheckpointSaverHook.")
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        if not timeout_secs >= 0:
            raise ValueError(f"invalid timeout_secs={timeout_secs!r}: it must be 0 or more.")
        if on_save_error not in ("raise", "log"):
            raise ValueError(f"on_save_error must be 'raise' or 'log', got {on_save_error!r}.")
        self._survives = on_save_error == "log"
        self._schedule = StepSchedule(self, CheckpointSaverHook, "save_", save_steps, save_secs)
        self.checkpoint_dir = os.fspath(checkpoint_dir)
        self._basename = checkpoint_basename
        self._place: Directory | None = None  # of the checkpoint_dir while the session is open
        self._claim: DirectoryClaim  # of the session
        self._directory = self.checkpoint_dir  # absolute in an open session, and so is the prefix
        self._prefix = locations.join(self._directory, checkpoint_basename)
        self._given_saver = saver
        self._scaffold = scaffold
        self._listeners = check_listeners(listeners)
        self._waits_for_own = any(
            function_of(listener.after_save) is not CheckpointSaverListener.after_save
            for listener in self._listeners
        )
        self._save_graph_def = save_graph_def
        self.ends_on_cancel = save_on_cancel
        self._metrics = metrics
        self._evaluation: Evaluations | None = None  # whose states are saved with their metrics
        self._measured: int | None = None  # the last step that was saved with metrics of an evaluation
        self._timeout_secs = timeout_secs
        events = None if is_url(checkpoint_dir) else checkpoint_dir  # a store has no event files
        self._output = SharedWriter(events, None)
        self.output_dir = self._output.directory
        self._saves: Saves  # of the session
        self._orders: SaveOrders  # the part that this hook orders
        self._saver: Saver
        self._made_saver: Any = None
        self._program: Program
        self._boundary: StepBoundary
        self._graph: Graph | None = None
        self._at_loop_end: AtLoopEnd | None = None

    async def begin(self) -> None:
        """Reject a program without a global step and a directory that another hook saves to."""
        require_global_step(self)
        self._graph, self._program, self._made_saver = current_graph(), current_program(), None
        self._schedule.forget_ticks()
        # Bound once: a chdir or another link moves neither the saves nor the lock.
        self._place = await in_thread(Directory.bind, self.checkpoint_dir)
        self._directory = self._place.path
        self._prefix = locations.join(self._directory, self._basename)
        self._claim = claim_of_caller()
        self._at_loop_end = AtLoopEnd(self._unlock)
        # Before a second process writes a START, which hides events of the first one.
        await self._claim.claim(self._place, self)
        for listener in self._listeners:
            with marked("listener", f"{type(listener).__name__}.begin"):
                await listener.begin()

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Save the initial state, unless it was just restored from this directory."""
        step = global_step_of(self, session)
        self._saver = self._find_saver()
        self._boundary, self._measured = created_session(coord).boundary, None
        self._scopes = created_session(coord).stops.scopes
        self._saves = created_session(coord).saves
        self._orders = self._saves.orders_of(
            self, self._output, self._listeners, partial(log_errors, self),
            detaches=self.on_error == "detach", survives=self._survives,
        )  # fmt: skip
        self._orders.begin(self._saver)
        self._grace, self._has_waited = created_session(coord).stops.shutdown.grace, False
        self._output.start(step, created_session(coord).recorder)
        graph = self._graph if self._output.writes and self._save_graph_def else None
        if graph is not None and (writer := self._output.file_writer) is not None:
            writer.add_graph(graph, step)
        if await self._just_restored(self._saves.restored, step):
            self._schedule.done(step)
            await self._orders.restored(step)
            self._current_metrics()  # evaluations before the first save are captured for it, too
        else:
            await self._orders.finish(await self._save_at(session, step))
        if graph is not None:
            # after the claim of the directory, which deletes the files of incomplete saves
            name, operations = "CheckpointSaverHook, graph.pbtxt", graph.get_operations()
            coord.create_task(write_graph_text, self._directory, operations, name=name)

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_after(run_values)
        if not self._schedule.is_due(step) or self._is_vetoed():
            return
        await self._orders.wait(self._timeout_secs)
        self._orders.follow(await self._save_at(run_context.session, step))
        if self._waits_for_own:
            await self._orders.wait(self._timeout_secs)

    async def background(self, session: Session, coord: Coordinator) -> None:
        async for _ in self._schedule.ticks(coord):
            with log_errors(self, "a checkpoint by time"):
                await self._save_if_changed(session, coord)

    async def end(self, session: Session) -> None:
        """Save the last state unless it is saved, stateful objects included; wait for all commits."""
        step = global_step_of(self, session)
        self._has_waited = True
        self._saver.unthrottle()
        await self._orders.wait()
        is_due = not await self._orders.is_saved(step) or self._has_metrics(step)
        if is_due and not self._is_vetoed():
            await self._save_last(session, step)
        for listener in self._listeners:
            with marked("listener", f"{type(listener).__name__}.end"):
                await listener.end(session, step)

    async def _save_last(self, session: Session, step: int) -> None:
        """Save, and again after a failure of a server or the network: there is no recovery any more."""
        await self._call_before_save(session, step)
        for pause in (*_PAUSES_SECS, None):
            order: Order | None = None
            try:
                order = self._start_save(session)
                self._saver.unthrottle()
                await self._orders.finish(order)
            except Exception as error:
                # Without an order the snapshot has failed, and without its error a listener.
                is_of_save = order is None or order.handle.error is not None
                again = is_only(error, PREEMPTION) or (order and self._orders.may_survive(order))
                if not (is_of_save and again) or pause is None:
                    raise
                logger.warning("The last checkpoint failed; trying again in %g s: %s", pause, error)
                await asyncio.sleep(pause)
            else:
                return

    async def save_now(self, session: Session) -> str:
        """Save the state between two steps, unless it is saved, and return the path after the commit.

        Called by ``MonitoredSession.save``.

        Raises:
            RuntimeError: saves are vetoed.
        """
        last, restored = self._orders.last, self._saves.restored
        if global_step_of(self, session) == self._schedule.last_step:
            if last is None and restored is not None:
                return Directory.shown(restored)
            is_failed = last is None or last.handle.error is not None
            if last is not None and not is_failed and (path := await last.handle) is not None:
                return Directory.shown(path)
        order = await self._save_between_steps(session, when_busy="wait")
        if order is None:
            raise RuntimeError(f"The state is not to be saved: {self._boundary.vetoed}.")
        path = await order.handle  # None: a later state was saved first
        return Directory.shown(path or self._saver.last_checkpoints[-1])

    async def cleanup(self, error: BaseException | None) -> None:
        """Wait for pending saves, and release the event file and the directory."""
        try:
            if hasattr(self, "_saver"):
                try:
                    await self._wait_for_saves()
                finally:
                    await self._saver.close()
        finally:
            if hasattr(self, "_orders"):
                self._orders.end()
                self._saves.forget(self)
            if self._at_loop_end is not None:
                self._at_loop_end.cancel()
            if self._place is not None:
                await self._claim.leave(self._place, self)
            await self._output.close()

    async def _wait_for_saves(self) -> None:
        # Once, within the grace period: a store or a disk may hang.
        if not self._saver.busy:
            return
        was_waited_for = self._has_waited or self._orders.was_cut
        try:
            async with asyncio.timeout(1.0 if was_waited_for else max(self._grace, 1.0)):
                await self._saver.drain()
        except TimeoutError:
            line = "A save into %s did not end within the grace period of %g s and is abandoned: %s."
            logger.warning(line, self._directory, self._grace, "its state is not saved")
            await self._saver.abandon()

    def _unlock(self) -> None:
        """Release the directory at the end of the event loop, as the session was not closed."""
        self._claim.release()
        if hasattr(self, "_saver"):
            self._saver.unlock()

    async def _save_if_changed(self, session: Session, coord: Coordinator) -> None:
        if session.global_step == self._schedule.last_step:
            await next_sample(coord, [])  # no step since the last save: wait for one
        step = global_step_of(self, session)
        if step != self._schedule.last_step:
            await self._save_between_steps(session)

    async def _save_between_steps(
        self, session: Session, when_busy: WhenBusy | None = None
    ) -> Order | None:
        if self._is_vetoed():
            return None
        await self._call_before_save(session, global_step_of(self, session))
        state = self._saver.capture(session)
        try:
            await state.snapshot(pull=False)
        except BaseException:
            state.discard()
            raise
        if self._is_vetoed():
            state.discard()
            return None
        order = self._start_save(session, state, when_busy)
        self._orders.follow(order)
        return order

    async def _save_at(self, session: Session, step: int) -> Order:
        # No run is in progress, so that the snapshot is of this step.
        await self._call_before_save(session, step)
        return self._start_save(session)

    async def _call_before_save(self, session: Session, step: int) -> None:
        self._orders.raise_if_failed()
        logger.info("Calling checkpoint listeners before saving checkpoint %d...", step)
        began = time.perf_counter()
        for listener in self._listeners:
            scope = CallScope(self._scopes, "before_save")
            with marked("listener", f"{type(listener).__name__}.before_save"), scope:
                await listener.before_save(session, step)
        self._orders.before_secs = time.perf_counter() - began

    def _start_save(
        self,
        session: Session,
        state: CapturedState | None = None,
        when_busy: WhenBusy | None = None,
    ) -> Order:
        step = None if state is None else state.step
        if step is None:
            step = global_step_of(self, session)
        metrics = self._metrics_of(step)
        self._schedule.done(step)
        return self._order(session, step, metrics, state, when_busy)

    def _order(
        self,
        session: Session,
        step: int,
        metrics: Mapping[str, float] | None,
        state: CapturedState | None,
        when_busy: WhenBusy | None,
    ) -> Order:
        order = self._orders.order(
            self._saver, session, self._prefix, step, metrics=metrics, state=state, when_busy=when_busy
        )
        path = Directory.shown(order.handle.path or self._prefix)
        logger.info("Saving checkpoints for %d into %s.", step, path)
        return order

    def _metrics_of(self, step: int) -> Mapping[str, float] | None:
        metrics = self._current_metrics()
        if isinstance(metrics, Metrics):
            if metrics.step != step:
                return None
            self._measured = step
        return metrics

    def _current_metrics(self) -> Mapping[str, float] | None:
        """Return the metrics. If they are evaluated, and the best is kept, save evaluated states."""
        metrics: Any = self._metrics
        metrics = metrics.metrics if isinstance(metrics, Evaluations) else metrics and metrics()
        if isinstance(metrics, Metrics) and self._saver.keep_best is not None:
            self._evaluation = metrics.evaluation
            self._saves.take(self._evaluation, StateTaker(self, self._saver, self._save_evaluated))
        return cast("Mapping[str, float] | None", metrics)

    def _is_vetoed(self) -> bool:
        return self._boundary.vetoed is not None

    def _has_metrics(self, step: int) -> bool:
        """Return whether there are metrics of this state that are to be saved and are not."""
        evaluation = self._evaluation
        return evaluation is not None and evaluation.step == step != self._measured

    async def _save_evaluated(self, session: Session, state: CapturedState | None) -> bool:
        assert self._evaluation is not None, "it calls this"
        metrics = self._evaluation.metrics
        step = metrics.step
        if step is None or self._is_vetoed() or not self._has_metrics(step):
            return False
        if state is not None and state.step not in (None, step):
            return False  # a run has advanced it before the snapshot of another saver was taken
        await self._call_before_save(session, step)
        if state is None:
            self._boundary.call_after_run(lambda: self._save_measured(session, step))
            return False
        self._measured = step
        self._orders.follow(self._order(session, step, metrics, state, "wait"))
        return True

    def _save_measured(self, session: Session, step: int) -> None:
        if self._has_metrics(step) and not self._is_vetoed():  # unless it was due anyway
            # No later save replaces it: this state may be the best.
            self._orders.follow(self._start_save(session, when_busy="wait"))

    def _find_saver(self) -> Saver:
        saver: Saver | None = self._given_saver
        if self._scaffold is not None:
            saver = self._scaffold.saver
        elif saver is None and self._graph is not None:
            saver = saver_of(self._graph)
        if saver is None and self._made_saver is None:
            # Here and not in `begin`: a graph has all its variables by now.
            with program_scope(self._program):
                self._made_saver = default_saver(self._program)
        return self._made_saver if saver is None else saver

    async def _just_restored(self, restored: str | None, step: int) -> bool:
        if restored is None or not self._is_own(restored, step):
            return False
        if not self._saver.last_checkpoints:  # another saver has restored it
            await self._saver.continue_from(self._directory)
        newest = self._saver.last_checkpoints[-1:]  # an older one is saved again as the newest
        return not newest or newest[0].rpartition("-")[2] == restored.rpartition("-")[2]

    def _is_own(self, path: str, step: int) -> bool:
        """Return whether this is the path of this hook's checkpoint of a step."""
        place, _, number = path.rpartition("-")
        same_place = place == self._prefix or os.path.realpath(place) == os.path.realpath(self._prefix)
        return same_place and number.isdigit() and int(number) == step


class RestoreBestHook(SessionRunHook):
    """Restore the best checkpoint at a successful end, after the last save.

    So the objects of a program, such as the module of a ``TorchProgram``, have the best weights after
    the session, and the global step is that of the checkpoint. The last checkpoint stays the newest.
    After a signal nothing is restored: the training is to be continued.

    The session needs a ``CheckpointSaverHook`` with ``metrics`` and a saver with ``keep_best``.

    Example::

        evaluation = EvalHook({"accuracy": accuracy}, lambda: feeds, every_steps=500)
        saver = Saver(keep_best=KeepBest("accuracy", mode="max"))
        saves = CheckpointSaverHook("runs/1", save_secs=600, saver=saver, metrics=evaluation)
        hooks = [evaluation, saves, RestoreBestHook()]
    """

    priority = SAVER + 1

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Find the saver.

        Raises:
            RuntimeError: no hook of the session saves the best checkpoints.
        """
        self._stops = created_session(coord).stops
        saver = created_session(coord).saves.best_saver
        if saver is None:
            raise RuntimeError(
                "RestoreBestHook needs a CheckpointSaverHook(..., metrics=evaluation, "
                "saver=Saver(keep_best=KeepBest(...))) among the session's hooks."
            )
        self._saver = saver

    async def end(self, session: Session) -> None:
        """Restore the best checkpoint, if there is one."""
        best = self._saver.best_checkpoints
        if not best:
            logger.warning("RestoreBestHook: no checkpoint has the metric; the last state stays.")
        elif not self._stops.is_preempted():
            await self._saver.restore(session, best[0])
            logger.info("Restored the best checkpoint, %s.", best[0])
