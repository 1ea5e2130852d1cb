"""Ranks of ``torchrun`` that train together: one state at the start, one step at which all stop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import distributed

from asyncmon.errors import AbortedError, FailedPreconditionError
from asyncmon.programs.process_group import (
    OWN_STATES,
    DifferentRunsError,
    ProcessGroupHook,
    hook_fingerprints,
    load_own_states,
    own_states_of,
    restored_states_of,
)
from asyncmon.programs.torch.changes import set_random_states
from asyncmon.programs.torch.copies import wait_for
from asyncmon.programs.torch.sharded_snapshot import Mail, held_snapshot, serve_pieces
from asyncmon.programs.torch.state import RANDOM, RANK, as_array, as_tensor
from asyncmon.system.fair_lock import FairLock
from asyncmon.system.files import in_thread
from asyncmon.system.snapshot import HeldArray, Snapshot

logger = logging.getLogger(__name__)

# Whether to stop, to take a snapshot, and to end; the run, and its negative.
_Numbers = tuple[int, int, int, int, int]
_STOP, _SNAPSHOT = (1, 0, 0, 0, 0), (0, 1, 0, 0, 0)
_DONE, _FAILED = (1, 0, 1, 0, 0), (1, 0, 2, 0, 0)


def is_first_rank() -> bool:
    """Return whether this process is rank 0, as it is without ``torchrun``."""
    if distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return int(os.environ.get("RANK", "0")) == 0


def ranks_hook() -> RanksHook | None:
    """Return the hook that ranks need; None where there is one process."""
    together = distributed.is_available() and distributed.is_initialized()
    return RanksHook() if together and distributed.get_world_size() > 1 else None


class RanksHook(ProcessGroupHook):
    """Join the ranks of ``torchrun`` by messages of gloo, and take sharded snapshots.

    A lost rank makes the exchange fail with a ``RuntimeError``, and the agent of ``torchrun`` restarts
    all ranks.

    A :class:`TorchProgram` has :func:`~asyncmon.training.MonitoredTrainingSession` add one.
    """

    member = "rank"

    def __init__(self) -> None:
        super().__init__()
        self._group: Any = None
        self._mail: Mail
        self._ended = False
        self._exchange = FairLock()
        self._posting = FairLock()
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        self._group = await in_thread(_new_group)
        self._mail = Mail(self._group)

    async def share_state(self, session: Any) -> None:
        rank = distributed.get_rank()
        with await session.snapshot() as snapshot:
            whole = {name: one for name, one in snapshot.items() if not isinstance(one, HeldArray)}
        given = session.take_given()  # restored values that the chief does not have itself
        keep = session.own_pieces() if rank else None
        restored = await restored_states_of(session)
        first = {f"{RANK}0/{name}": value for name, value in restored.items()}
        sent = None if rank else {**given, **whole, **first}
        state = await in_thread(_broadcast, sent, self._group, keep)
        if rank:
            own = {n: value for n, value in state.items() if not n.startswith((RANDOM, RANK))}
            await session.load(own)
            torch.manual_seed(torch.initial_seed() + rank + int(session.global_step or 0))
            saved = _entries_of(rank, state)
            random = {n: one for n, one in saved.items() if n.partition("/")[0] != OWN_STATES}
            set_random_states({RANDOM + name: as_tensor(value) for name, value in random.items()})
            ranks = sum(name.startswith(RANK) and name.endswith(f"/{OWN_STATES}") for name in state)
            # With another number of ranks each continues where the first one was in its share.
            source = rank if ranks == distributed.get_world_size() else 0
            await load_own_states(session, _entries_of(0, state), _entries_of(source, state))

    async def gather_stops(self, own: dict[str, Any] | None, run: int) -> list[dict[str, Any] | None]:
        async with self._exchange:
            stops, _, _, most, least = await self._agree((int(own is not None), 0, 0, run, -run))
            if stops:
                return await in_thread(_all, own, self._group)
        if most != -least:
            raise DifferentRunsError
        return []

    async def end(self, session: Any) -> None:
        """Stop the other ranks, and wait in them until the chief has saved.

        Raises:
            AbortedError: the chief failed to save.
        """
        await super().end(session)
        self._ended = True
        if distributed.get_rank():
            done = 0
            while not done:
                async with self._exchange:
                    _, _, done, *_ = await self._agree(_STOP)
            if done > 1:
                raise AbortedError("Rank 0 failed after the last step: its log says why.")

    async def cleanup(self, error: BaseException | None) -> None:
        """Let the other ranks end after the last save, which is committed by now."""
        rank = 0 if self._group is None else distributed.get_rank()
        if rank == 0 and self._ended:
            async with self._exchange:
                await self._agree(_DONE if error is None else _FAILED)
        if error is not None:
            for task in self._tasks if rank else ():
                task.cancel()
            # A step's own exchange of gradients fails with an error of gloo.
            if self.joined and (lost := _lost(self._group)) and _loss(lost) not in str(error):
                logger.error(_loss(lost))
        elif self._tasks:
            await asyncio.wait(self._tasks)

    def takes_part(self, session: Any) -> bool:
        """Return whether the others take part in a snapshot: of a whole state only in the chief's."""
        return self.joined and (session.is_sharded or distributed.get_rank() == 0)

    def snapshot(self, session: Any) -> Awaitable[Snapshot]:
        """Order a snapshot for a save, on the chief, between two steps of all.

        Raises:
            FailedPreconditionError: this is not the chief.
        """
        if distributed.get_rank():
            raise FailedPreconditionError(
                "The state is sharded over ranks, and snapshots of it are ordered on rank 0."
            )
        taking = asyncio.ensure_future(self._take(session, self._exchange.ask()))
        return asyncio.shield(taking)  # the others have begun

    async def _take(self, session: Any, place: asyncio.Future[None]) -> Snapshot:
        await self._exchange.wait(place)
        try:
            await in_thread(_maxima, _SNAPSHOT, self._group)
            await in_thread(_broadcast_one, await hook_fingerprints(session), self._group)
            if not session.is_sharded:
                return await self._replicated(session)
            number = next(self._numbers)
            pieces = await session.take_pieces(self._group, {})
        finally:
            self._exchange.release()
        await in_thread(wait_for, pieces.events)
        loop = asyncio.get_running_loop()

        def post(fn: Callable[..., None], *args: Any) -> None:
            loop.call_soon_threadsafe(self._post, partial(fn, *args))

        return held_snapshot(pieces, self._mail, number, post)

    async def _replicated(self, session: Any) -> Snapshot:
        """Return the chief's state with all ranks' generators and positions in their data."""
        snapshot: Snapshot = await session.snapshot()
        found = await in_thread(_gathered, None, self._group)
        values = dict(snapshot)
        for rank, states in enumerate(found):
            for name, state in (states or {}).items():
                value = as_array(state) if name.startswith(RANDOM) else state
                values[f"{RANK}{rank}/{name.removeprefix(RANDOM)}"] = value
        return Snapshot(values, snapshot.step, snapshot.release)

    async def _agree(self, own: _Numbers) -> list[int]:
        """Return the maxima over all ranks. Needs the lock of the exchanges."""
        # The chief may announce a snapshot instead. The other ranks, before their next run or at their
        # end, then copy their pieces of a sharded state too, or send the states of their generators.
        while (found := await in_thread(_maxima, own, self._group))[1]:
            known = await in_thread(_broadcast_one, None, self._group)
            states = await own_states_of(self._session, known)
            if not self._session.is_sharded:
                states |= await self._session.random_states()
                await in_thread(_gathered, states, self._group)
                continue
            number = next(self._numbers)
            pieces = await self._session.take_pieces(self._group, states)
            if pieces is not None:
                self._start(serve_pieces(pieces, self._mail, number))
        return found

    def _post(self, send: Callable[[], None]) -> None:
        self._start(self._posted(send, self._posting.ask()))

    async def _posted(self, send: Callable[[], None], place: asyncio.Future[None]) -> None:
        await self._posting.wait(place)
        try:
            await in_thread(send)
        finally:
            self._posting.release()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.warning("A rank was lost beside a sharded save: %s", task.exception())


