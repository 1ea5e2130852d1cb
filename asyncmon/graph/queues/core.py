"""What a queue does, apart from any graph: elements, who waits for them, what happens at the close.

One instance belongs to one session and lives on its event loop's thread. Nothing blocks: an operation
that cannot go ahead is a :class:`Claim`, served in the order of arrival.

An element that was taken by a run that then fails goes back to the head; one that was put by a run is
in the queue when the run has committed, and its room is reserved from before the run began to change
anything. The run itself sees what it has put at once.

There is one exception, for a run that puts more than can ever be there at once: it would wait for its
own end. What it has put by then is in the queue from then on, whatever becomes of the run, and the rest
follows as room comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from asyncmon.errors import CancelledError, InvalidArgumentError, OutOfRangeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncmon.graph.queues.order import Element, Shelf

__all__ = ["Claim", "QueueCore"]


class Claim:
    """A part of the queue that one operation of a run has or waits for: room, or elements.

    Attributes:
        owner: the run.
        count: how many are claimed.
        at_most: fewer elements are enough where no more come.
        elements: those that were taken, or that are to be put at the commit.
        shelved: those among the taken that were in the queue, and not put by the same run.
    """

    __slots__ = ("at_most", "count", "elements", "future", "owner", "shelved")

    def __init__(self, owner: Any, count: int, *, at_most: bool = False) -> None:
        self.owner = owner
        self.count = count
        self.at_most = at_most
        self.elements: list[Element] = []
        self.shelved: list[Element] = []
        self.future: asyncio.Future[None] | None = None

    def grant(self, error: Exception | None = None) -> None:
        """Tell who waits that the claim is met, or never will be."""
        if self.future is not None and not self.future.done():
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


class QueueCore:
    """A bounded queue of tuples.

    Args:
        label: what to call it in errors, ``"FIFOQueue 'name'"``.
        shelf: which element is next.
        capacity: how many elements fit; a negative number is no limit.
        min_after_dequeue: how many elements must stay until the queue is closed.
    """

    def __init__(self, label: str, shelf: Shelf, capacity: int, min_after_dequeue: int = 0) -> None:
        self._label = label
        self._shelf = shelf
        self._capacity = capacity if capacity >= 0 else float("inf")
        self._minimum = min_after_dequeue
        self._rooms: dict[Claim, None] = {}  # granted to runs that have not committed yet
        self._reserved = 0
        self._putters: deque[Claim] = deque()
        self._takers: deque[Claim] = deque()
        self._closed = False
        self._error: Exception | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing more can be put, but by those who waited already."""
        return self._closed

    def size(self, owner: Any = None) -> int:
        """Return how many elements are there, for a run: with those it has put itself."""
        own = sum(len(room.elements) for room in self._rooms if room.owner is owner)
        return len(self._shelf) + own

    # -- putting

    def reserve_nowait(self, owner: Any, count: int, *, in_parts: bool = False) -> Claim | None:
        """Return room for so many elements, or None if one would have to wait for it.

        No elements need no room, whatever the queue is like. With ``in_parts`` they may be more than
        ever fit.

        Raises:
            CancelledError: the queue is closed.
            InvalidArgumentError: it will never have as much room.
        """
        if not count:
            return Claim(owner, 0)
        if self._closed:
            raise CancelledError(f"{self._label} is closed.")
        if (1 if in_parts else count) > self._capacity:
            raise InvalidArgumentError(
                f"{count} elements can never fit into {self._label}, whose capacity is "
                f"{self._capacity}."
            )
        if self._putters or count > self._free():
            return None
        room = Claim(owner, count)
        self._grant_room(room)
        return room

    async def reserve(self, owner: Any, count: int) -> Claim:
        """Wait for room. Cancelled, it leaves nothing reserved.

        Where it would wait for the end of the run itself, the room has a count of 0: the run must
        :meth:`put` then.
        """
        room = self.reserve_nowait(owner, count)
        if room is None:
            room = Claim(owner, count)
            await self._wait(room, self._putters)
        return room

    async def put(self, owner: Any, elements: Iterable[Element]) -> Claim:
        """Wait for room, and return it filled.

        Where that would be to wait for the run's own end, what the run has filled before is put at
        once, then these elements as room comes. They stay there if the run fails.
        """
        elements = list(elements)
        room = self.reserve_nowait(owner, len(elements), in_parts=True)
        if room is not None:
            self.fill(room, elements)
            return room
        room = Claim(owner, len(elements))
        room.elements = elements
        await self._wait(room, self._putters)
        return room

    def fill(self, room: Claim, elements: Iterable[Element]) -> None:
        """Say what is to be put: seen by the run that owns the room, by others from the commit."""
        room.elements.extend(elements)
        self._serve()

    def commit(self, room: Claim) -> None:
        """Put what the room was filled with."""
        self._put_all(room)
        self._serve()

    def release(self, room: Claim) -> None:
        """Give room back, unused."""
        self._give_up(room)
        self._serve()

    def _grant_room(self, room: Claim) -> None:
        self._rooms[room] = None
        self._reserved += room.count
        room.grant()

    def _free(self) -> float:
        return self._capacity - len(self._shelf) - self._reserved

    def _put_all(self, room: Claim) -> None:
        self._give_up(room)
        for element in room.elements:
            self._shelf.put(element)
        room.elements = []

    def _put_some(self, waiting: Claim, count: int) -> None:
        for element in waiting.elements[:count]:
            self._shelf.put(element)
        del waiting.elements[:count]
        waiting.count -= count

    def _give_up(self, room: Claim) -> None:
        if room in self._rooms:
            del self._rooms[room]
            self._reserved -= room.count

    # -- taking

    def take_nowait(self, owner: Any, count: int, *, at_most: bool = False) -> Claim | None:
        """Return so many elements, or None if one would have to wait for them; one never does for none.

        Raises:
            OutOfRangeError: the queue is closed and has too few, or none with ``at_most``.
        """
        if not count:
            return Claim(owner, 0)
        own = self.size(owner) - len(self._shelf)
        there = len(self._shelf) - (0 if self._closed else self._minimum) + own
        if self._takers or (there < count and not self._exhausted(owner)):
            return None
        taken = Claim(owner, count, at_most=at_most)
        if self._serve_taker(taken):
            self._serve()
            return taken
        error = self._end(taken)
        try:
            if error is not None:
                raise error
        finally:
            del error  # it refers to this frame, and so to the run
        return taken

    async def take(self, owner: Any, count: int, *, at_most: bool = False) -> Claim:
        """Wait for elements; they leave the queue as they come. Cancelled, it puts back what it has."""
        taken = self.take_nowait(owner, count, at_most=at_most)
        if taken is None:
            taken = Claim(owner, count, at_most=at_most)
            await self._wait(taken, self._takers)
        return taken

    def put_back(self, taken: Claim) -> None:
        """Undo a take: its run has failed. What the run had put itself is gone with it."""
        self._return(taken)
        self._serve()

    def _return(self, taken: Claim) -> None:
        self._shelf.put_back(taken.shelved)
        taken.elements = []
        taken.shelved = []

    # -- closing

    def close(self, *, cancel_pending_enqueues: bool = False, error: Exception | None = None) -> None:
        """Let nothing more in. Returns at once; a second call may still cancel who waits to put.

        Args:
            cancel_pending_enqueues: those who wait to put get a ``CancelledError``; else they wait on.
            error: what takers get at the end instead of ``OutOfRangeError``.
        """
        self._closed = True
        self._error = self._error or error
        if cancel_pending_enqueues:
            self._cancel(self._putters, "Enqueue operation was cancelled")
        self._serve()

    def session_closed(self) -> None:
        """End all waiting."""
        self._closed = True
        self._cancel(self._putters, "Enqueue operation was cancelled")
        self._cancel(self._takers, "Dequeue operation was cancelled")

    def _cancel(self, claims: deque[Claim], message: str) -> None:
        while claims:
            claims.popleft().grant(CancelledError(message))

    def _exhausted(self, owner: Any) -> bool:
        """Return whether nothing more can come for a run that takes."""
        others = any(room.owner is not owner for room in self._rooms)
        return self._closed and not self._putters and not others

    def _end(self, taken: Claim) -> Exception | None:
        """Finish a take for which nothing more comes: with what there is, or an error."""
        if taken.at_most and taken.elements:
            return None
        self._return(taken)
        if self._error is not None:
            return self._error
        size = len(self._shelf)
        return OutOfRangeError(
            f"{self._label} is closed and has insufficient elements "
            f"(requested {taken.count}, current size {size})"
        )

    # -- waiting

    async def _wait(self, claim: Claim, line: deque[Claim]) -> None:
        claim.future = asyncio.get_running_loop().create_future()
        line.append(claim)
        if line is self._takers:
            self._serve()
        else:  # not at once: nothing is put by a run that is merely tried
            asyncio.get_running_loop().call_soon(self._serve)
        try:
            await claim.future
        except BaseException:
            if claim in line:
                line.remove(claim)
            self._give_up(claim)
            self._return(claim)
            self._serve()
            claim.future = None  # it may refer to the error, and that to the claim
            raise

    def _serve(self) -> None:
        """Grant all that can be granted, in the order in which it was asked for."""
        served = True
        while served:
            served = False
            while self._takers and self._serve_taker(self._takers[0]):
                self._takers.popleft().grant()
                served = True
            while self._putters and self._putters[0].count <= self._free():
                self._grant_room(self._putters.popleft())
                served = True
            if self._takers and self._exhausted(self._takers[0].owner):
                taken = self._takers.popleft()
                taken.grant(self._end(taken))
                served = True
            served = served or self._put_early()

    def _put_early(self) -> bool:
        """Put before the commit what a commit waits for. Return whether that changed anything.

        So it is where the first who waits for room would not have it though all were taken that may
        be, and every run that has room waits for more: none of them would ever end.
        """
        if not self._putters:
            return False
        first = self._putters[0]
        stay = 0 if self._closed else min(self._minimum, len(self._shelf))
        if stay + self._reserved + first.count <= self._capacity:
            return False
        waiting = {id(claim.owner) for claim in self._putters}
        if any(room.count and id(room.owner) not in waiting for room in self._rooms):
            return False
        filled = [room for room in self._rooms if room.elements]
        own = next((room for room in filled if room.owner is first.owner), None)
        ahead = next((claim for claim in self._putters if not claim.elements), None)
        if own is None and first.elements and self._free() > 0:
            self._put_some(first, int(self._free()))  # there are more
        elif len(self._shelf) > stay:
            return False  # some may be taken yet
        elif filled:
            self._put_all(own or filled[0])
        elif ahead is not None:  # room for elements that are not known yet: they are put when they are
            self._putters.remove(ahead)
            ahead.count = 0
            ahead.grant()
        else:
            return False
        return True

    def _serve_taker(self, taken: Claim) -> bool:
        """Take what there is. Return whether that is all that was asked for."""
        minimum = 0 if self._closed else self._minimum
        while len(taken.elements) < taken.count and len(self._shelf) > minimum:
            element = self._shelf.take()
            taken.elements.append(element)
            taken.shelved.append(element)
        for room in self._rooms:
            while room.owner is taken.owner and room.elements and len(taken.elements) < taken.count:
                taken.elements.append(room.elements.pop(0))
                room.count -= 1
                self._reserved -= 1
        return len(taken.elements) == taken.count
