"""Saves in the background: their handles, snapshots and order."""

from __future__ import annotations

import asyncio
import logging
import operator
import os
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, NamedTuple

import numpy as np

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.captured_state import CapturedState
from asyncmon.checkpoint.commit import Draft
from asyncmon.checkpoint.dtypes import Array, element_of, is_text
from asyncmon.checkpoint.manifest import Manifest, ShardedEntry, TextEntry, check_texts, encode_text
from asyncmon.checkpoint.packing import Fingerprints
from asyncmon.checkpoint.saveable_session import (
    FetchMembers,
    SnapshotMembers,
    known_names,
    raw_session,
)
from asyncmon.checkpoint.state_file import STATE_NAME
from asyncmon.checkpoint.throttle import Control
from asyncmon.checkpoint.variable_selection import Selection, name_of
from asyncmon.errors import CancelledError, FailedPreconditionError
from asyncmon.system.cancellation import outlast
from asyncmon.system.error_text import add_note, phrase, text_of
from asyncmon.system.fair_lock import FairLock
from asyncmon.system.members import members_of
from asyncmon.system.snapshot import FixedArray, HeldArray, ShardedArray

logger = logging.getLogger(__name__)

_ABANDON_SECS = 2.0
_RESERVED = "__metadata__"  # a name that the header of a safetensors file reserves


class SaveHandle:
    """A save in the background; awaiting it returns the checkpoint's prefix.

    :meth:`Saver.start_save` returns it. It may be awaited any number of times. If it is never awaited,
    :meth:`Saver.raise_if_failed` raises the error of the save. Cancelling the awaiting task does not
    cancel the save.

    The result is None if the save was skipped because the saver was busy. If a later save superseded
    it, the result is the prefix of that one.

    Example::

        handle = saver.start_save(session, "runs/model.ckpt", global_step=10)
        ...  # the training continues
        print(await handle, handle.seconds, handle.nbytes)
    """

    def __init__(self) -> None:
        self.path: str | None = None
        """The prefix of the checkpoint; None until the step in its name is known."""
        self.step: int | None = None
        """The global step of the saved state; None until it is known."""
        self.seconds: float | None = None
        """Seconds from the call to the end of the save; None until it is done."""
        self.nbytes: int | None = None
        """The size of the checkpoint's tensor files; None until it is done."""
        self.captured = False
        """Whether the snapshot is taken, and its arrays are here or written, so that the session may be
        closed."""
        self.superseded_by: SaveHandle | None = None
        """The later save that replaced this one while it was pending."""
        self.fingerprints: Fingerprints = {}
        """Of the states of hooks, data and other objects in the checkpoint."""
        self.awaited = False
        """Whether any task has awaited the save."""
        self._outcome: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        # Mark the error as retrieved: the saver reports it, so asyncio need not log it.
        self._outcome.add_done_callback(lambda outcome: outcome.exception())

    @property
    def done(self) -> bool:
        """Whether the checkpoint is committed, or the save failed or was skipped."""
        return self._decisive._outcome.done()

    @property
    def error(self) -> BaseException | None:
        """The error of a failed save, or None. Reading it does not mark the save as awaited."""
        outcome = self._decisive._outcome
        return outcome.exception() if outcome.done() else None

    @property
    def _decisive(self) -> SaveHandle:
        """This save, or the last one that superseded it."""
        handle = self
        while handle.superseded_by is not None:
            handle = handle.superseded_by
        return handle

    def __await__(self) -> Generator[Any, None, str | None]:
        handle = self
        while True:
            handle.awaited = True
            path = yield from asyncio.shield(handle._outcome).__await__()
            if handle.superseded_by is None:
                return path
            handle = handle.superseded_by

    def settle(self, path: str | None) -> None:
        """Complete the save with its prefix, or with None if it was skipped. For the saver."""
        self._outcome.set_result(path)

    def fail(self, error: BaseException) -> None:
        """Complete the save with an error. For the saver."""
        self._outcome.set_exception(error)

    def supersede(self, handle: SaveHandle) -> None:
        """Complete the save with the outcome of a later one. For the saver."""
        self.superseded_by = handle
        self._outcome.set_result(None)


class SaveOptions(NamedTuple):
    """The options of a saver that apply to each of its saves."""

    selection: Selection
    pad_step: bool


