"""Save checkpoints while the steps go on."""

from __future__ import annotations

import logging
import math
import os
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from asyncmon import clock, files
from asyncmon.graph import GraphKeys
from asyncmon.hooks.checkpoint_listeners import CheckpointSaverListener, Commits, check_listeners
from asyncmon.hooks.hook_support import (
    current_graph,
    forgiven,
    global_step_of,
    idle_until,
    leave_out,
    let_idle,
    next_sample,
    require_global_step,
    whole_number,
)
from asyncmon.runtime.hook import SAVER, SessionRunHook
from asyncmon.runtime.timer import SecondOrStepTimer
from asyncmon.summary.graph_def import write_graph_text
from asyncmon.summary.shared_writer import SharedWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from asyncmon.checkpoint.save_handle import SaveHandle
    from asyncmon.checkpoint.saver import Saver
    from asyncmon.graph import Graph, Operation
    from asyncmon.runtime.coordinator import Coordinator
    from asyncmon.runtime.hook import SessionRunContext, SessionRunValues
    from asyncmon.runtime.protocols import Session
    from asyncmon.runtime.scaffold import Scaffold
    from asyncmon.runtime.step_boundary import StepBoundary
    from asyncmon.runtime.timer import Ticks
    from asyncmon.snapshot import Snapshot

logger = logging.getLogger(__name__)

_directories: WeakValueDictionary[str, CheckpointSaverHook] = WeakValueDictionary()


