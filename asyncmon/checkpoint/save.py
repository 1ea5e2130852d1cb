"""One save, from the call to the draft of a checkpoint."""

from __future__ import annotations

import asyncio
import operator
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.commit import Draft
from asyncmon.checkpoint.dtypes import Array, element_of, is_text
from asyncmon.checkpoint.manifest import Manifest, ShardedEntry, TextEntry, encode_text
from asyncmon.checkpoint.save_handle import SaveHandle
from asyncmon.checkpoint.saveable_session import (
    FetchMembers,
    SaveableSessionMembers,
    SnapshotMembers,
    describe,
    known_names,
    order_snapshot,
    raw_session,
    release,
)
from asyncmon.checkpoint.state_file import STATE_NAME
from asyncmon.checkpoint.stateful import StatefulRegistry
from asyncmon.checkpoint.throttle import Control
from asyncmon.checkpoint.variable_selection import Selection, name_of
from asyncmon.errors import FailedPreconditionError
from asyncmon.system import clock
from asyncmon.system.members import members_of
from asyncmon.system.snapshot import HeldArray, ShardedArray

_SHARDS = 4
_RESERVED = "__metadata__"  # safetensors keeps this name of a header for itself


class SaveOptions(NamedTuple):
    """The arguments of a saver that its saves need."""

    selection: Selection
    stateful: StatefulRegistry
    pad_step: bool
    sharded: bool
    shard_bytes: int