class Save:
    """Makes a checkpoint of a captured state. Arguments and errors are those of :meth:`Saver.save`.

    Args:
        capture: returns the state to save, which the save discards. Called after all checks.
        control: throttles and stops the writing.
    """

    def __init__(
        self,
        session: Any,
        save_path: str | os.PathLike[str],
        global_step: Any,
        latest_filename: str | None,
        write_state: bool,
        metrics: Mapping[str, float] | None,
        options: SaveOptions,
        capture: Callable[[], CapturedState],
        control: Control | None = None,
    ) -> None:
        self._session = session
        self._prefix, self.state_file = os.fspath(save_path), latest_filename or STATE_NAME
        self.directory, stem = locations.split(self._prefix)
        # A chdir between the call and the writing moves no checkpoint.
        self.home = locations.absolute(self.directory)
        _check_names(self._prefix, stem, global_step, self.state_file)
        self.write_state = write_state
        self.control = control or Control()
        self.task: asyncio.Task[None]  # set by SaveQueue.submit
        self.started = self.dropped = False  # dropped: removed from the queue while pending
        self._options = options
        self._global_step = global_step
        self._metrics = {key: float(value) for key, value in (metrics or {}).items()}
        self.began = time.perf_counter()
        self.handle = SaveHandle()
        try:
            self._name_by(None if global_step is None else operator.index(global_step))
        except TypeError:
            name_of(global_step)  # raises TypeError here and not in the background
        self.state = capture()

    def draft(self, snapshot: Mapping[str, Any]) -> Draft | None:
        """Return the checkpoint to write, or None if it may be empty and is. Blocking."""
        options, captured = self._options, self.state
        self._check_initialized(snapshot)
        state = options.selection.to_checkpoint(snapshot, _part_of)
        if not state and options.selection.allow_empty:
            return None
        if not state:
            raise ValueError("No variables to save")
        if self.handle.path is None:
            self._name_by(self._step_in(snapshot))
        assert self.handle.path is not None, "set by _name_by here or in the constructor"
        arrays, texts, sharded = _by_kind({**state, **captured.arrays})
        members = members_of(SnapshotMembers, snapshot)
        step, holder = members.step, members.holder
        basename = locations.split(self.handle.path)[1]
        manifest = Manifest(
            checkpoint=basename,
            step=self.handle.step if step is None else int(step),
            wall_time=captured.wall_time,
            program=captured.program,
            stateful=captured.states,
            metrics=self._metrics,
            texts=texts,
            sharded=sharded,
        )
        check_texts(texts)
        manifest.encode()  # raises for values that JSON lacks, before anything is written
        return Draft(self.handle.path, basename, arrays, manifest, self.control, holder=holder)

    def _name_by(self, step: int | None) -> None:
        digits = "" if step is None else f"-{step:08d}" if self._options.pad_step else f"-{step}"
        self.handle.path, self.handle.step = self._prefix + digits, step

    def _step_in(self, snapshot: Mapping[str, Any]) -> int:
        name = name_of(self._global_step)
        if name not in snapshot:
            raise ValueError(
                "global_step must be an integer or a variable of the session, got"
                f" {self._global_step!r}; the session has no state {name!r}."
            )
        return int(np.asarray(snapshot[name]).item())  # its shape may be [1]

    def _check_initialized(self, snapshot: Mapping[str, Any]) -> None:
        missing = known_names(self._session) - snapshot.keys()
        unset = sorted(name for name in missing if self._options.selection.covers(name))
        if unset:
            raise FailedPreconditionError(
                f"Attempting to use uninitialized value {', '.join(unset)}: there is nothing to save of"
                " it. Initialise or restore the session first, or give the saver a var_list."
            )