def _entries_of(rank: int, state: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{RANK}{rank}/"
    return {name.removeprefix(prefix): one for name, one in state.items() if name.startswith(prefix)}


def _new_group() -> Any:
    return distributed.new_group(backend="gloo")


def _maxima(own: _Numbers, group: Any) -> list[int]:
    """Return the greatest of each number on any rank. Blocks until all have called it.

    Raises:
        RuntimeError: a rank was lost.
    """
    numbers = torch.tensor(own)
    try:
        distributed.all_reduce(numbers, distributed.ReduceOp.MAX, group)
    except RuntimeError as error:
        raise RuntimeError(_loss(_lost(group))) from error
    maxima: list[int] = numbers.tolist()
    return maxima


def _lost(group: Any) -> list[int]:
    """Return the ranks whose connection is closed."""
    lost = []
    for rank in set(range(distributed.get_world_size())) - {distributed.get_rank()}:
        try:
            # Is never received: only a closed connection refuses it.
            distributed.isend(torch.zeros(1), rank, group, 1 << 30)
        except RuntimeError:
            lost.append(rank)
    return lost


def _loss(lost: list[int]) -> str:
    which = f"rank {', '.join(map(str, lost))}" if lost else "another rank"
    return (
        f"Rank {distributed.get_rank()} has lost {which}, whose log says why. Start all ranks again "
        "from the last checkpoint, as torchrun --max-restarts=N does."
    )


def _all(own: Any, group: Any) -> list[Any]:
    """Return what each rank gives."""
    found = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, own, group)
    return found


def _gathered(own: Any, group: Any) -> list[Any]:
    """Return what each rank gives, on the first; an empty list on others."""
    found = [] if distributed.get_rank() else [None] * distributed.get_world_size()
    distributed.gather_object(own, found or None, 0, group)
    return found


def _broadcast(
    state: dict[str, Any] | None, group: Any, keep: Callable[[str, Any], Any] | None
) -> dict[str, Any]:
    """Return what rank 0 gives, entry by entry: of sharded ones the others keep their pieces only."""
    # Unpickled: the ranks of one job trust each other.
    found = {}
    for name in _broadcast_one(None if state is None else list(state), group):
        content = _broadcast_one(None if state is None else state[name], group)
        found[name] = content if keep is None else keep(name, content)
    return found


def _broadcast_one(content: Any, group: Any) -> Any:
    """Return what rank 0 gives."""
    found = [content]
    distributed.broadcast_object_list(found, src=0, group=group)
    return found[0]
