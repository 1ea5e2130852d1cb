"""Snapshots of a state that is sharded over ranks: each rank copies its pieces and writes them itself.

torch's save planner decides which rank has which piece. The chief names the files and commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed

from asyncmon.checkpoint.commit import write_part
from asyncmon.checkpoint.tensor_file import Part
from asyncmon.checkpoint.throttle import Control
from asyncmon.errors import FailedPreconditionError, UnavailableError
from asyncmon.programs.named_fetches import GLOBAL_STEP
from asyncmon.programs.torch.copies import wait_for
from asyncmon.programs.torch.state import (
    RANDOM,
    RANK,
    as_array,
    copy_to_host,
    entries_of,
)
from asyncmon.system.files import in_thread
from asyncmon.system.snapshot import HeldArray, ShardedArray, Snapshot, assembled

Group = Any  # torch's process groups have no public type


class Mail:
    """Messages between two ranks, beside the collectives of their group. Blocking, thread-safe.

    They are pickled: the ranks of one job trust each other.

    Args:
        group: of gloo, with all ranks.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._sending = threading.Lock()  # a message is two

    def send(self, content: Any, rank: int, number: int) -> None:
        """Send a message to a rank, which receives it by the same number."""
        data = torch.frombuffer(bytearray(pickle.dumps(content)), dtype=torch.uint8)
        with self._sending:
            distributed.send(torch.tensor(len(data)), rank, self._group, number)
            distributed.send(data, rank, self._group, number)

    def receive(self, rank: int, number: int) -> Any:
        """Return the next message of a rank.

        Raises:
            RuntimeError: the rank has ended.
        """
        length = torch.tensor(0)
        distributed.recv(length, rank, self._group, number)
        data = torch.empty(int(length), dtype=torch.uint8)
        distributed.recv(data, rank, self._group, number)
        return pickle.loads(data.numpy().tobytes())


class Pieces(NamedTuple):
    """What one rank has of a snapshot: copies by entry name, which have their values after events.

    ``others`` are entries that are no tensors. The chief has the plans of all ranks.
    """

    copies: dict[str, NDArray[Any]]
    events: list[Any]
    others: dict[str, Any]
    plans: list[Any] | None
    step: int


def take_pieces(
    objects: Mapping[str, Any],
    step: int,
    group: Group,
    own_states: Mapping[str, Any],
    random: Mapping[str, torch.Tensor],
) -> Pieces | None:
    """Copy what this rank is to write of the state. All ranks call it, between the same two steps.

    Args:
        objects, step: of the session.
        group: with all ranks.
        own_states: of this rank's data and hooks, which the chief writes for the others.
        random: the states of its default generators.

    Returns:
        The pieces; None on other ranks than the first where it raises.

    Raises:
        FailedPreconditionError: the ranks are at different steps.
    """
    from torch.distributed.checkpoint import DefaultSavePlanner  # it takes a second to import

    rank, count = distributed.get_rank(), distributed.get_world_size()
    if rank:
        random = {f"{RANK}{rank}/{name.removeprefix(RANDOM)}": one for name, one in random.items()}
    planner = DefaultSavePlanner(
        flatten_state_dict=False, flatten_sharded_tensors=False, dedup_save_to_lowest_rank=True
    )
    tensors, others = entries_of(objects)
    planner.set_up_planner({**tensors, **random}, is_coordinator=rank == 0)
    found: list[Any] | None = None if rank else [None] * count
    distributed.gather_object((step, planner.create_local_plan(), own_states), found, 0, group)
    plans = None
    own: list[Any] = [None]
    try:
        if found is not None:
            plans = _planned(planner, found)
    finally:
        distributed.scatter_object_list(own, None if rank else plans or [None] * count, 0, group)
    if own[0] is None:
        return None
    for number, (*_, theirs) in enumerate(found or ()):
        if number:
            others |= {f"{RANK}{number}/{name}": value for name, value in theirs.items()}
    items = planner.finish_plan(own[0]).items
    pieces = {item.index.fqn: planner.resolve_data(item) for item in items}
    return Pieces(*copy_to_host(pieces), others, plans, step)


def _planned(planner: Any, found: list[Any]) -> list[Any]:
    steps = [step for step, *_ in found]
    if len(set(steps)) > 1:
        raise FailedPreconditionError(f"The ranks are at the steps {steps}; all run the same ones.")
    plans: list[Any] = planner.create_global_plan([plan for _, plan, _ in found])[0]
    return plans