class Save:
    """A save. The snapshot is ordered, and states are taken, when this is made.

    A snapshot that is ordered while a step is being applied is of the state after that step, but the
    stateful objects then gave the state before it. Both are taken anew in this case, until they are of
    one step.

    The arguments up to ``metrics`` are those of :meth:`Saver.save`.

    Args:
        write: called once the saves before are done.
        present: a snapshot of the present step, if it is taken already.
        control: throttles and stops the writing.

    Raises:
        TypeError: ``global_step`` is neither a number nor a variable.
        ValueError: a name that the checkpoint or its state file cannot have.
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
        write: Callable[[Save], Awaitable[str | None]],
        present: Mapping[str, Any] | None = None,
        control: Control | None = None,
    ) -> None:
        self._raw = raw_session(session)
        self._members = members_of(SaveableSessionMembers, self._raw)
        self._prefix, self.state_file = os.fspath(save_path), latest_filename or STATE_NAME
        self.directory, stem = locations.split(self._prefix)
        _check_names(self._prefix, stem, global_step, self.state_file)
        self.write_state, self.write = write_state, write
        self.control = control or Control()
        self.task: asyncio.Task[None]  # set when it is submitted
        self.started = self.dropped = False  # dropped: taken back while it was pending
        self._options = options
        self._global_step = global_step
        self._metrics = {key: float(value) for key, value in (metrics or {}).items()}
        self.began = time.perf_counter()
        self.handle = SaveHandle(None, None)
        self._program = describe(self._raw)
        self._wall_time = clock.wall()
        try:
            self._name_by(None if global_step is None else operator.index(global_step))
        except TypeError:
            name_of(global_step)  # refused here, not by a save in the background
        self._pack()
        self.snapshot: asyncio.Future[Mapping[str, Any]]
        if present is not None:
            self.snapshot = asyncio.get_running_loop().create_future()
            self.snapshot.set_result(present)
            return
        self.snapshot = asyncio.ensure_future(order_snapshot(self._raw))
        if self._states and self._step is not None and not self._members.shares_state:
            self.snapshot = asyncio.ensure_future(self._matching(self.snapshot))

    async def taken(self, *, pull: bool) -> Mapping[str, Any]:
        """Return the snapshot, when it is there, with all of its arrays here if that is asked for."""
        snapshot = await self.snapshot
        holder = members_of(SnapshotMembers, snapshot).holder
        return await holder.pull() if pull and holder is not None else snapshot

    def discard(self) -> None:
        """End the sharing of the snapshot's arrays, now or when it is there. Twice is fine."""
        if self.snapshot.done():
            _release(self.snapshot)
        else:
            self.snapshot.add_done_callback(_release)

    def draft(self, snapshot: Mapping[str, Any]) -> Draft | None:
        """Return the checkpoint to be written of a snapshot, or None where it is empty. Blocking.

        Raises:
            FailedPreconditionError: a variable has no value yet.
            ValueError: there is nothing to save, or ``global_step`` is no variable of the session.
            TypeError: a value cannot be saved; all that cannot are named.
        """
        options = self._options
        self._check_initialized(snapshot)
        state = options.selection.to_checkpoint(snapshot)
        if not state and options.selection.allow_empty:
            return None
        if not state:
            raise ValueError("No variables to save")
        if self.handle.path is None:
            self._name_by(self._step_in(snapshot))
        assert self.handle.path is not None, "it was named at the call or here"
        arrays, texts, sharded = _by_kind({**state, **self._arrays})
        members = members_of(SnapshotMembers, snapshot)
        step, holder = members.step, members.holder
        manifest = Manifest(
            step=self.handle.step if step is None else int(step),
            wall_time=self._wall_time,
            program=self._program,
            stateful=self._states,
            metrics=self._metrics,
            texts=texts,
            sharded=sharded,
        )
        manifest.encode()  # a member that is no JSON is refused before anything is written
        shard_bytes = options.shard_bytes
        if options.sharded:
            total = sum(array.nbytes for array in arrays.values())
            shard_bytes = min(shard_bytes, max(1, -(-total // _SHARDS)))
        basename = locations.split(self.handle.path)[1]
        return Draft(
            self.handle.path, basename, arrays, manifest, shard_bytes, self.control, holder=holder
        )

    def _name_by(self, step: int | None) -> None:
        """Give the checkpoint its path: with the step, padded to 8 digits or not, or without one."""
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
        missing = known_names(self._raw) - snapshot.keys()
        unset = sorted(name for name in missing if self._options.selection.covers(name))
        if unset:
            raise FailedPreconditionError(
                f"Attempting to use uninitialized value {', '.join(unset)}: there is nothing to save of"
                " it. Initialise or restore the session first, or give the saver a var_list."
            )

    def _pack(self) -> None:
        self._step = self._members.global_step
        self._states, self._arrays = self._options.stateful.pack()

    async def _matching(self, ordered: asyncio.Future[Mapping[str, Any]]) -> Mapping[str, Any]:
        snapshot = await ordered
        while members_of(SnapshotMembers, snapshot).step not in (None, self._step):
            release(snapshot)
            snapshot = await order_snapshot(self._raw)
            self._pack()
        return snapshot


async def computed_step(session: Any, global_step: Any) -> Any:
    """Return the step, computed by the session where it is a tensor and no variable of it."""
    is_tensor = members_of(FetchMembers, global_step).op is not None
    if not is_tensor or name_of(global_step) in known_names(raw_session(session)):
        return global_step
    return np.asarray(await raw_session(session).run(global_step)).item()


def _release(snapshot: asyncio.Future[Mapping[str, Any]]) -> None:
    if not snapshot.cancelled() and snapshot.exception() is None:
        release(snapshot.result())


def _by_kind(
    state: Mapping[str, Any],
) -> tuple[dict[str, Array], dict[str, TextEntry], dict[str, ShardedEntry]]:
    """Return the arrays of tensor files, the strings of the manifest, and which arrays are pieces.

    Raises:
        TypeError: a value is none of these; all such values are named.
    """
    arrays: dict[str, Array] = {}
    texts: dict[str, TextEntry] = {}
    sharded: dict[str, ShardedEntry] = {}
    problems: list[str] = []
    for name, value in state.items():
        is_here = not isinstance(value, HeldArray | ShardedArray)
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
    if not stem:
        raise ValueError(
            f"save_path is a prefix such as 'dir/model.ckpt', not the directory {prefix!r}."
        )
    if global_step is None and stem == latest_filename:
        raise ValueError(
            f"'latest_filename' collides with 'save_path': '{latest_filename}' and '{prefix}'"
        )
