"""Save and restore the state of a session."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.captured_state import CapturedState, fingerprints
from asyncmon.checkpoint.checkpoint_list import CheckpointList
from asyncmon.checkpoint.directory import Claims, Directory, existing_checkpoints
from asyncmon.checkpoint.finding import first_whole, skipping
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.checkpoint.os_errors import op_errors
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.restoring import find_targets, load_entries, no_checkpoint
from asyncmon.checkpoint.retention import KeepBest, Kept, Retention
from asyncmon.checkpoint.save import Save, SaveHandle, SaveOptions, SaveQueue, computed_step
from asyncmon.checkpoint.saveable_session import SaveableSessionMembers, raw_session, state_spec
from asyncmon.checkpoint.state_file import STATE_NAME
from asyncmon.checkpoint.stateful import Stateful, StatefulObjects, load_states, stateful_of
from asyncmon.checkpoint.store import Store
from asyncmon.checkpoint.throttle import Control, current
from asyncmon.checkpoint.variable_selection import Selection
from asyncmon.errors import DataLossError, NotFoundError
from asyncmon.system import clock
from asyncmon.system.files import FileCalls, in_thread
from asyncmon.system.members import members_of
from asyncmon.system.notebook import checkpoint_table

logger = logging.getLogger(__name__)

_WRITE_SHARE = 0.8  # of the interval of saves, in which a save should be written

WhenBusy = Literal["coalesce", "skip", "wait"]


class Saver:
    """Saves and restores the state of a session. TF1: ``tf.train.Saver``.

    A session is any object with ``snapshot()`` and ``load(values)``, or a monitored session around
    one. A checkpoint is a snapshot between two steps, with the states of the session's hooks and data
    sources and of other stateful objects (:meth:`add_stateful`). The training continues while it is
    written.

    The first save into a directory locks it, deletes incomplete saves, and takes over its list.

    Args:
        var_list: variables or their names, or a dict from names in the checkpoint to them. None stands
            for the current variables of the default graph, or without a graph for all of the state.
        reshape: restore entries of another shape with the same number of elements.
        sharded: no effect: each process writes the arrays that it holds to one file.
        max_to_keep: the number of newest checkpoints to keep; None or 0 keeps all.
        keep_checkpoint_every_n_hours: the interval in hours of checkpoints that are never deleted.
        name: the name of the saver.
        restore_sequentially: no effect: all values are read before any is set.
        saver_def, builder: must be None: there is no protocol buffer of a saver.
        defer_build: choose the variables in :meth:`build` or at the first save or restore.
        allow_empty: without variables, a save returns None and a restore does nothing.
        write_version: no effect: there is one format.
        pad_step_number: pad the step in file names with zeros to 8 digits.
        save_relative_paths: write relative paths into the state file, so that its directory can be
            moved.
        filename: no effect: a save and a restore name their files.
        when_busy: what :meth:`start_save` does during another save: ``"coalesce"`` replaces a pending
            save, ``"skip"`` saves nothing, ``"wait"`` queues the save.
        keep_best: also keep the best checkpoints by a metric.
        session_states: whether checkpoints have the states of the session's hooks and data sources,
            and a restore loads them. Without them, a resumed training begins its data again.
        calls: the system calls to write with, for tests of crashes.

    Example::

        saver = Saver(max_to_keep=3)
        path = await saver.save(session, "runs/digits/model.ckpt", global_step=session.global_step)
        handle = saver.start_save(session, "runs/digits/model.ckpt", global_step=20)  # returns at once
        await saver.drain()
        await saver.restore(session, path)
        await saver.close()
    """

    def __init__(
        self,
        var_list: Iterable[Any] | Mapping[str, Any] | None = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: int = 2,
        pad_step_number: bool = False,
        save_relative_paths: bool = True,
        filename: str | None = None,
        *,
        when_busy: WhenBusy = "coalesce",
        keep_best: KeepBest | None = None,
        session_states: bool = True,
        calls: FileCalls | None = None,
    ) -> None:
        if when_busy not in {"coalesce", "skip", "wait"}:
            raise ValueError(f"when_busy is 'coalesce', 'skip' or 'wait', got {when_busy!r}.")
        if saver_def is not None or builder is not None:
            raise ValueError(
                "saver_def and builder must be None: give a var_list, or build the graph by its code."
            )
        self.name = name or "saver"
        self._when_busy = when_busy
        self._selection = Selection(var_list, defer_build, allow_empty)
        self._own_objects = StatefulObjects()
        self._session_states = session_states
        self._options = SaveOptions(self._selection, pad_step_number)
        mark = clock.wall() + keep_checkpoint_every_n_hours * 3600
        self._claims = Claims(calls)
        self._retention = Retention(max_to_keep, keep_checkpoint_every_n_hours, mark, keep_best)
        self._relative = save_relative_paths
        self._set_list: CheckpointList | None = None  # by the user; then no directory's list applies
        self._lists: dict[Directory, tuple[str, CheckpointList]] = {}  # with the user's spelling
        self._queue = SaveQueue(self._write)
        self._last_start = 0.0
        self._reshape = reshape

    def build(self) -> None:
        """Choose the variables, unless this was done before. TF1: same name.

        Raises:
            ValueError: there are none, and ``allow_empty`` is false.
        """
        self._selection.build()

    # --- saving

    async def save(
        self,
        sess: Any,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
        *,
        metrics: Mapping[str, float] | None = None,
    ) -> str | None:
        """Save, and return the checkpoint's prefix once it is committed and durable.

        The snapshot is ordered at the call. Earlier saves complete first. Cancelling the call cancels
        the save and removes its files.

        Args:
            sess: the session.
            save_path: the prefix, ``dir/model.ckpt``. Missing directories are made. URLs of object
                stores (``s3://bucket/dir/model.ckpt``) need the extra ``cloud``.
            global_step: appended to the prefix: a number, a variable of the session, or a tensor, which
                is run first.
            latest_filename: the name of the state file, ``checkpoint`` by default.
            meta_graph_suffix, write_meta_graph, strip_default_attrs, save_debug_info: no effect: a
                checkpoint has no graph.
            write_state: whether to update the state file and delete old checkpoints.
            metrics: numbers for ``keep_best``, stored in the manifest.

        Returns:
            The prefix; None if there was nothing to save and ``allow_empty`` is true.

        Raises:
            ValueError: there is nothing to save, or a name collides with that of the state file.
            FailedPreconditionError: a variable is not initialized, or another process saves into the
                directory.
            TypeError: ``sess`` is no session, or the type of a value is not supported.
            PermissionDeniedError: the directory is not writable.
            ResourceExhaustedError: the disk is full.
        """
        self.build()
        global_step = await computed_step(sess, global_step)
        given = save_path, global_step, latest_filename, write_state, metrics
        save = Save(raw_session(sess), *given, self._options, lambda: self.capture(sess))
        save.handle.awaited = True
        save.control.unthrottle()
        self._queue.submit(save)
        try:
            return await save.handle
        except asyncio.CancelledError:
            await self._queue.cancel(save)
            raise

    def start_save(
        self,
        sess: Any,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
        latest_filename: str | None = None,
        *,
        write_state: bool = True,
        metrics: Mapping[str, float] | None = None,
        state: CapturedState | None = None,
        when_busy: WhenBusy | None = None,
    ) -> SaveHandle:
        """Order a snapshot and write the checkpoint in the background.

        If steps compete with the writer threads for the processor, the threads pause in between, unless
        :meth:`drain` or :meth:`close` waits for them. Pauses are limited so that a save ends before the
        next one, which is expected after the time since the last call. With ``when_busy="coalesce"`` at
        most two snapshots exist.

        A given ``state`` of :meth:`capture` is saved instead of a new one, unless it would be deleted
        at once, as newer checkpoints exist. In this case the handle gives None. ``when_busy`` is that
        of the saver by default. Errors are raised by awaiting the handle, or else by the next
        :meth:`raise_if_failed` or :meth:`drain`.
        """
        when_busy = when_busy or self._when_busy
        if when_busy == "skip" and self._queue.busy:
            if state is not None:
                state.discard()
            handle = SaveHandle()
            handle.settle(None)
            return handle
        before, self._last_start = self._last_start, time.perf_counter()
        due = self._last_start + _WRITE_SHARE * (self._last_start - before) if before else None
        self.build()
        given = save_path, global_step, latest_filename, write_state, metrics
        save = Save(
            raw_session(sess), *given, self._options, lambda: state or self.capture(sess), Control(due)
        )
        self._queue.submit(save, coalesce=when_busy == "coalesce")
        return save.handle

    def capture(self, sess: Any) -> CapturedState:
        """Order a snapshot and the states of hooks and data, for a later :meth:`start_save`.

        Raises:
            TypeError: ``sess`` is no session, or a state cannot be saved.
            ValueError: the saver and the session have stateful objects of one name.
        """
        return CapturedState(raw_session(sess), self._own_objects, self._session_states)

    async def fingerprints(self, sess: Any) -> Mapping[str, bytes | int]:
        """Return those of the states of hooks, data and other objects that a save would have now."""
        return await fingerprints(raw_session(sess), self._own_objects, self._session_states)

    @property
    def keep_best(self) -> KeepBest | None:
        """How the best checkpoints are selected, or None."""
        return self._retention.best

    @property
    def busy(self) -> bool:
        """Whether a save is running or pending."""
        return self._queue.busy

    def raise_if_failed(self) -> None:
        """Raise once the error of a failed save that was not awaited."""
        self._queue.raise_if_failed()

    def unthrottle(self) -> None:
        """End the pauses of the current saves, as the caller waits for one."""
        self._queue.unthrottle()

    async def drain(self) -> None:
        """Wait for all saves, then call :meth:`raise_if_failed`. Cancelling it cancels no save."""
        await self._queue.drain()

    async def claim(self, checkpoint_dir: str | os.PathLike[str]) -> None:
        """Make a directory, lock it for other processes and delete the files of incomplete saves.

        Raises FailedPreconditionError if another process saves there, or as :meth:`save`.
        """
        await in_thread(lambda: self._claims.claim(Directory.of(checkpoint_dir)))

    async def abandon(self) -> None:
        """Cancel all saves, of which no file stays. A disk or a store that hangs is not waited for."""
        await self._queue.abandon()

    async def close(self) -> None:
        """Wait for all saves as :meth:`drain` does, and unlock the directories.

        A later save locks its directory again.
        """
        try:
            await self._queue.drain()
        finally:
            await in_thread(self.unlock)

    def unlock(self) -> None:
        """Unlock the directories at once, also outside of an event loop. Blocking, but not for long."""
        self._claims.release()

    # --- stateful objects

    def add_stateful(self, name: str, obj: Stateful) -> None:
        """Save the state of an object in each checkpoint of this saver, and load it in each restore.

        A monitored session registers its own hooks and data sources, for all savers.

        Args:
            name: the name of the state in the checkpoint.
            obj: has ``state_dict()``, called when a save is ordered, and ``load_state_dict(state)``,
                called by a restore, or by this method after one. A state consists of dicts, lists,
                tuples, strings, bytes, numbers, booleans, None, numpy arrays and tensors of torch.

        Raises:
            TypeError: the object lacks one of the methods.
            ValueError: another object has this name.
        """
        self._own_objects.add(name, obj)

    def remove_stateful(self, name: str) -> None:
        """Undo :meth:`add_stateful`. An unknown name is ignored."""
        self._own_objects.remove(name)

    # --- the list of checkpoints
    @property
    def last_checkpoints(self) -> list[str]:
        """The prefixes of the kept checkpoints, oldest first. TF1: same name."""
        return [one.path for one in self._kept()]

    @property
    def best_checkpoints(self) -> list[str]:
        """The prefixes of the kept checkpoints with the metric of ``keep_best``, the best first."""
        return [] if self.keep_best is None else [one.path for one in self.keep_best.best(self._kept())]

    def _kept(self) -> list[Kept]:
        if self._set_list is not None:
            return self._set_list.kept
        return [one for where, listed in self._lists.values() for one in listed.spelled(where)]

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return checkpoint_table([(one.path, one.time) for one in self._kept()])

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Set the list to checkpoints that are never deleted. TF1: same name."""
        self.set_last_checkpoints_with_time([(path, float("inf")) for path in last_checkpoints])

    def set_last_checkpoints_with_time(
        self, last_checkpoints_with_time: Sequence[tuple[str, float]]
    ) -> None:
        """Set the list to pairs of prefix and time in seconds since 1970. TF1: same name."""
        self._set_list = CheckpointList.of([Kept(*one) for one in last_checkpoints_with_time])

    async def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Set the list to the existing ones of these checkpoints. TF1: same name."""
        self._set_list = CheckpointList.of(await in_thread(existing_checkpoints, checkpoint_paths))

    async def continue_from(self, checkpoint_dir: str | os.PathLike[str]) -> None:
        """Take over the list of a directory after a restore from it. A list that was set stays."""
        directory = await in_thread(Directory.of, checkpoint_dir)
        listed = await in_thread(directory.peek, STATE_NAME)
        self._lists[directory] = os.fspath(checkpoint_dir), listed

    # --- restoring

    async def restore(
        self,
        sess: Any,
        save_path: str | os.PathLike[str] | None,
        *,
        ignore_missing: bool = False,
        rename: Mapping[str, str] | None = None,
    ) -> None:
        """Load a checkpoint into the session and the stateful objects. TF1: same name.

        All entries are read, verified and compared with the variables before anything changes. Entries
        that are not in the session or ``var_list`` are skipped. States of random generators are
        restored if the checkpoint has them. The states of the session's hooks and data sources are
        loaded together with the global step: a saver whose ``var_list`` lacks it leaves them.

        Args:
            sess: the session; it need not be initialized.
            save_path: the prefix of a checkpoint, which may be TensorFlow's.
            ignore_missing: keep the values of variables that are not in the checkpoint.
            rename: names in the checkpoint to names in the session, if they differ. Names that end with
                ``/`` or ``.`` are scopes; ``"/"`` is the root scope.

        Raises:
            ValueError: there is no such checkpoint.
            NotFoundError: the checkpoint lacks variables; the error names all of them.
            InvalidArgumentError: shapes or dtypes differ; the error names all variables.
            DataLossError: checksums do not match.
        """
        if save_path is None:
            raise no_checkpoint("Can't load save_path when it is None.")
        self.build()
        chosen, raw, path = self._selection, raw_session(sess), os.fspath(save_path)
        spec = await state_spec(raw) if chosen.allow_empty else None
        if chosen.is_empty or (spec is not None and spec.complete and not spec.known):
            return
        try:
            reader = await CheckpointReader.open(path)
        except NotFoundError as error:
            raise no_checkpoint(f"The passed save_path is not a valid checkpoint: {path}") from error
        await self._load(raw, reader, ignore_missing, rename)

    async def restore_latest(
        self,
        sess: Any,
        checkpoint_dir: str | os.PathLike[str],
        latest_filename: str | None = None,
        *,
        ignore_missing: bool = False,
        rename: Mapping[str, str] | None = None,
        live_step: int | None = None,
    ) -> str | None:
        """Restore the newest checkpoint of a directory that verifies; return its prefix or None.

        Missing and damaged ones are skipped, and the reason is logged. If the state file is lost, the
        newest checkpoint in the directory that verifies is restored, with a warning.

        Variables of the global step ``live_step`` are kept if the checkpoint is not newer: only the
        states of hooks and data are loaded from it. The other arguments are those of :meth:`restore`.
        """
        self.build()
        if self._selection.is_empty:
            return None
        raw = raw_session(sess)

        async def attempt(place: Directory, store: Store, path: str) -> None:
            with skipping(path, NotFoundError, DataLossError):
                reader = await place.open_checkpoint(store, path)
            with skipping(path, DataLossError):
                await self._load(raw, reader, ignore_missing, rename, live_step)

        found = await first_whole(checkpoint_dir, latest_filename, attempt, for_restore=True)
        return found and found[0]

    async def _load(
        self,
        raw: Any,
        reader: CheckpointReader,
        ignore_missing: bool,
        rename: Mapping[str, str] | None,
        live_step: int | None = None,
    ) -> None:
        step = reader.facts.step
        keeps = live_step is not None and step is not None and step <= live_step
        async with reader:
            states = await reader.states()
            if keeps:
                logger.info(
                    "Keeping the variables of step %d; %s has step %d", live_step, reader.path, step
                )
            else:
                logger.info("Restoring parameters from %s", Directory.shown(reader.path))
                targets = find_targets(self._selection, reader, await state_spec(raw), rename or {})
                await load_entries(
                    raw, reader, targets, ignore_missing=ignore_missing, reshape=self._reshape
                )
        self._own_objects.load(states)
        if keeps or self._sets_step(raw, reader):
            states = {n: one for n, one in states.items() if n not in self._own_objects.objects}
            load_states(raw, reader.path, states if self._session_states else None)

    def _sets_step(self, raw: Any, reader: CheckpointReader) -> bool:
        step = members_of(SaveableSessionMembers, raw).global_step
        return self._selection.takes_all or step is None or step == reader.facts.step

    async def _write(self, save: Save) -> str | None:
        snapshot = await save.state.snapshot(pull=not self._claims.has_plain_files(save.directory))
        save.handle.captured = save.state.is_here
        manifest = await in_thread(self._commit, save, snapshot, on_cancel=save.control.stop)
        save.handle.captured = True
        save.state.discard()  # the arrays are written, so the session may modify them in place
        if manifest is None:
            return None
        save.handle.step, save.handle.nbytes = manifest.step, manifest.nbytes
        save.handle.seconds = time.perf_counter() - save.began
        report = stateful_of(save.state.session).on_commit
        if report is not None and self._selection.takes_all:  # else it is no whole state
            report(save.state.session, manifest.step, save.handle.seconds, save.handle.path)
        return save.handle.path

    def _commit(self, save: Save, snapshot: Mapping[str, Any]) -> Manifest | None:
        """Write a checkpoint and delete others; None if there is nothing to save or keep. Blocking."""
        current.set(save.control)
        draft = save.draft(snapshot)
        if draft is None:
            return None
        save.handle.fingerprints = save.state.fingerprints()
        directory = Directory.of(save.home)
        store, name = self._claims.claim(directory), save.state_file
        with op_errors(f"Checkpoint {draft.path!r} was not saved", store.describe):
            listed = directory.checkpoints(name, store)
        if not save.write_state:
            return directory.write(store, draft)
        if self._set_list is None:
            self._lists[directory] = locations.spelled(draft.path), listed
        listed, number = self._set_list or listed, save.state.number
        return directory.commit(store, draft, number, name, self._retention, listed, self._relative)
