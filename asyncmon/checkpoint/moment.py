"""What a checkpoint is made of: a snapshot, and the states of passengers, of one and the same step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from asyncmon.checkpoint.sessions import known_names, release
from asyncmon.errors import FailedPreconditionError
from asyncmon.files import in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncmon.checkpoint.dtypes import Array
    from asyncmon.checkpoint.passage import Passengers
    from asyncmon.checkpoint.selection import Selection

__all__ = ["Moment"]


class Moment:
    """A session's state and its passengers', ordered when this is made.

    A snapshot that is ordered while a step is just being applied is of the state after that step, but
    passengers said then what belongs to the state before it. Both are taken anew in this case, until
    they are of one step.

    Args:
        raw: the session.
        passengers: whose states travel.
    """

    def __init__(self, raw: Any, passengers: Passengers) -> None:
        self._raw = raw
        self._passengers = passengers
        self.travellers: Mapping[str, Any]
        """The passengers' states, as the manifest has them."""
        self.arrays: Mapping[str, Array]
        """The arrays in them."""
        self._pack()
        self.snapshot: asyncio.Future[Mapping[str, Any]] = asyncio.ensure_future(raw.snapshot())
        """The state, once it is there."""
        if self.travellers and self._step is not None:
            self.snapshot = asyncio.ensure_future(self._matching(self.snapshot))

    def _pack(self) -> None:
        self._step = getattr(self._raw, "global_step", None)
        self.travellers, self.arrays = self._passengers.pack()

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
