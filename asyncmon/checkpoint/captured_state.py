"""The state of a session between two steps, with everything that a checkpoint has of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from asyncmon.checkpoint.dtypes import Array
from asyncmon.checkpoint.packing import Fingerprints, fingerprints_of, pack_all, pack_later
from asyncmon.checkpoint.saveable_session import (
    SaveableSessionMembers,
    SnapshotMembers,
    describe,
    order_snapshot,
    release,
)
from asyncmon.checkpoint.stateful import StatefulObjects, stateful_of
from asyncmon.system import clock
from asyncmon.system.files import in_thread
from asyncmon.system.members import members_of

_Packed = tuple[dict[str, Any], dict[str, Array]]

_numbers = itertools.count(1)


class CapturedState:
    """A snapshot of a session, and the states of its hooks, data sources and other objects.

    Both are ordered by the constructor, and belong to one step.

    Args:
        raw: the raw session.
        own_objects: the stateful objects of the saver.
        session_states: whether to include those of the session.

    Attributes:
        number: increases with each capture in this process.
        step: the global step when the states were taken, or None.
        states: the states as JSON values, by name; ``arrays`` are the arrays in them. Both are complete
            once :meth:`snapshot` returns.
        is_here: whether no array of the snapshot is in another process, once it is taken.

    Raises:
        ValueError: the saver and the session have objects of one name.
        TypeError: a state cannot be saved.
    """

    step: int | None = None
    states: Mapping[str, Any] = MappingProxyType({})
    arrays: Mapping[str, Array] = MappingProxyType({})
    _revisions: Mapping[str, int] = MappingProxyType({})
    _copies: tuple[asyncio.Future[_Packed], ...] = ()  # of the states that threads copy
    is_here = False

    def __init__(self, raw: Any, own_objects: StatefulObjects, session_states: bool) -> None:
        self.session, self._own_objects, self._session_states = raw, own_objects, session_states
        self._members = members_of(SaveableSessionMembers, raw)
        self.number, self.wall_time = next(_numbers), clock.wall()
        self.program = describe(raw)
        ordered, packed = asyncio.ensure_future(order_snapshot(raw)), self._packed()
        may_differ = self.states or self._copies or stateful_of(raw).boundary is not None
        if packed is not None or (
            may_differ and self.step is not None and not self._members.shares_state
        ):
            ordered = asyncio.ensure_future(self._matching(ordered, packed))
        self._snapshot: asyncio.Future[Mapping[str, Any]] | None = ordered  # None once discarded

    async def snapshot(self, *, pull: bool) -> Mapping[str, Any]:
        """Return the snapshot; with ``pull``, fetch the arrays that other processes hold."""
        assert self._snapshot is not None, "not discarded yet"
        snapshot = await self._snapshot
        if copies := self._copies:
            await asyncio.wait(copies)  # not cancelled with this
            self._copies = ()
            for states, arrays in [copy.result() for copy in copies]:
                self.states, self.arrays = {**self.states, **states}, {**self.arrays, **arrays}
        holder = members_of(SnapshotMembers, snapshot).holder
        if pull and holder is not None:
            snapshot, holder = await holder.pull(), None
        self.is_here = holder is None
        return snapshot

    def fingerprints(self) -> Fingerprints:
        """Return the fingerprints of the states, once the snapshot is taken. Blocking, if large."""
        return fingerprints_of(self.states, self.arrays, self._revisions)

    def discard(self) -> None:
        """Release the snapshot now or once it is taken. May be called twice."""
        ordered, self._snapshot = self._snapshot, None
        if ordered is not None and ordered.done():
            _release(ordered)
        elif ordered is not None:
            ordered.add_done_callback(_release)

    def _pack(self) -> None:
        objects, own = stateful_of(self.session), self._own_objects
        if twice := own.objects.keys() & objects.objects.keys():
            raise ValueError(
                f"The saver and the session both have a stateful object named {min(twice)!r}. Give the"
                " add_stateful() of the saver another name."
            )
        self.step = self._members.global_step
        self.states, self.arrays, self._revisions, self._copies = {}, {}, {}, ()
        for each in (objects, own) if self._session_states else (own,):
            now, later = each.states(with_pending=each is objects)
            states, arrays = pack_all(now)
            self.states, self.arrays = {**self.states, **states}, {**self.arrays, **arrays}
            self._revisions = {**self._revisions, **each.revisions()}
            if later:
                self._copies += (each.copy_in_thread(partial(pack_later, later)),)

    def _packed(self) -> asyncio.Future[None] | None:
        """Pack the states, now or at the end of the run whose step hooks have not seen."""
        # Until then their states belong to no step.
        boundary = stateful_of(self.session).boundary
        if boundary is not None and boundary.hooks_lag():
            return boundary.call_after_run(self._pack)
        self._pack()
        return None

    async def _matching(
        self, ordered: asyncio.Future[Mapping[str, Any]], packed: asyncio.Future[None] | None
    ) -> Mapping[str, Any]:
        while True:
            snapshot = await ordered
            try:
                if packed is not None:
                    await packed
            except BaseException:
                release(snapshot)
                raise
            if (
                self._members.shares_state
                or self.step is None
                or members_of(SnapshotMembers, snapshot).step in (None, self.step)
            ):
                return snapshot
            # A step was being applied. The snapshot has the state after it, and the objects returned
            # theirs from before it.
            release(snapshot)
            ordered, packed = asyncio.ensure_future(order_snapshot(self.session)), self._packed()


async def fingerprints(raw: Any, own_objects: StatefulObjects, session_states: bool) -> Fingerprints:
    """Return those of states that would be captured now. Arguments as :class:`CapturedState`."""
    objects = stateful_of(raw)
    states: dict[str, Any] = {**objects.pending} if session_states else {}
    revisions: dict[str, int] = {}
    for each in (objects, own_objects) if session_states else (own_objects,):
        states |= each.unnumbered_states()
        revisions |= each.revisions()
    # Not copied: an array that changes during the call has another fingerprint, before and after.
    return await in_thread(fingerprints_of, *pack_all(states, copies=False), revisions)


def _release(snapshot: asyncio.Future[Mapping[str, Any]]) -> None:
    if not snapshot.cancelled() and snapshot.exception() is None:
        release(snapshot.result())
