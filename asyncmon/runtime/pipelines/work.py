"""The elements of a pipeline from the source to the learner: queued, in calls, and finished."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from asyncmon.runtime.pipelines.item import Item
from asyncmon.runtime.pipelines.lease import Lease
from asyncmon.runtime.pipelines.options import Counts, Options
from asyncmon.runtime.pipelines.policy import Policy, Versions
from asyncmon.system import clock
from asyncmon.system.error_text import phrase

logger = logging.getLogger(__name__)


class Work:
    """The elements that the source has given and the learner does not have.

    Args:
        options: of the pipeline.
        versions: of the learner.
        drop: is called with the number of an element that counts as consumed.
    """

    #   entries:   queued --lease--> in calls --complete--> finished --take--> with the learner
    #                ^                  |                       |
    #                +--release, fail---+                       |
    #                +--too old---------------------------------+
    #
    #   version    None             of its start            of the oldest call
    #   counted                     _making[version]        finished, and in the heap _ready
    #   _started                    <--------------------------------->
    #
    #   Each call to make is in queue, each open one in leases. A group has one for each member, and a
    #   failed or released call of a started group is in the queue again. With order _ready is empty.

    def __init__(self, options: Options, versions: Versions, drop: Callable[[int], None]) -> None:
        self._options = options
        self._versions = versions
        self._drop = drop
        self.counts = Counts()
        self.entries: dict[int, Item] = {}
        """All elements, in the order of their numbers."""
        self.leases: dict[Lease, float] = {}
        """The calls, with the times of their start."""
        self.queue: deque[tuple[Item, int | None]] = deque()
        """The calls to make: elements, and the member of a group. Without order those of started ones
        come first."""
        self.again: deque[tuple[Item, int | None, asyncio.Future[Any]]] = deque()
        """The calls to make for items that the learner has, see ``Item.result``."""
        self.finished = 0
        # The oldest versions are taken first: the second of the three rules that bound the age.
        self._ready: list[tuple[int, int, Item]] = []
        self._making: dict[int, int] = {}
        # For the pace: the size of a batch, the steps that the body makes with one, and the versions of
        # the runs that consume the next batch and the batch that a waiting body asks for.
        self.size = 1
        self.stride = 1
        self.next_at = 0
        self.asked_at: int | None = None
        self._delivered_at: int | None = None

    @property
    def _started(self) -> int:
        return self.finished + sum(self._making.values())

    # -- calls

    def enter(self, item: Item) -> None:
        """Queue the calls of an element."""
        self.entries[item.ordinal] = item
        self.queue.extend(self._calls(item))

    def _calls(self, item: Item) -> list[tuple[Item, int | None]]:
        group = self._options.group
        return [(item, None)] if group is None else [(item, member) for member in range(group)]

    def next(self) -> Lease | None:
        """Return a lease for the next call, or None without a permit."""
        queue = self.queue
        if len(self.leases) >= self._options.workers:
            return None
        while self.again:
            item, member, answer = self.again.popleft()
            if not answer.done():  # else the learner does not wait any more
                return self._opened(item, member, answer)
        if not queue:
            return None
        item, member = queue[0]
        if item.version is None:
            most = self._most_started()
            # Finished elements keep their room. So no worker waits to hand over a result.
            if self._started >= most and not (most and self._is_due(item)):
                return None
            self._start(item)
        queue.popleft()
        return self._opened(item, member, None)

    def _opened(self, item: Item, member: int | None, answer: asyncio.Future[Any] | None) -> Lease:
        lease = Lease(item, member)
        lease.policy = Policy(self._versions)
        lease.answer = answer
        self.leases[lease] = clock.monotonic()
        return lease

    def _most_started(self) -> int:
        """Return the most started elements of which none is too old when it is consumed."""
        # The first rule for the age: no more than the following batches consume in time.
        options, now = self._options, self._versions.now
        if not options.paces:
            return options.depth
        assert options.max_age is not None, "it paces"
        following = max(now, self.next_at) if self.asked_at is None else self.asked_at
        batches = (now + options.max_age - following) // self.stride + 1  # that are in time
        return min(options.depth, self.size * max(batches, 0))

    def _is_due(self, item: Item) -> bool:
        """Return whether an ordered batch waits for an element."""
        # Later ones may have all the room: after a resume with finished results, or the release of a
        # call.
        due = islice(self.entries.values(), self.size)
        return self._options.ordered and any(one is item for one in due)

    def _start(self, item: Item) -> None:
        item.version = self._versions.now
        item.attempts += 1
        self._making[item.version] = self._making.get(item.version, 0) + 1

    def _end_making(self, item: Item) -> None:
        assert item.version is not None, "it is started"
        self._making[item.version] -= 1
        if not self._making[item.version]:
            del self._making[item.version]

    def _close(self, lease: Lease) -> bool:
        if not lease.is_open:
            return False
        lease.is_open = False
        self.counts.busy_secs += clock.monotonic() - self.leases.pop(lease)
        return True

    def complete(self, lease: Lease, value: object) -> bool:
        """Set the result of a call. Return False if it is not wanted any more."""
        if not self._close(lease):
            return False
        if lease.answer is None:
            self._set(lease, value, None)
            return True
        if is_wanted := not lease.answer.done():
            lease.answer.set_result(value)
        return is_wanted

    def _set(self, lease: Lease, value: object, error: Exception | None) -> None:
        self.counts.made += 1
        item = lease.item
        item.error = item.error or error
        if item._made(lease.member, value, lease.version):
            self._end_making(item)
            item.version = item._oldest
            self._finish(item)

    def _finish(self, item: Item) -> None:
        assert item.version is not None, "it is started"
        self.finished += 1
        if not self._options.ordered:
            heapq.heappush(self._ready, (item.version, item.ordinal, item))

    def fail(self, lease: Lease, error: Exception) -> Exception | None:
        """Record the error of a call, and return it if it is to stop the session."""
        if not self._close(lease):
            return None
        options, item = self._options, lease.item
        self.counts.failures += 1
        if lease.answer is not None:
            if not lease.answer.done():
                lease.answer.set_exception(error)
            return None
        failures = item._failures[lease.member] = item._failures.get(lease.member, 0) + 1
        if failures <= options.retries:
            item.attempts += 1
            self.queue.appendleft((item, lease.member))
        elif options.on_error == "drop":
            logger.warning("Element %d is dropped: %s", item.ordinal, phrase(error))
            self.counts.dropped += 1
            self._remove(item)
        elif options.on_error == "item":
            self._set(lease, None, error)
        else:
            item._failures.clear()  # the body may catch the error and continue
            self.queue.appendleft((item, lease.member))
            return error
        return None

    def release(self, lease: Lease) -> bool:
        """Queue a call again whose worker makes it no more. Return False if it is not wanted."""
        if not self._close(lease):
            return False
        item = lease.item
        self.counts.lost += 1
        if lease.answer is not None:
            self.again.appendleft((item, lease.member, lease.answer))
            return not lease.answer.done()
        is_idle = item._missing == self._options.members
        if is_idle and not any(one.item is item for one in self.leases):
            self._end_making(item)
            item.version = None
            self.queue = deque(call for call in self.queue if call[0] is not item)
            self._queue_again(self._calls(item))
        else:
            self._queue_again([(item, lease.member)])
        return True

    def _queue_again(self, calls: list[tuple[Item, int | None]]) -> None:
        """Queue calls of one element before those of elements that are not started."""
        started: list[tuple[Item, int | None]] = []
        if calls[0][0].version is None:  # it needs room, which started groups may have until their end
            while self.queue and self.queue[0][0].version is not None:
                started.append(self.queue.popleft())
        self.queue.extendleft(reversed([*started, *calls]))
        if self._options.ordered:  # else a later element could begin before one that is due
            self.queue = deque(sorted(self.queue, key=lambda call: call[0].ordinal))

    def _remove(self, item: Item) -> None:
        """Leave an element out for ever."""
        self._revoke(item)
        if item.version is not None and item._missing:
            self._end_making(item)
        del self.entries[item.ordinal]
        self._drop(item.ordinal)

    def _revoke(self, item: Item) -> None:
        """End the calls of an element, and drop its queued ones."""
        for lease in [lease for lease in self.leases if lease.item is item]:
            self._close(lease)
            if lease.task is not None:
                lease.task.cancel()
        if item._missing:
            self.queue = deque(call for call in self.queue if call[0] is not item)

    def stop(self) -> None:
        """End the waits of the learner for values that are made again: with the errors as before."""
        waits = [(lease.item, lease.answer) for lease in self.leases]
        for item, answer in [*waits, *((item, answer) for item, _, answer in self.again)]:
            if answer is not None and not answer.done():
                assert item.error is not None, "the value is made again for that"
                answer.set_exception(item.error)

    def clear(self) -> None:
        """Forget all elements, and end their calls: the data is moved."""
        for lease in [lease for lease in self.leases if lease.answer is None]:
            self._close(lease)
            if lease.task is not None:
                lease.task.cancel()
        self.counts.again += self._started
        self.entries, self._ready, self._making = {}, [], {}
        self.queue.clear()
        self.finished = self.next_at = 0
        self.asked_at = self._delivered_at = None

    # -- finished elements

    def add_finished(self, item: Item) -> None:
        """Add an element with its results: a saved one, or one that the learner gives back."""
        self.entries[item.ordinal] = item
        self._finish(item)

    def sort(self) -> None:
        """Restore the order of the elements after :meth:`add_finished` of earlier ones."""
        self.entries = dict(sorted(self.entries.items()))

    @property
    def is_finished(self) -> bool:
        """Whether all elements are finished."""
        return self.finished == len(self.entries)

    def learn(self) -> None:
        """Learn the steps that the body makes with a batch, now that it asks for the next one."""
        now, before = self._versions.now, self._delivered_at
        if before is not None and now > before:
            self.stride, self._delivered_at = now - before, None

    def take(self, size: int, at: int, is_last: bool) -> list[Item] | None:
        """Take a batch of finished elements for a run that begins at a version. None: wait.

        Args:
            size: the number of elements.
            at: the version.
            is_last: whether fewer elements are a batch.
        """
        if self._options.max_age is not None:
            if self._versions.now < at - self._options.max_age:
                return None  # even a new result would be too old: the runs before come first
            self._refuse_stale(at - self._options.max_age, at)
        count = self._in_order(size) if self._options.ordered else min(size, len(self._ready))
        if not count or (count < size and not is_last) or self._must_wait(size, at):
            return None
        if self._options.ordered:
            entries = iter(self.entries.values())
            batch = [next(entries) for _ in range(count)]
        else:
            batch = [heapq.heappop(self._ready)[2] for _ in range(count)]
        self.finished -= count
        self.counts.delivered += count
        self._delivered_at, self.next_at = self._versions.now, at + self.stride
        for item in batch:
            del self.entries[item.ordinal]
            assert item.version is not None, "it is finished"
            item.age = at - item.version
            self.counts.ages[item.age] = self.counts.ages.get(item.age, 0) + 1
        return batch

    def _in_order(self, size: int) -> int:
        count = 0
        for item in self.entries.values():
            if item._missing or count == size:
                break
            count += 1
        return count

    def _must_wait(self, size: int, at: int) -> bool:
        """Return whether an element in a call would be too old after this batch."""
        # The third rule for the age. By the first two this batch has a place for the element.
        options = self._options
        if not options.paces or options.ordered or not self._making:
            return False
        assert options.max_age is not None, "it paces"
        oldest = min(self._making)
        return oldest + options.max_age < at + self.stride and (
            len(self._ready) < size or heapq.nsmallest(size, self._ready)[-1][0] > oldest
        )

    def _refuse_stale(self, oldest: int, at: int) -> None:
        stale: list[Item] = []
        if self._options.ordered:
            done = (item for item in self.entries.values() if not item._missing)
            stale = [item for item in done if item.version is not None and item.version < oldest]
        else:
            while self._ready and self._ready[0][0] < oldest:
                stale.append(heapq.heappop(self._ready)[2])
        for item in stale:
            self.counts.stale += 1
            self.finished -= 1
            assert item.version is not None, "it is finished"
            item.age = at - item.version
            on_stale = self._options.on_stale
            if callable(on_stale) and on_stale(item):
                self.counts.dropped += 1
                self._remove(item)
                continue
            self.counts.again += 1
            item._begin(self._options.group)
            self._queue_again(self._calls(item))

    def drop_rest(self) -> None:
        """Leave out the finished elements that fill no batch."""
        for item in list(self.entries.values()):
            self.finished -= 1
            self._remove(item)
        self._ready = []