class SaveQueue:
    """The saves of one saver: they run in the order of submission, one at a time.

    Args:
        write: writes the checkpoint of a save and returns its prefix.
    """

    def __init__(self, write: Callable[[Save], Awaitable[str | None]]) -> None:
        self._write = write
        self._saves: list[Save] = []
        self._lock = FairLock()
        self._replaceable: Save | None = None
        self._failed: list[SaveHandle] = []

    @property
    def busy(self) -> bool:
        """Whether a save is running or pending."""
        return any(not save.task.done() for save in self._saves)

    def submit(self, save: Save, *, coalesce: bool = False) -> None:
        """Start a save once all earlier ones are done.

        With ``coalesce``, it replaces the last save submitted with ``coalesce`` if that one is pending.
        """
        if coalesce:
            pending, self._replaceable = self._replaceable, save
            if pending is not None and self._drop(pending):
                pending.handle.supersede(save.handle)
        save.task = asyncio.create_task(self._run(save), name=f"save {save.handle.path}")
        self._saves.append(save)
        save.task.add_done_callback(lambda _: self._forget(save))

    def _forget(self, save: Save) -> None:
        """Let a save go that is done: its session may be closed, and the saver may be kept."""
        self._saves.remove(save)
        if self._replaceable is save:
            self._replaceable = None

    async def cancel(self, save: Save) -> None:
        """Cancel a save and wait for the end of its task."""
        if self._drop(save):
            save.handle.fail(_cancelled(save))
            return
        save.task.cancel()
        await outlast(save.task)

    async def abandon(self) -> None:
        """Cancel all saves. What a disk or a store does not end within two seconds is left behind."""
        running = [save for save in self._saves if not save.task.done()]
        for save in running:
            if self._drop(save):
                save.handle.fail(_cancelled(save))
            else:
                save.task.cancel()
        if running:
            await asyncio.wait([save.task for save in running], timeout=_ABANDON_SECS)

    def unthrottle(self) -> None:
        """End the pauses of all saves."""
        for save in self._saves:
            save.control.unthrottle()

    async def drain(self) -> None:
        """Wait for all saves without pauses, then call :meth:`raise_if_failed`."""
        self.unthrottle()
        while self.busy:
            await asyncio.wait([save.task for save in self._saves if not save.task.done()])
        self.raise_if_failed()

    def raise_if_failed(self) -> None:
        """Raise once the first error of saves that were not awaited; notes name the later ones."""
        if not self._failed:
            return
        errors = [handle.error for handle in self._failed if handle.error and not handle.awaited]
        self._failed.clear()
        if errors:
            for other in errors[1:]:
                add_note(errors[0], f"A later save failed too: {phrase(other)}")
            raise errors[0]

    def _drop(self, save: Save) -> bool:
        """Remove a pending save from the queue; return False if it is not pending."""
        if save.started or save.dropped:
            return False
        save.dropped = True
        save.state.discard()
        save.task.cancel()
        return True

    async def _run(self, save: Save) -> None:
        try:
            async with self._lock:
                save.started = True
                path = await self._write(save)
        except BaseException as error:
            if save.dropped:
                raise
            save.state.discard()
            if not isinstance(error, Exception):
                save.handle.fail(_cancelled(save))
                raise
            save.handle.fail(error)
            if not save.handle.awaited:
                logger.error("Saving checkpoint %s failed: %s", save.handle.path, text_of(error))
                self._failed.append(save.handle)
        else:
            save.handle.settle(path)


async def computed_step(session: Any, global_step: Any) -> Any:
    """Return the step; a tensor that is no variable of the session is run first."""
    is_tensor = members_of(FetchMembers, global_step).op is not None
    if not is_tensor or name_of(global_step) in known_names(raw_session(session)):
        return global_step
    return np.asarray(await raw_session(session).run(global_step)).item()


def _part_of(whole: Any, _name: str, place: Any) -> Any:
    if isinstance(whole, ShardedArray):
        return whole.pieces[tuple(place.var_offset)]
    return whole[place.slices()]


def _by_kind(
    state: Mapping[str, Any],
) -> tuple[dict[str, Array], dict[str, TextEntry], dict[str, ShardedEntry]]:
    """Split a state into arrays for tensor files, strings for the manifest, and sharded arrays."""
    arrays: dict[str, Array] = {}
    texts: dict[str, TextEntry] = {}
    sharded: dict[str, ShardedEntry] = {}
    problems: list[str] = []
    for name, value in state.items():
        is_here = not isinstance(value, HeldArray | ShardedArray | FixedArray)
        array: Any = np.asarray(value) if is_here else value
        try:
            if name == _RESERVED:
                raise TypeError("the file format keeps this name for itself")
            if is_text(array.dtype):
                texts[name] = encode_text(array)
            elif element_of(array.dtype) is None:
                raise TypeError(f"a checkpoint has no elements of type {array.dtype}")
            elif isinstance(array, ShardedArray):
                offsets = {f"{name}@{','.join(map(str, offset))}": offset for offset in array.pieces}
                arrays |= zip(offsets, array.pieces.values(), strict=True)
                sharded[name] = ShardedEntry(array.shape, offsets)
            else:
                arrays[name] = array
        except TypeError as error:
            problems.append(f"{name!r}: {error}")
    if problems:
        raise TypeError(f"The state cannot be saved; {'; '.join(problems)}.")
    return arrays, texts, sharded


def _check_names(prefix: str, stem: str, global_step: Any, latest_filename: str) -> None:
    if os.path.split(latest_filename)[0]:
        raise ValueError(f"'latest_filename' must not contain path components, got {latest_filename!r}")
    if not stem and global_step is None:  # with a step the prefix is dir/-7, as in TF1
        raise ValueError(
            f"save_path is a prefix such as 'dir/model.ckpt', not the directory {prefix!r}."
        )
    if global_step is None and stem == latest_filename:
        raise ValueError(
            f"'latest_filename' collides with 'save_path': '{latest_filename}' and '{prefix}'"
        )


def _cancelled(save: Save) -> CancelledError:
    return CancelledError(f"Saving {save.handle.path!r} was cancelled.")