# --- the chief ------------------------------------------------------------------------------------
def held_snapshot(pieces: Pieces, mail: Mail, number: int, post: Callable[..., None]) -> Snapshot:
    """Return the snapshot whose pieces stay with their ranks until it is released.

    Args:
        pieces: of the chief.
        mail: to the ranks.
        number: of the snapshot, which all ranks count.
        post: has a blocking function called soon, in a thread, after those before.
    """
    assert pieces.plans is not None, "this is the chief"
    entries: dict[str, tuple[Any, tuple[int, ...], dict[tuple[int, ...], Any]]] = {}
    for rank, plan in enumerate(pieces.plans):
        for item in plan.items:
            name, data = item.index.fqn, item.tensor_data
            shape, size = tuple(data.size), tuple(data.chunk.sizes)
            if 0 in size and 0 not in shape:
                continue
            dtype = as_array(torch.empty(0, dtype=data.properties.dtype)).dtype
            piece = pieces.copies[name] if rank == 0 else HeldArray(name, dtype, size, rank)
            entries.setdefault(name, (dtype, shape, {}))[2][tuple(data.chunk.offsets)] = piece
    values: dict[str, Any] = {**pieces.others, GLOBAL_STEP: np.asarray(pieces.step, np.int64)}
    for name, (dtype, shape, parts) in entries.items():
        first = next(iter(parts.values()))
        values[name] = first if first.shape == shape else ShardedArray(dtype, shape, parts)
    holder = _Ranks(mail, number, len(pieces.plans), values, pieces.step, post)
    return Snapshot(values, pieces.step, holder.release, holder)


class _Ranks:
    """The ranks but the first, a :class:`~asyncmon.system.snapshot.Holder` of one snapshot."""

    def __init__(
        self, mail: Mail, number: int, count: int, values: Mapping[str, Any], step: int, post: Any
    ) -> None:
        self._mail = mail
        self._number = number
        self._values = values
        self._step = step
        self._post = post
        self._asking = {rank: threading.Lock() for rank in range(1, count)}
        self._released = False

    def write_file(
        self, path: str, header: bytes, arrays: Mapping[str, Any], control: Control
    ) -> dict[str, int]:
        rank = next(iter(arrays.values())).rank
        due = None if control.due is None else control.due - time.perf_counter()
        names = {name: array.name for name, array in arrays.items()}
        control.on_change(partial(self._change, control))
        checksums: dict[str, int] = self._asked(
            rank, ("write", path, header, names, control.is_urgent, due)
        )
        expected = len(header) + sum(array.nbytes for array in arrays.values())
        if not os.path.isfile(path) or os.path.getsize(path) != expected:
            raise FailedPreconditionError(
                f"Rank {rank} wrote {path!r}, and rank 0 does not see it: a sharded state is saved "
                "into a directory that all ranks have."
            )
        return checksums

    async def pull(self) -> Snapshot:
        return await in_thread(self._pulled)

    def _pulled(self) -> Snapshot:
        found = {rank: self._asked(rank, ("pull",)) for rank in self._asking}

        def here(array: Any) -> Any:
            return found[array.rank][array.name] if isinstance(array, HeldArray) else array

        values = {}
        for name, one in self._values.items():
            values[name] = here(one)
            if isinstance(one, ShardedArray):
                parts = {offset: here(piece) for offset, piece in one.pieces.items()}
                values[name] = assembled(one.shape, one.dtype, parts)
        return Snapshot(values, self._step)

    def _asked(self, rank: int, request: tuple[Any, ...]) -> Any:
        with self._asking[rank]:
            try:
                self._mail.send(request, rank, self._number)
                result, error = self._mail.receive(rank, self._number)
            except RuntimeError as lost:
                raise UnavailableError(f"Rank {rank} was lost while it wrote its shard.") from lost
        if error is not None:
            raise error
        return result

    def _change(self, control: Control) -> None:
        self._tell(("change", control.stopped))

    def release(self) -> None:
        self._tell(("release",))
        self._released = True

    def _tell(self, message: tuple[Any, ...]) -> None:
        if not self._released:
            for rank in self._asking:
                with contextlib.suppress(RuntimeError):  # the loop is closed, and the session with it
                    self._post(self._mail.send, message, rank, self._number)


# --- the other ranks ------------------------------------------------------------------------------
async def serve_pieces(pieces: Pieces, mail: Mail, number: int) -> None:
    """Write pieces into files, or send them, as the chief requests, until it releases the snapshot.

    Raises:
        RuntimeError: the chief has ended.
    """
    await in_thread(wait_for, pieces.events)
    control = Control()
    answers: set[asyncio.Task[None]] = set()
    while (request := await in_thread(mail.receive, 0, number))[0] != "release":
        if request[0] == "change":
            control.unthrottle()
            if request[1]:
                control.stop()
            continue
        answer = asyncio.create_task(in_thread(_answer, request, pieces, control, mail, number))
        answers.add(answer)
        answer.add_done_callback(answers.discard)
    if answers:
        await asyncio.wait(answers)


def _answer(
    request: tuple[Any, ...], pieces: Pieces, control: Control, mail: Mail, number: int
) -> None:
    result: Any = pieces.copies
    error: Exception | None = None
    if request[0] == "write":
        _, path, header, names, urgent, due = request
        control.due = None if due is None else time.perf_counter() + due
        if urgent:
            control.unthrottle()
        arrays = {name: pieces.copies[own] for name, own in names.items()}
        try:
            result = write_part(path, Part(header, arrays), control)
        except Exception as raised:
            result, error = None, raised
    with contextlib.suppress(RuntimeError):  # the chief has ended; the next exchange raises the error
        mail.send((result, error), 0, number)
