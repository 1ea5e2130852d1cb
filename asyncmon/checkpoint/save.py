"""One save: what is ordered at the call, and the draft of a checkpoint that it becomes."""

from __future__ import annotations

import asyncio
import operator
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon import clock
from asyncmon.checkpoint import locations
from asyncmon.checkpoint.dtypes import Array, element_of, is_text
from asyncmon.checkpoint.manifest import Manifest, TextEntry, encode_text
from asyncmon.checkpoint.save_handle import SaveHandle
from asyncmon.checkpoint.saveable_session import describe, known_names, release
from asyncmon.checkpoint.store import Draft
from asyncmon.checkpoint.variable_selection import name_of
from asyncmon.errors import FailedPreconditionError
from asyncmon.files import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from asyncmon.checkpoint.stateful import StatefulRegistry
    from asyncmon.checkpoint.throttle import Control
    from asyncmon.checkpoint.variable_selection import Selection

_SHARDS = 4
_RESERVED = "__metadata__"  # safetensors keeps this name of a header for itself


class Save:
    """A save, as everything was at the call; the snapshot is ordered when this is made.

    A snapshot that is ordered while a step is being applied is of the state after that step, but the
    stateful objects then gave the state before it. Both are taken anew in this case, until they are of
    one step.

    Args:
        raw: the session.
        stateful: the objects whose states are saved along.
        prefix: of the checkpoint's path.
        global_step: appended to it: a number, a variable, or None.
        pad_step: whether the number is padded with zeros.
        metrics: for the manifest.
        latest_filename: the name of the state file; None: it is not updated.
        control: how the event loop speeds the writing up or stops it.
        write: what writes it; called once the saves before are done.
        snapshot: of the present step, if it is taken already.

    Raises:
        TypeError: what was given for the step is neither a number nor a variable.
    """

    def __init__(
        self,
        raw: Any,
        stateful: StatefulRegistry,
        *,
        prefix: str,
        global_step: Any,
        pad_step: bool,
        metrics: Mapping[str, float],
        latest_filename: str | None,
        control: Control,
        write: Callable[[Save], Awaitable[str | None]],
        snapshot: Mapping[str, Any] | None = None,
    ) -> None:
        self.latest_filename = latest_filename
        self.control = control
        self.write = write
        self.began = time.perf_counter()
        self.replaceable = False  # by a later save, until it has started
        self.started = False
        self.dropped = False
        self.before: Save | None = None
        self.task: asyncio.Task[None] | None = None
        self._prefix = prefix
        self._global_step = global_step
        self._pad_step = pad_step
        self._metrics = metrics
        self._program = describe(raw)
        self._wall_time = clock.wall()
        step = self._known_step()
        if step is None and global_step is not None:
            name_of(global_step)  # refused here, not by a save in the background
            self.handle = SaveHandle(None, None)
        else:
            self.handle = SaveHandle(self.path(step), step)
        self._raw = raw
        self._stateful = stateful
        self._pack()
        self._snapshot: asyncio.Future[Mapping[str, Any]]
        if snapshot is not None:
            self._snapshot = asyncio.get_running_loop().create_future()
            self._snapshot.set_result(snapshot)
            return
        self._snapshot = asyncio.ensure_future(raw.snapshot())
        if self._states and self._step is not None:
            self._snapshot = asyncio.ensure_future(self._matching(self._snapshot))

    def path(self, step: int | None) -> str:
        """Return the checkpoint's prefix for a step."""
        return checkpoint_path(self._prefix, step, self._pad_step)

    def hurry(self) -> None:
        """Write without pauses: the caller waits for the end."""
        self.control.hurry()

    def discard(self) -> None:
        """End the sharing of the snapshot's arrays, now or when it is there. Twice is fine."""
        if self._snapshot.done():
            _release(self._snapshot)
        else:
            self._snapshot.add_done_callback(_release)

    async def snapshot(self, selection: Selection) -> Mapping[str, Any]:
        """Return the snapshot, once it is there and has all that is to be saved.

        Raises:
            FailedPreconditionError: a variable that the selection covers has no value yet.
        """
        snapshot = await self._snapshot
        known = await in_thread(known_names, self._raw)
        unset = sorted(name for name in known - snapshot.keys() if selection.covers(name))
        if unset:
            raise FailedPreconditionError(
                f"Attempting to use uninitialized value {', '.join(unset)}: there is nothing to save of"
                " it. Initialise or restore the session first, or give the saver a var_list."
            )
        return snapshot

    def step(self, snapshot: Mapping[str, Any]) -> int | None:
        """Return the step to be appended to the prefix: a number, or a variable's value.

        Raises:
            ValueError: what was given for the step is no variable of the session.
        """
        known = self._known_step()
        if self._global_step is None or known is not None:
            return known
        name = name_of(self._global_step)
        if name not in snapshot:
            raise ValueError(
                "global_step must be an integer or a variable of the session, got"
                f" {self._global_step!r}; the session has no state {name!r}."
            )
        return int(snapshot[name])

    def draft(
        self,
        snapshot: Mapping[str, Any],
        state: Mapping[str, Any],
        basename: str,
        shard_bytes: int,
        sharded: bool,
    ) -> Draft:
        """Return what is to be written. Blocking.

        Args:
            snapshot: the state that was ordered.
            state: what of it is saved, by the names in the checkpoint.
            basename: ``<prefix>-<step>``.
            shard_bytes: the size that a tensor file should not exceed.
            sharded: whether to make several files even of a state that would fit one.

        Raises:
            TypeError: a value cannot be saved; all that cannot are named.
        """
        arrays, texts = _by_kind({**state, **self._arrays})
        step = getattr(snapshot, "step", None)
        manifest = Manifest(
            step=self.step(snapshot) if step is None else int(step),
            wall_time=self._wall_time,
            program=self._program,
            travellers=self._states,
            metrics=self._metrics,
            texts=texts,
        )
        manifest.encode()  # what is no JSON is said before anything is written
        if sharded:
            total = sum(array.nbytes for array in arrays.values())
            shard_bytes = min(shard_bytes, max(1, -(-total // _SHARDS)))
        return Draft(basename, arrays, manifest, shard_bytes, self.control)

    def _known_step(self) -> int | None:
        try:
            return None if self._global_step is None else operator.index(self._global_step)
        except TypeError:
            return None

    def _pack(self) -> None:
        self._step = getattr(self._raw, "global_step", None)
        self._states, self._arrays = self._stateful.pack()

    async def _matching(self, ordered: asyncio.Future[Mapping[str, Any]]) -> Mapping[str, Any]:
        snapshot = await ordered
        while getattr(snapshot, "step", self._step) != self._step:
            release(snapshot)
            snapshot = await self._raw.snapshot()
            self._pack()
        return snapshot


def _release(snapshot: asyncio.Future[Mapping[str, Any]]) -> None:
    if not snapshot.cancelled() and snapshot.exception() is None:
        release(snapshot.result())


def _by_kind(state: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, TextEntry]]:
    """Return the arrays of tensor files, and the strings of the manifest. TypeError for the rest."""
    arrays: dict[str, Array] = {}
    texts: dict[str, TextEntry] = {}
    problems: list[str] = []
    for name, value in state.items():
        array = np.asarray(value)
        try:
            if name == _RESERVED:
                raise TypeError("the file format keeps this name for itself")
            if is_text(array.dtype):
                texts[name] = encode_text(array)
            elif element_of(array.dtype) is None:
                raise TypeError(f"a checkpoint has no elements of type {array.dtype}")
            else:
                arrays[name] = array
        except TypeError as error:
            problems.append(f"{name!r}: {error}")
    if problems:
        raise TypeError(f"The state cannot be saved; {'; '.join(problems)}.")
    return arrays, texts


def checkpoint_path(prefix: str, step: int | None, pad: bool) -> str:
    """Return a checkpoint's prefix: with the step, padded to 8 digits or not, or without one."""
    if step is None:
        return prefix
    return f"{prefix}-{step:08d}" if pad else f"{prefix}-{step}"


def check_names(prefix: str, global_step: Any, latest_filename: str) -> None:
    """Refuse names that a checkpoint and its state file cannot have.

    Raises:
        ValueError: the prefix is a directory, the state file's name is a path, or both are the same.
    """
    basename = locations.split(prefix)[1]
    if os.path.split(latest_filename)[0]:
        raise ValueError(f"'latest_filename' must not contain path components, got {latest_filename!r}")
    if not basename:
        raise ValueError(
            f"save_path is a prefix such as 'dir/model.ckpt', not the directory {prefix!r}."
        )
    if global_step is None and basename == latest_filename:
        raise ValueError(
            f"'latest_filename' collides with 'save_path': '{latest_filename}' and '{prefix}'"
        )
