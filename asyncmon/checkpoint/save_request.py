"""From a request and a snapshot to what is written."""

from __future__ import annotations

import asyncio
import operator
import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon import clock
from asyncmon.checkpoint import locations
from asyncmon.checkpoint.dtypes import Array, element_of, is_text
from asyncmon.checkpoint.manifest import Manifest, TextEntry, encode_text
from asyncmon.checkpoint.save_queue import SaveHandle
from asyncmon.checkpoint.saveable_session import known_names, release
from asyncmon.checkpoint.store import Draft
from asyncmon.checkpoint.throttle import Control
from asyncmon.checkpoint.variable_selection import name_of
from asyncmon.errors import FailedPreconditionError
from asyncmon.files import in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncmon.checkpoint.dtypes import Array
    from asyncmon.checkpoint.stateful import StatefulRegistry
    from asyncmon.checkpoint.variable_selection import Selection

_SHARDS = 4
_RESERVED = "__metadata__"  # safetensors keeps this name of a header for itself


@dataclass(slots=True)
class Request:
    """One save, as everything was at the call."""

    prefix: str
    global_step: Any
    moment: Moment
    metrics: Mapping[str, float]
    program: Any
    latest_filename: str
    write_state: bool
    control: Control = field(default_factory=Control)
    wall_time: float = field(default_factory=clock.wall)
    began: float = field(default_factory=time.perf_counter)

    @property
    def known_step(self) -> int | None:
        """The step that was given as a number."""
        try:
            return None if self.global_step is None else operator.index(self.global_step)
        except TypeError:
            return None

    def handle(self, pad: bool) -> SaveHandle:
        """Return the handle of the save, with what is known of its result.

        Args:
            pad: whether the step in the path is padded.

        Raises:
            TypeError: what was given for the step is neither a number nor a variable.
        """
        step = self.known_step
        if step is None and self.global_step is not None:
            name_of(self.global_step)  # refused here, not by a save in the background
            return SaveHandle(None, None)
        return SaveHandle(checkpoint_path(self.prefix, step, pad), step)

    def step(self, snapshot: Mapping[str, Any]) -> int | None:
        """Return the step to be appended to the prefix: a number, or a variable's value.

        Raises:
            ValueError: what was given for the step is no variable of the session.
        """
        if self.global_step is None or self.known_step is not None:
            return self.known_step
        name = name_of(self.global_step)
        if name not in snapshot:
            raise ValueError(
                "global_step must be an integer or a variable of the session, got"
                f" {self.global_step!r}; the session has no state {name!r}."
            )
        return int(snapshot[name])

    def manifest(self, snapshot: Mapping[str, Any]) -> Manifest:
        """Return the manifest, as far as it is known before anything is written."""
        step = getattr(snapshot, "step", None)
        return Manifest(
            step=self.step(snapshot) if step is None else int(step),
            wall_time=self.wall_time,
            program=self.program,
            travellers=self.moment.states,
            metrics=self.metrics,
        )


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


def make_draft(
    request: Request,
    snapshot: Mapping[str, Any],
    state: Mapping[str, Any],
    basename: str,
    shard_bytes: int,
    sharded: bool,
) -> Draft:
    """Return what is to be written. Blocking.

    Args:
        request: the save.
        snapshot: the state that it ordered.
        state: what of it is saved, by the names in the checkpoint.
        basename: ``<prefix>-<step>``.
        shard_bytes: the size that a tensor file should not exceed.
        sharded: whether to make several files even of a state that would fit one.

    Raises:
        TypeError: a value cannot be saved; all that cannot are named.
    """
    arrays: dict[str, Array] = {}
    texts: dict[str, TextEntry] = {}
    problems: list[str] = []
    for name, value in {**state, **request.moment.arrays}.items():
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
    manifest = replace(request.manifest(snapshot), texts=texts)
    manifest.encode()  # what is no JSON is said before anything is written
    if sharded:
        total = sum(array.nbytes for array in arrays.values())
        shard_bytes = min(shard_bytes, max(1, -(-total // _SHARDS)))
    return Draft(basename, arrays, manifest, shard_bytes, request.control)


class Moment:
    """The state of a session and of the saver's stateful objects, ordered when this is made.

    A snapshot that is ordered while a step is just being applied is of the state after that step, but
    stateful objects then gave the state before it. Both are taken anew in this case, until
    they are of one step.

    Args:
        raw: the session.
        stateful: the objects whose states are saved along.
    """

    def __init__(self, raw: Any, stateful: StatefulRegistry) -> None:
        self._raw = raw
        self._stateful = stateful
        self.states: Mapping[str, Any]
        """The states of the stateful objects, as the manifest has them."""
        self.arrays: Mapping[str, Array]
        """The arrays in them."""
        self._pack()
        self.snapshot: asyncio.Future[Mapping[str, Any]] = asyncio.ensure_future(raw.snapshot())
        """The state, once it is there."""
        if self.states and self._step is not None:
            self.snapshot = asyncio.ensure_future(self._matching(self.snapshot))

    def _pack(self) -> None:
        self._step = getattr(self._raw, "global_step", None)
        self.states, self.arrays = self._stateful.pack()

    async def _matching(self, ordered: asyncio.Future[Mapping[str, Any]]) -> Mapping[str, Any]:
        snapshot = await ordered
        while getattr(snapshot, "step", self._step) != self._step:
            release(snapshot)
            snapshot = await self._raw.snapshot()
            self._pack()
        return snapshot

    async def taken(self, selection: Selection) -> Mapping[str, Any]:
        """Return the snapshot, once it is there and has all that is to be saved.

        Raises:
            FailedPreconditionError: a variable that the selection covers has no value yet.
        """
        snapshot = await self.snapshot
        known = await in_thread(known_names, self._raw)
        unset = sorted(name for name in known - snapshot.keys() if selection.covers(name))
        if unset:
            raise FailedPreconditionError(
                f"Attempting to use uninitialized value {', '.join(unset)}: there is nothing to save of"
                " it. Initialise or restore the session first, or give the saver a var_list."
            )
        return snapshot

    def discard(self) -> None:
        """End the sharing of the snapshot's arrays, now or when it is there. Twice is fine."""
        if self.snapshot.done():
            _let_go(self.snapshot)
        else:
            self.snapshot.add_done_callback(_let_go)


def _let_go(snapshot: asyncio.Future[Mapping[str, Any]]) -> None:
    if not snapshot.cancelled() and snapshot.exception() is None:
        release(snapshot.result())
