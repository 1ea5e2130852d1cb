"""A queue, independent of graphs: its elements, the pending requests, its close.

One instance belongs to one session and lives on its event loop's thread. No method blocks: an operation
is a :class:`Request`, granted at once or in the order of arrival.

Runs are transactions. Elements that a run took are restored to the head if it fails. Elements that a
run puts get room before the run changes anything, are visible to the run itself at once and enter the
queue at its commit. :meth:`QueueCore._put_early` has the exception.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Self

from asyncmon.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from asyncmon.graph.queues.order import Element, Order


@dataclass(slots=True, eq=False)
class Request:
    """Room or elements that an operation of a run waits for, or holds.

    It is granted if its ``future`` is None. Else await it at once: a cancellation withdraws it.

    Attributes:
        owner: the run; None after its commit.
        count: the number of elements.
        at_most: fewer elements are enough if the queue is closed.
        elements: the taken elements, or the elements to enter the queue at the commit.
        restorable: the taken elements that were not put by the same run.
        closes: it is the place of a close among the enqueues.
        future: done when the request is granted or refused; None if it never waited.
        queue: the queue that it waited for.
    """

    owner: Any
    count: int
    at_most: bool = False
    closes: bool = False
    elements: list[Element] = field(default_factory=list)
    restorable: list[Element] = field(default_factory=list)
    future: asyncio.Future[None] | None = None
    queue: QueueCore | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        if self.future is not None and self.queue is not None:
            try:
                yield from self.future.__await__()
            except BaseException:
                self.queue.withdraw(self)
                self.future = None  # it may refer to the error, and that to the request
                raise
        return self

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
        #   _putters ----> _rooms ----commit----> _order ----> _takers
        #   wait for       of runs that have      elements     wait for elements
        #   room, or are   not committed yet
        #   closes         |<------- _capacity ------->|
        #                  _reserved: the sum of their counts
        self._rooms: dict[Request, None] = {}
        self._reserved = 0
        self._putters: deque[Request] = deque()
        self._takers: deque[Request] = deque()
        self.closed = False
        self._error: Exception | None = None

    def size(self, owner: Any = None) -> int:
        """Return the number of elements; for a run, including its own."""
        return len(self._order) + self._own(owner)

    def _own(self, owner: Any) -> int:
        """Return the number of elements that a run has put and not committed."""
        rooms = self._rooms
        return sum([len(room.elements) for room in rooms if room.owner is owner]) if rooms else 0

    @property
    def capacity(self) -> int | None:
        """How many elements fit, or None for no limit."""
        return None if self._capacity == inf else int(self._capacity)

    # -- putting

    def reserve(self, owner: Any, count: int) -> Request:
        """Request room. No elements need no room, even in a closed queue.

        Where the run would wait for its own commit, the granted room has a count of 0, and the run must
        :meth:`put` its elements later.

        Raises:
            CancelledError: the queue is closed.
            InvalidArgumentError: the queue can never hold that many elements.
        """
        return self._reserve(Request(owner, count))

    def put(self, owner: Any, elements: list[Element]) -> Request:
        """Request room, to be filled. They may be more elements than the queue can hold.

        Raises:
            CancelledError: the queue is closed.
            InvalidArgumentError: the queue can hold none.
        """
        return self._reserve(Request(owner, len(elements), elements=elements))

    def _reserve(self, room: Request) -> Request:
        if not room.count:
            return room
        if self.closed:
            raise CancelledError(f"{self._label} is closed.")
        least = 1 if room.elements else room.count
        if least > self._capacity:
            where = f"{self._label}, whose capacity is {self._capacity}"
            raise InvalidArgumentError(f"{room.count} elements can never fit into {where}.")
        if self._putters or room.count > self._free():
            return self._queued(room, self._putters)
        self._grant_room(room)
        if self._takers and room.elements:
            self._serve()  # the run sees them
        return room

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

    def _give_up(self, room: Request) -> None:
        if room in self._rooms:
            del self._rooms[room]
            self._reserved -= room.count

    def _put(self, request: Request, count: int) -> None:
        for element in request.elements[:count]:
            self._order.put(element)
        del request.elements[:count]

    # -- taking

    def take(self, owner: Any, count: int, *, at_most: bool = False) -> Request:
        """Request elements, which leave the queue as they arrive. Zero elements never wait.

        Raises:
            OutOfRangeError: the queue is closed and has too few, or none with ``at_most``.
        """
        taken = Request(owner, count, at_most=at_most)
        if not count:
            return taken
        present = self._takeable()
        enough = present >= count or present + self._own(owner) >= count
        if self._takers or not (enough or self._exhausted(owner)):
            return self._queued(taken, self._takers)
        self._collect(taken)
        if not taken.is_met:
            raise self._end_of_data(taken)
        self._serve()
        return taken

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

    def reserve_close(self, owner: Any) -> Request:
        """Request the place of a close among the enqueues, after the pending ones.

        Later enqueues of other runs wait until the run closes the queue or releases the place.
        """
        place = Request(owner, 0, closes=True)
        first = self._putters[0] if self._putters else None
        if self.closed or (first is not None and first.closes and first.owner is owner):
            return place
        if first is not None:
            return self._queued(place, self._putters)
        self._putters.append(place)
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

    def _queued(self, request: Request, line: deque[Request]) -> Request:
        loop = asyncio.get_running_loop()
        request.future, request.queue = loop.create_future(), self
        line.append(request)
        if line is self._takers:
            self._serve()
        else:  # first the other nodes of the run start: nothing may have to enter early then
            loop.call_soon(self._serve)
        return request

    def withdraw(self, request: Request) -> None:
        """Undo a request that failed or is awaited no longer."""
        line = self._takers if request in self._takers else self._putters
        if request in line:
            line.remove(request)
        self._give_up(request)
        self._return(request)
        self._serve()

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
        whole = self._order.whole and taken.count <= self._capacity
        few = whole and self._takeable() + self._own(taken.owner) < taken.count
        if few and not self._exhausted(taken.owner):
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
            first.grant()
        return True

    def _put_early(self) -> bool:
        """Put elements before their commit, where no run would end otherwise. Return whether it did."""
        # Nothing can be taken, or not enough, and each run that has room waits for more: only a commit
        # could free it. The elements stay in the queue if their run fails. So do those of a run that
        # puts more than the queue can hold. A run with room for some of its elements commits, and the
        # others follow as room becomes free.
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