class CheckpointSaverHook(SessionRunHook):
    """Save checkpoints every so many steps or seconds. TF1: ``tf.train.CheckpointSaverHook``.

    Saves when a session begins (unless it was just restored from that very checkpoint), when it is due
    and, at a successful end, if the step has changed; never the same step twice. A save that is due
    takes the state between two steps and is written while steps go on. By steps, it is taken exactly
    after the run that made it due. By seconds, it is taken by a task at its time, also in the middle of
    a long step (the state is that before the step), and only if the step has changed.

    Where saves are quick, the run waits for one that is still being written when the next is due, so
    that each is kept, and for the listeners' ``after_save``; where they are slow, the saver's
    ``when_busy`` says what becomes of the next. An error of a save or a listener beside the steps
    interrupts the run. After a veto by a guard (a NaN) nothing is saved.

    Args:
        checkpoint_dir: where checkpoints go; made if it is missing. Two hooks for one directory are
            refused. ``CHECKPOINT`` events go to the event file in it.
        save_secs: save every so many seconds.
        save_steps: save once the step is this much beyond that of the last save.
        saver: what to save with.
        checkpoint_basename: the first part of the files' names.
        scaffold: whose saver to use instead.
        listeners: told of each save.
        save_graph_def: also write the graph, to the event file and to ``graph.pbtxt``.
        save_on_cancel: when the session is cancelled or interrupted, or a run of it given up after a
            stop, save its last state before that goes on.
        metrics: called at each save; what it returns is kept in the checkpoint, and is what a saver
            with ``keep_best`` goes by.

    Raises:
        ValueError: neither or both of ``save_secs`` and ``save_steps``, or both of ``saver`` and
            ``scaffold``, are given, or a period is not positive.

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
        metrics: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        logger.info("Create CheckpointSaverHook.")
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)  # one of the two, or it says so
        if save_secs is not None and not save_secs > 0:
            raise ValueError(f"invalid save_secs={save_secs!r}: it must be positive.")
        self._save_secs = save_secs
        self._save_steps = (
            None if save_steps is None else whole_number("save_steps", save_steps, least=1)
        )
        self._directory = os.fspath(checkpoint_dir)
        self._prefix = f"{self._directory.rstrip('/')}/{checkpoint_basename}"
        self._given_saver = saver
        self._scaffold = scaffold
        self._listeners = check_listeners(listeners)
        self._is_followed = any(
            getattr(type(one), "after_save", None) is not CheckpointSaverListener.after_save
            for one in self._listeners
        )
        self._save_graph_def = save_graph_def
        self.ends_on_cancel = save_on_cancel
        self._metrics = metrics
        # an event file cannot lie in an object store
        self._output = SharedWriter(None if "://" in self._directory else self._directory, None)
        self._saver: Saver
        self._graph: Graph | None = None
        self._path: str | None = None
        self._coord: Coordinator
        self._ticks: Ticks | None = None
        self._commits = Commits(self, self._output, self._listeners)
        self._taken: int | None = None  # the step of the last snapshot
        self._ordered_at: float | None = None
        self._ahead = (save_steps or 0) // 4  # of how many steps we judge when the next save is due
        self._looks_at: float = math.inf  # the step at which we do
        if save_secs is None:
            leave_out(self, CheckpointSaverHook, "background")
            let_idle(self, CheckpointSaverHook)
        else:
            leave_out(self, CheckpointSaverHook, "after_run")

    async def begin(self) -> None:
        """Refuse a program without global step and a directory that another hook saves to."""
        require_global_step(self)
        self._graph = current_graph()
        self._ticks = None
        self._claim_directory()
        self._output.open()
        for listener in self._listeners:
            await listener.begin()

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Save the state the session begins with, unless it was just restored from there."""
        step = global_step_of(self, session)
        self._saver, self._coord = self._find_saver(), coord
        self._ordered_at = None
        self._commits.take_over(session, coord)
        self._output.start(step)
        writer = self._output.file_writer
        if self._save_graph_def and writer is not None and self._graph is not None:
            writer.add_graph(self._graph, step)
        self._commits.kept = step
        self._wait_from(step)
        if self._just_restored(step):
            await self._saver.claim(self._directory)  # so that a second process is told now
        else:
            self._commits.kept = None
            await self._commits.wait_for(await self._start(session, step))
        self._ordered_at = clock.monotonic()
        if self._save_graph_def and writer is not None and self._graph is not None:
            # The directory is ours now: nobody takes half a file for what a crash left.
            operations = self._graph.get_operations()
            coord.create_task(self._write_graph, operations, name="CheckpointSaverHook, graph.pbtxt")

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Take a checkpoint if it is due."""
        step, taken = run_values.step, self._taken
        assert step is not None, "after_create_session saw to it"
        assert taken is not None, "after_create_session set it"
        assert self._save_steps is not None, "left out otherwise"
        if step >= self._looks_at:
            self._look_ahead(run_context.session)
        if (step >= taken + self._save_steps or step < taken) and self._boundary.vetoed is None:
            commits = self._commits
            if commits.quick:
                await commits.wait_a_moment()
            commits.follow(await self._start(run_context.session, step))
            if commits.quick and self._is_followed:
                await commits.wait_a_moment()

    async def background(self, session: Session, coord: Coordinator) -> None:
        """Take a checkpoint every so many seconds, also over recoveries, if the step has changed."""
        self._ticks = coord.every(self._save_secs, continuing=self._ticks)
        async for _ in self._ticks:
            with forgiven(self, "a checkpoint by time"):
                await self._save_if_changed(session, coord)

    async def end(self, session: Session) -> None:
        """Save the last state if its step is not saved yet, and wait until everything is committed."""
        step = await self._save_last(session)
        for listener in self._listeners:
            await listener.end(session, step)

    async def cleanup(self, error: BaseException | None) -> None:
        """Wait for saves under way, let go of the event file and of the directory."""
        try:
            if hasattr(self, "_saver"):
                await self._saver.close()
        finally:
            self._commits.write_down()
            if self._path is not None:
                _directories.pop(self._path, None)
                self._path = None
            await self._output.close()

    def _claim_directory(self) -> None:
        directory = self._directory
        path = directory if "://" in directory else os.path.realpath(directory)
        if _directories.setdefault(path, self) is not self:
            raise ValueError(
                f"Two CheckpointSaverHooks save to {self._directory!r}: each would write, and delete, "
                "the other's checkpoints. Close the session of the first one where it is still open; "
                "else leave one out: MonitoredTrainingSession adds one of its own "
                "unless save_checkpoint_secs and save_checkpoint_steps are None."
            )
        self._path = path

    def _find_saver(self) -> Saver:
        if self._given_saver is not None:
            return self._given_saver
        if self._scaffold is not None:
            scaffolds: Saver = self._scaffold.saver
            return scaffolds
        graph = self._graph
        savers = [] if graph is None else graph.get_collection(GraphKeys.SAVERS)
        if not savers:
            raise RuntimeError(
                "No items in collection savers. Please add a saver to the collection or provide a "
                "saver or scaffold."
            )
        if len(savers) > 1:
            raise RuntimeError(
                "More than one item in collection savers. Please indicate which one to use by passing "
                "it to the constructor."
            )
        saver: Saver = savers[0]
        return saver

    def _just_restored(self, step: int) -> bool:
        restored = self._saver.restored_path
        if restored is None:
            return False
        place, _, number = restored.rpartition("-")
        same_place = place == self._prefix or os.path.realpath(place) == os.path.realpath(self._prefix)
        return same_place and number.isdigit() and int(number) == step

    async def _save_last(self, session: Session) -> int:
        step = global_step_of(self, session)
        await self._commits.wait()
        if step != self._commits.kept and self._boundary.vetoed is None:
            await self._commits.wait_for(await self._start(session, step))
        return step

    async def _save_if_changed(self, session: Session, coord: Coordinator) -> None:
        if session.global_step == self._taken:
            await next_sample(coord, [])  # nothing ran: the next step is due
        step = global_step_of(self, session)
        if step == self._taken or self._boundary.vetoed is not None:
            return
        await self._tell_before(session, step)
        handle = await self._boundary.call(lambda snapshot: self._order(session, snapshot))
        if handle is not None:
            self._commits.follow(handle)

    @property
    def _boundary(self) -> StepBoundary:
        assert self._coord._session is not None, "hooks have the coordinator of a created session"
        return self._coord._session.boundary

    async def _write_graph(self, operations: Sequence[Operation]) -> None:
        with forgiven(self, "graph.pbtxt"):
            await files.in_thread(write_graph_text, self._directory, operations)

    async def _start(self, session: Session, step: int) -> SaveHandle:
        """Tell the listeners, then order the snapshot. No run is under way, so it is of this step."""
        await self._tell_before(session, step)
        return self._order(session)

    async def _tell_before(self, session: Session, step: int) -> None:
        self._commits.raise_if_failed()
        logger.info("Calling checkpoint listeners before saving checkpoint %d...", step)
        for listener in self._listeners:
            await listener.before_save(session, step)

    def _order(self, session: Session, snapshot: Snapshot | None = None) -> SaveHandle:
        step = session.global_step if snapshot is None else snapshot.step
        metrics = self._metrics() if self._metrics is not None else None
        handle = self._saver.start_save(
            session, self._prefix, global_step=step, metrics=metrics, snapshot=snapshot
        )
        self._ordered_at = clock.monotonic()
        self._wait_from(step)
        logger.info("Saving checkpoints for %d into %s.", step, handle.path)
        return handle

    def _wait_from(self, step: int | None) -> None:
        """Wait for the next save, from the step of the last one on."""
        self._taken = step
        if self._save_steps is not None and step is not None:
            self._looks_at = step + self._ahead if self._ahead else math.inf
            idle_until(self, min(self._looks_at, step + self._save_steps))

    def _look_ahead(self, session: Session) -> None:
        """Tell the session when the next save will be due, if steps go on as fast as up to now."""
        assert self._taken is not None, "after_create_session set it"
        assert self._save_steps is not None, "there is nothing to look at by seconds"
        self._looks_at = math.inf
        idle_until(self, self._taken + self._save_steps)
        expect = getattr(session, "expect_snapshot", None)
        if callable(expect) and self._ordered_at is not None:
            left = self._save_steps / self._ahead - 1
            expect(left * (clock.monotonic() - self._ordered_at))
