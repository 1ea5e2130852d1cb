"""A queue, independent of graphs: its elements, the pending requests, its close.

One instance belongs to one session and lives on its event loop's thread. No method blocks: an operation
that has to wait is a :class:`Request`, granted in the order of arrival.

Runs are transactions. Elements that a run took are restored to the head if it fails. Elements that a
run puts get room before the run changes anything, are visible to the run itself at once and enter the
queue at its commit.

There is one exception. Where runs hold all the room, each of them waits for more and only a commit
could free it, elements enter the queue before the commit, and stay there if the run fails. So do those
of a run that puts more elements than the queue can hold. A run that has room for some of its elements
only commits, and the others follow as room becomes free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from asyncmon.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from asyncmon.graph.queues.order import Element, Order


@dataclass(slots=True, eq=False)
class Request:
    """Room or elements that an operation of a run waits for, or holds.

    Attributes:
        owner: the run; None after its commit.
        count: the number of elements.
        at_most: fewer elements are enough if the queue is closed.
        elements: the taken elements, or the elements to enter the queue at the commit.
        restorable: the taken elements that were not put by the same run.
        closes: it is the place of a close among the enqueues.
        future: done when the request is granted or refused; None if it does not wait.
    """

    owner: Any
    count: int
    at_most: bool = False
    closes: bool = False
    elements: list[Element] = field(default_factory=list)
    restorable: list[Element] = field(default_factory=list)
    future: asyncio.Future[None] | None = None

    @property
    def is_met(self) -> bool:
        """Whether it has the requested elements, or those left in a closed queue."""
        found = len(self.elements)
        return found == self.count or (self.at_most and found > 0)

    def grant(self, error: Exception | None = None) -> None:
        """Wake the waiting operation, with ``error`` if given."""
        if self.future is not None and not self.future.done():
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


class QueueCore:
    """A bounded queue of tuples.

    Args:
        label: its name in errors, ``"FIFOQueue 'name'"``.
        order: holds the elements, empty.
        capacity: the maximum number of elements; negative for no limit.
        min_after_dequeue: the number of elements that must stay until the queue is closed.

    Attributes:
        spec: the specification, for its creator.
        closed: whether nothing more can be put, except by requests that wait already.
    """

    def __init__(
        self,
        label: str,
        order: Order,
        capacity: int,
        min_after_dequeue: int = 0,
        spec: Any = None,
    ) -> None:
        self.spec = spec
        self._label = label
        self._order = order
        self._capacity = capacity if capacity >= 0 else inf
        self._minimum = min_after_dequeue
        self._rooms: dict[Request, None] = {}  # granted to runs that have not committed yet
        self._reserved = 0  # the sum of their counts
        self._putters: deque[Request] = deque()
        self._takers: deque[Request] = deque()
        self.closed = False
        self._error: Exception | None = None

    def size(self, owner: Any = None) -> int:
        """Return the number of elements; for a run, including its own."""
        return len(self._order) + sum(len(r.elements) for r in self._rooms if r.owner is owner)

    @property
    def capacity(self) -> int | None:
        """How many elements fit, or None for no limit."""
        return None if self._capacity == inf else int(self._capacity)

    # -- putting

    def reserve_nowait(self, owner: Any, count: int, *, in_parts: bool = False) -> Request | None:
        """Return room for ``count`` elements, or None if that would have to wait.

        No elements need no room, even in a closed queue. With ``in_parts``, more elements are allowed
        than the queue can hold.

        Raises:
            CancelledError: the queue is closed.
            InvalidArgumentError: the queue can never hold that many elements.
        """
        room = Request(owner, count)
        if not count:
            return room
        if self.closed:
            raise CancelledError(f"{self._label} is closed.")
        if (1 if in_parts else count) > self._capacity:
            where = f"{self._label}, whose capacity is {self._capacity}"
            raise InvalidArgumentError(f"{count} elements can never fit into {where}.")
        if self._putters or count > self._free():
            return None
        self._grant_room(room)
        return room

    async def reserve(self, owner: Any, count: int) -> Request:
        """Wait for room. A cancelled call reserves nothing.

        Where the run would wait for its own commit, the room has a count of 0, and the run must
        :meth:`put` its elements later.
        """
        room = self.reserve_nowait(owner, count)
        return room or await self._wait(Request(owner, count), self._putters)

    async def put(self, owner: Any, elements: Iterable[Element]) -> Request:
        """Wait for room, and return it filled. They may be more elements than the queue can hold."""
        elements = list(elements)
        room = self.reserve_nowait(owner, len(elements), in_parts=True)
        if room is not None:
            self.fill(room, elements)
            return room
        return await self._wait(Request(owner, len(elements), elements=elements), self._putters)

    def fill(self, room: Request, elements: Iterable[Element]) -> None:
        """Add the elements that enter the queue at the commit. The run that owns the room sees them."""
        room.elements.extend(elements)
        self._serve()

    def commit(self, room: Request) -> None:
        """Put the elements of a room into the queue, and give the room back.

        Where they are more than the room, the rest enters the queue before all that waits for room.
        """
        self._put(room, room.count)
        self._give_up(room)
        if room.elements:
            self._putters.appendleft(Request(None, len(room.elements), elements=room.elements))
        self._serve()

    def release(self, room: Request) -> None:
        """Give room back. Its run has failed, if there are elements left."""
        self._give_up(room)
        self._serve()

    def _free(self) -> float:
        return self._capacity - len(self._order) - self._reserved

    def _grant_room(self, room: Request) -> None:
        self._rooms[room] = None
        self._reserved += room.count
        room.grant()

    def _give_up(self, room: Request) -> None:
        if room in self._rooms:
            del self._rooms[room]
            self._reserved -= room.count

    def _put(self, request: Request, count: int) -> None:
        for element in request.elements[:count]:
            self._order.put(element)
        del request.elements[:count]

    # -- taking

    def take_nowait(self, owner: Any, count: int, *, at_most: bool = False) -> Request | None:
        """Return ``count`` elements, or None if that would have to wait. Zero elements never wait.

        OutOfRangeError if the queue is closed and has too few, or none with ``at_most``.
        """
        taken = Request(owner, count, at_most=at_most)
        if not count:
            return taken
        own = self.size(owner) - len(self._order)
        enough = self._takeable() + own >= count
        if self._takers or not (enough or self._exhausted(owner)):
            return None
        self._collect(taken)
        if not taken.is_met:
            raise self._end_of_data(taken)
        self._serve()
        return taken

    async def take(self, owner: Any, count: int, *, at_most: bool = False) -> Request:
        """Wait for elements, which leave the queue as they arrive. A cancelled call restores them."""
        taken = self.take_nowait(owner, count, at_most=at_most)
        return taken or await self._wait(Request(owner, count, at_most=at_most), self._takers)

    def restore(self, taken: Request) -> None:
        """Undo a take, because its run has failed. What the run had put itself is gone."""
        self._return(taken)
        self._serve()

    def _takeable(self) -> int:
        return len(self._order) - (0 if self.closed else self._minimum)

    def _collect(self, taken: Request) -> None:
        """Take present elements first, then the run's own elements."""
        found = min(taken.count - len(taken.elements), self._takeable())
        if found > 0:
            take = self._order.take
            elements = [take() for _ in range(found)]
            taken.restorable += elements
            taken.elements += elements
        for room in self._rooms:
            while room.owner is taken.owner and room.elements and len(taken.elements) < taken.count:
                taken.elements.append(room.elements.pop(0))
                if room.count:
                    room.count -= 1
                    self._reserved -= 1

    def _return(self, taken: Request) -> None:
        self._order.restore(taken.restorable)
        taken.elements = []
        taken.restorable = []

    # -- closing

    def close_nowait(self, owner: Any) -> Request | None:
        """Return the place of a close among the enqueues, or None if enqueues are pending.

        Later enqueues of other runs wait until the run closes the queue or releases the place.
        """
        place = Request(owner, 0, closes=True)
        first = self._putters[0] if self._putters else None
        if self.closed or (first is not None and first.closes and first.owner is owner):
            return place
        if first is not None:
            return None
        self._putters.append(place)
        return place

    async def wait_to_close(self, owner: Any) -> Request:
        """Wait for the pending enqueues, and return the place of a close. See :meth:`close_nowait`."""
        place = self.close_nowait(owner)
        if place is None:
            place = await self._wait(Request(owner, 0, closes=True), self._putters)
        return place

    def release_place(self, place: Request) -> None:
        """Undo a close whose run has failed."""
        if place in self._putters:
            self._putters.remove(place)
            self._serve()

    def close(
        self,
        place: Request | None = None,
        *,
        cancel_pending_enqueues: bool = False,
        error: Exception | None = None,
    ) -> None:
        """Let nothing more in. Returns at once. A second call may still cancel pending enqueues.

        Args:
            place: of the close; enqueues behind it fail with ``CancelledError``.
            cancel_pending_enqueues: requests for room fail with ``CancelledError``, else they stay.
            error: raised at the end of the data instead of ``OutOfRangeError``.
        """
        self.closed = True
        self._error = self._error or error
        waiting = list(self._putters)
        self._putters.clear()
        is_before = place in waiting
        for request in waiting:
            is_before = is_before and request is not place
            if request.closes:
                request.grant()
            elif cancel_pending_enqueues:
                request.grant(CancelledError("Enqueue operation was cancelled"))
            elif is_before or place not in waiting:
                self._putters.append(request)
            else:
                request.grant(CancelledError(f"{self._label} is closed."))
        self._serve()

    def session_closed(self) -> None:
        """Cancel all requests that wait."""
        self.closed = True
        self._cancel(self._putters, "Enqueue operation was cancelled")
        self._cancel(self._takers, "Dequeue operation was cancelled")

    def _cancel(self, waiting: deque[Request], message: str) -> None:
        while waiting:
            waiting.popleft().grant(CancelledError(message))

    def _exhausted(self, owner: Any) -> bool:
        """Return whether no more elements can arrive for a run."""
        first = self._putters[0] if self._putters else None
        if first is not None and first.closes and first.owner is owner:
            if self._next_putter() is not None:
                return False
        elif not self.closed or first is not None:
            return False
        return all(room.owner is owner for room in self._rooms)

    def _end_of_data(self, taken: Request) -> Exception:
        """Undo a take for which no more elements arrive, and return its error."""
        self._return(taken)
        return self._error or OutOfRangeError(
            f"{self._label} is closed and has insufficient elements "
            f"(requested {taken.count}, current size {len(self._order)})"
        )

    # -- waiting

    async def _wait(self, request: Request, line: deque[Request]) -> Request:
        loop = asyncio.get_running_loop()
        request.future = loop.create_future()
        line.append(request)
        if line is self._takers:
            self._serve()
        else:  # a run that is only tried, and given up where it waits, must put nothing early
            loop.call_soon(self._serve)
        try:
            await request.future
        except BaseException:
            if request in line:
                line.remove(request)
            self._give_up(request)
            self._return(request)
            self._serve()
            request.future = None  # it may refer to the error, and that to the request
            raise
        return request

    def _serve(self) -> None:
        """Grant all requests that can be granted, in the order of arrival."""
        if not self._takers and not self._putters:
            return
        while self._serve_taker() or self._serve_putter() or self._put_early():
            pass

    def _serve_taker(self) -> bool:
        if not self._takers:
            return False
        taken = self._takers[0]
        if self._order.whole and taken.count <= self._capacity and not self._exhausted(taken.owner):
            own = self.size(taken.owner) - len(self._order)
            if self._takeable() + own < taken.count:
                return False
        self._collect(taken)
        if len(taken.elements) < taken.count and not self._exhausted(taken.owner):
            return False
        self._takers.popleft()
        taken.grant(None if taken.is_met else self._end_of_data(taken))
        return True

    def _next_putter(self) -> Request | None:
        """Return the first pending request; behind a close, only one of the same run."""
        first = self._putters[0] if self._putters else None
        if first is None or not first.closes or not (first.future is None or first.future.done()):
            return first
        own = [one for one in self._putters if one.owner is first.owner and one is not first]
        return own[0] if own else None

    def _serve_putter(self) -> bool:
        first, free = self._next_putter(), self._free()
        if first is None:
            return False
        if first.closes:  # its place stays until the run ends
            if first is not self._putters[0]:
                self._putters.remove(first)
            first.grant()
            return True
        if first.owner is None and 0 < free < first.count:  # its run has committed
            self._put(first, int(free))
            first.count = len(first.elements)
            return True
        if first.count > free:
            return False
        self._putters.remove(first)
        if first.owner is None:
            self._put(first, first.count)
        else:
            self._grant_room(first)
        return True

    def _put_early(self) -> bool:
        """Put elements before their commit, where no run would end otherwise. Return whether it did.

        That is where nothing can be taken, or not enough, and each run that has room waits for more.
        """
        first, free = self._next_putter(), self._free()
        if first is None or (self._takeable() > 0 and not self._takers):
            return False
        waiting = {id(request.owner) for request in self._putters}
        if any(room.count and id(room.owner) not in waiting for room in self._rooms):
            return False
        filled = [room for room in self._rooms if room.elements]
        own = next((room for room in filled if room.owner is first.owner), None)
        ahead = [first] if self._putters[0].closes else self._putters
        unfilled = next((one for one in ahead if not one.elements and not one.closes), None)
        if own is None and first.elements and free > 0:
            self._put(first, int(free))
            first.count = len(first.elements)
        elif filled:
            room = own or filled[0]
            self._put(room, len(room.elements))
            self._give_up(room)
        elif unfilled is not None:  # its run puts the elements when they are known
            self._putters.remove(unfilled)
            unfilled.count = 0
            unfilled.grant()
        else:
            return False
        return True
