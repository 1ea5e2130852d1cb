"""The saver: a session's state to checkpoints and back."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from asyncmon.checkpoint import commit
from asyncmon.checkpoint.checkpoint_list import CheckpointList
from asyncmon.checkpoint.commit import Draft
from asyncmon.checkpoint.os_errors import op_errors
from asyncmon.checkpoint.restoring import Restorer
from asyncmon.checkpoint.retention import KeepBest, Kept, Retention
from asyncmon.checkpoint.save import Save, SaveHandle, SaveOptions, SaveQueue, computed_step
from asyncmon.checkpoint.saveable_session import raw_session
from asyncmon.checkpoint.state_file import STATE_NAME
from asyncmon.checkpoint.stateful import Stateful, StatefulRegistry
from asyncmon.checkpoint.throttle import Control
from asyncmon.checkpoint.variable_selection import Selection
from asyncmon.system import clock
from asyncmon.system.files import FileCalls, in_thread

_IN_TIME = 0.8  # of the time between two saves, for the writing of one

WhenBusy = Literal["coalesce", "skip", "wait"]


class Saver:
    """Saves and restores the state of a session. TF1: ``tf.train.Saver``.

    A session is anything with ``snapshot()`` and ``load(values)``, or a monitored session around one.
    A checkpoint is a snapshot, the state between two steps, with the states of the saver's stateful
    objects (:meth:`add_stateful`). Steps go on while it is written.

    The first save into a directory locks other processes out of it, deletes the remains of incomplete
    saves, and continues the list of checkpoints in the state file.

    Args:
        var_list: variables or their names, or a dict from names in the checkpoint to them; None for
            the variables of the default graph as it is now, or for all of the session's state where no
            graph is being built.
        reshape: restore entries of another shape with the same number of elements.
        sharded: write several tensor files side by side however small the state is.
        max_to_keep: how many of the newest checkpoints to keep; None or 0 keeps all.
        keep_checkpoint_every_n_hours: keep one checkpoint of every so many hours permanently.
        name: for log lines and errors.
        restore_sequentially: without effect: all is read, then set at once.
        saver_def, builder: must be None: there are no protocol buffers to make a saver from.
        defer_build: take the variables at :meth:`build`, or at the first save or restore, not now.
        allow_empty: let a save of no variables return None and a restore do nothing.
        write_version: without effect: there is one format, described in this package.
        pad_step_number: pad the step in file names with zeros to 8 digits.
        save_relative_paths: write relative paths into the state file: its directory can be moved.
        filename: without effect: a save and a restore name their files.
        when_busy: of :meth:`start_save` while an earlier save is under way. ``"coalesce"``: wait for
            it, and replace a pending save. ``"skip"``: save nothing. ``"wait"``: wait for all.
        keep_best: keep the best checkpoints by a metric, besides the newest.
        shard_bytes: spread a larger state over several files of about this size.
        calls: the system calls to write with; tests of crashes replace them.

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
        shard_bytes: int = 1 << 31,
        calls: FileCalls | None = None,
    ) -> None:
        if when_busy not in {"coalesce", "skip", "wait"}:
            raise ValueError(f"when_busy is 'coalesce', 'skip' or 'wait', got {when_busy!r}.")
        if saver_def is not None or builder is not None:
            raise ValueError(
                "saver_def and builder must be None: give a var_list, or build the graph by its code."
            )
        if shard_bytes < 1:
            raise ValueError(f"shard_bytes is a positive number of bytes, got {shard_bytes!r}.")
        self.name = name or "saver"
        self._when_busy = when_busy
        self._selection = Selection(var_list, defer_build, allow_empty)
        self._stateful = StatefulRegistry()
        self._options = SaveOptions(
            self._selection, self._stateful, pad_step_number, sharded, shard_bytes
        )
        mark = clock.wall() + keep_checkpoint_every_n_hours * 3600
        self._claims = commit.Claims(calls)
        self._list = CheckpointList(
            Retention(max_to_keep, keep_checkpoint_every_n_hours, mark, keep_best),
            self._claims.open,
            save_relative_paths,
        )
        self._queue = SaveQueue(self._write)
        self._last_start = 0.0
        self._restorer = Restorer(self._selection, self._stateful, reshape=reshape)

    def build(self) -> None:
        """Take the variables that there are, unless they were taken before. TF1: same name.

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
        """Save, and return the checkpoint's prefix when it is committed and durable.

        The snapshot is ordered at the call; saves under way come first. Cancelling this cancels the
        save, and nothing of it is left.

        Args:
            sess: the session.
            save_path: the prefix, ``dir/model.ckpt``; missing directories are made. URLs of object
                stores (``s3://bucket/dir/model.ckpt``) need the extra ``cloud``.
            global_step: appended to the prefix: a number, the variable that has it, or a tensor, which
                is run first.
            latest_filename: the name of the state file, ``checkpoint`` by default.
            meta_graph_suffix, write_meta_graph, strip_default_attrs, save_debug_info: without effect: a
                checkpoint holds values, and the code that builds the graph is kept elsewhere.
            write_state: whether to update the state file and to delete old checkpoints.
            metrics: kept in the manifest, for ``keep_best``.

        Returns:
            The prefix; None where there was nothing to save and ``allow_empty`` is true.

        Raises:
            ValueError: there is nothing to save, or a name collides with that of the state file.
            FailedPreconditionError: a variable has no value yet, or another process saves into the
                directory.
            TypeError: ``sess`` is no session, or a value is of a type that a checkpoint cannot hold.
            PermissionDeniedError: the directory cannot be written.
            ResourceExhaustedError: the disk is full.
        """
        self.build()
        global_step = await computed_step(sess, global_step)
        given = sess, save_path, global_step, latest_filename, write_state, metrics
        save = Save(*given, self._options)
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
        snapshot: Mapping[str, Any] | None = None,
    ) -> SaveHandle:
        """Order a snapshot and return at once; the checkpoint is written while steps go on.

        Where steps and the writing compete for the processor, the writing pauses now and then, until
        :meth:`drain` or :meth:`close` waits for it; by the time since the last call it judges when the
        next save is due, and aims to be done. With ``when_busy="coalesce"`` two snapshots live at most.

        A given ``snapshot`` of the present step is saved instead of a new one. Errors of the writing
        are raised by awaiting the handle, or by the next :meth:`raise_if_failed` or :meth:`drain`.
        """
        if self._when_busy == "skip" and self._queue.busy:
            handle = SaveHandle()
            handle.settle(None)
            return handle
        before, self._last_start = self._last_start, time.perf_counter()
        due = self._last_start + _IN_TIME * (self._last_start - before) if before else None
        self.build()
        given = sess, save_path, global_step, latest_filename, write_state, metrics
        save = Save(*given, self._options, snapshot, Control(due))
        self._queue.submit(save, coalesce=self._when_busy == "coalesce")
        return save.handle

    @property
    def busy(self) -> bool:
        """Whether a save is under way or pending."""
        return self._queue.busy

    def raise_if_failed(self) -> None:
        """Raise, once, the error of a failed, un-awaited save."""
        self._queue.raise_if_failed()

    def unthrottle(self) -> None:
        """End the pauses of the saves under way, for a caller that waits for one."""
        self._queue.unthrottle()

    async def drain(self) -> None:
        """Wait for all saves under way, then :meth:`raise_if_failed`. Cancelling it cancels no save."""
        await self._queue.drain()

    async def claim(self, checkpoint_dir: str | os.PathLike[str]) -> None:
        """Make a directory, lock other processes out and delete the remains of incomplete saves.

        The first save into it does the same.

        Raises:
            FailedPreconditionError: another process saves into the directory.
            PermissionDeniedError: the directory cannot be made or written.
        """
        await in_thread(self._claims.claim, os.fspath(checkpoint_dir))

    async def close(self) -> None:
        """:meth:`drain`, then let other processes save here. A later save claims its directory anew."""
        try:
            await self._queue.drain()
        finally:
            await in_thread(self._claims.release)

    # --- stateful objects

    def add_stateful(self, name: str, obj: Stateful) -> None:
        """Save an object's state in every checkpoint, and load it at every restore.

        Args:
            name: of the state in the checkpoint.
            obj: has ``state_dict()``, called when a save is ordered, and ``load_state_dict(state)``,
                called at a restore, or at once after one. A state is made of dicts, lists, tuples,
                strings, bytes, numbers, booleans, None and numpy arrays.

        Raises:
            TypeError: the object lacks one of the methods.
            ValueError: another object has this name.
        """
        self._stateful.add(name, obj)

    def remove_stateful(self, name: str) -> None:
        """Save the state of an object no longer. An unknown name is ignored."""
        self._stateful.remove(name)

    # --- the list of checkpoints

    @property
    def last_checkpoints(self) -> list[str]:
        """The prefixes of the checkpoints that are kept, oldest first. TF1: same name."""
        return [one.path for one in self._list.kept]

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Replace the list; these checkpoints are never deleted. TF1: same name."""
        self.set_last_checkpoints_with_time([(path, float("inf")) for path in last_checkpoints])

    def set_last_checkpoints_with_time(
        self, last_checkpoints_with_time: Sequence[tuple[str, float]]
    ) -> None:
        """Replace the list by (prefix, seconds since 1970). TF1: same name."""
        self._list.replace([Kept(*one) for one in last_checkpoints_with_time])

    async def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Replace the list by those of these checkpoints that exist. TF1: same name."""
        await self._list.recover(checkpoint_paths)

    async def continue_from(self, checkpoint_dir: str | os.PathLike[str]) -> None:
        """Go on with a directory's list, marks and pending deletions, as after a restore from it.

        A list that was set or recovered stays.
        """
        await self._list.continue_from(os.fspath(checkpoint_dir), STATE_NAME)

    # --- restoring

    async def restore(
        self,
        sess: Any,
        save_path: str | os.PathLike[str] | None,
        *,
        ignore_missing: bool = False,
        rename: Mapping[str, str] | None = None,
    ) -> None:
        """Load a checkpoint into the session and its stateful objects, or nothing. TF1: same name.

        Everything is read, verified and compared with the session's variables before anything changes.
        Entries that the session (or ``var_list``) does not have are skipped. Random generator states
        are restored where the checkpoint has them.

        Args:
            sess: the session; it need not be initialised.
            save_path: the prefix of a checkpoint; one that TensorFlow wrote may be given too.
            ignore_missing: keep the values of variables that are not in the checkpoint.
            rename: names in the checkpoint to names in the session; names that end with ``/`` are
                scopes, ``"/"`` is the outermost one. Other names are the same in both.

        Raises:
            ValueError: there is no such checkpoint.
            NotFoundError: the checkpoint lacks variables; all are named.
            InvalidArgumentError: shapes or dtypes differ; all are named.
            DataLossError: bytes do not match their checksums.
        """
        if save_path is None:
            raise ValueError("Can't load save_path when it is None.")
        self.build()
        if self._selection.is_empty:
            return
        await self._restorer.restore(
            raw_session(sess), os.fspath(save_path), ignore_missing, rename or {}
        )

    async def restore_latest(
        self,
        sess: Any,
        checkpoint_dir: str | os.PathLike[str],
        latest_filename: str | None = None,
        *,
        ignore_missing: bool = False,
        rename: Mapping[str, str] | None = None,
    ) -> str | None:
        """Restore the newest whole checkpoint of a directory; return its prefix, None without one.

        Missing and damaged ones are skipped, each with a log line that has the reason. Where the state
        file is lost, the newest whole checkpoint in the directory is restored, with a warning.
        """
        self.build()
        if self._selection.is_empty:
            return None
        return await self._restorer.restore_latest(
            raw_session(sess), os.fspath(checkpoint_dir), latest_filename, ignore_missing, rename or {}
        )

    @property
    def restored_path(self) -> str | None:
        """The prefix of the checkpoint that was restored last, or None."""
        return self._restorer.restored_path

    # --- inside

    async def _write(self, save: Save) -> str | None:
        snapshot = await save.taken(pull=not self._claims.has_plain_files(save.directory))
        draft = await in_thread(self._prepare, save, snapshot)
        if draft is None:
            return None
        store, decision = self._claims.open(save.directory), None
        with op_errors(f"Checkpoint {draft.path!r} was not saved", store.describe):
            await self._list.continue_list(store, save.state_file)
        if save.write_state:
            decision, state = self._list.plan(store, draft.path, draft.manifest, save.state_file)
            draft = draft._replace(state={save.state_file: state})
        manifest = await in_thread(commit.write, store, draft, on_cancel=save.control.stop)
        save.discard()  # all is on the disk: the session may write in place again
        if decision is not None:
            await self._list.settle(save.directory, decision)
        save.handle.step, save.handle.nbytes = manifest.step, manifest.nbytes
        save.handle.seconds = time.perf_counter() - save.began
        return draft.path

    def _prepare(self, save: Save, snapshot: Mapping[str, Any]) -> Draft | None:
        draft = save.draft(snapshot)
        if draft is not None:
            self._claims.claim(save.directory)
        return draft
