"""Bounded channels between tasks of one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from typing import Any, Generic, Literal, NamedTuple, Protocol, Self, TypeVar
from weakref import WeakSet

from asyncmon.checkpoint.packing import can_pack
from asyncmon.errors import CancelledError, OutOfRangeError, ResourceExhaustedError
from asyncmon.runtime.stop.stop import StopEvent
from asyncmon.system.fair_lock import FairLock

T = TypeVar("T")

_Task = asyncio.Task[Any]

Overflow = Literal["block", "drop_oldest", "error"]
Ack = Literal["commit"]


class Sent(NamedTuple):
    """An item of a channel, in its sent form."""

    number: int
    version: int
    item: Any


class ChannelStatistics(NamedTuple):
    """The counts of a channel so far."""

    capacity: int
    size: int
    """Items in the channel, stale ones included."""
    sent: int
    received: int
    dropped: int
    """Items that newer ones replaced."""
    stale: int
    """Items that were too old to be received."""


class Keeper(Protocol):
    """The items of a channel in the checkpoints of its session."""

    @property
    def copying(self) -> Collection[object]: ...
    async def wait_copied(self) -> None: ...
    async def wait_commit(self) -> None: ...
    def has_items_out(self) -> bool: ...


class Channel(Generic[T]):
    """A bounded queue of items, each with the version of its origin. Made by ``Coordinator.channel``.

    For workers that make data from a state that changes, such as a policy. The trainer increments
    :attr:`version`, workers send each item with the version they used, and receivers skip items that
    are too old.

    When the coordinator stops, the channel is closed: nothing more can be sent, pending sends continue,
    and its items can still be received. Cancelling a ``send`` or a ``receive`` loses no item.

    Args:
        capacity: the most items it holds, 1 or more.
        overflow: the policy of :meth:`send` on a full channel: ``"block"``, ``"drop_oldest"`` or
            ``"error"``.
        max_staleness: skip items whose version is further behind; None for no limit.
        name: for messages.

    Raises:
        ValueError: an argument has a wrong value.

    Example::

        channel = coord.channel(64, max_staleness=4)

        async def worker():
            while True:
                version = channel.version
                await channel.send(await rollout(policy), version=version)

        async for item in sess.iterate(channel):
            await sess.run(train_op, {x: item})
            channel.version += 1
    """

    def __init__(
        self,
        capacity: int,
        overflow: Overflow = "block",
        *,
        max_staleness: int | None = None,
        name: str = "channel",
    ) -> None:
        if capacity < 1:
            raise ValueError(f"A channel needs a capacity of at least 1, not {capacity!r}.")
        if overflow not in ("block", "drop_oldest", "error"):
            raise ValueError(f"overflow is 'block', 'drop_oldest' or 'error', not {overflow!r}.")
        if max_staleness is not None and max_staleness < 0:
            raise ValueError(f"max_staleness must not be negative, got {max_staleness!r}.")
        self.version = 0
        """The current version. Set by the code that changes the state."""
        self.name = name
        self.closed = False
        """Whether nothing more can be sent."""
        self._capacity = capacity
        self._overflow = overflow
        self._max_staleness = max_staleness
        self.next_number = 0
        """The number of the next item."""
        self.keeper: Keeper | None = None
        """Has the items in checkpoints, for a channel of a monitored session."""
        #   send(): _pending wait ---> _items: at most _capacity ---> receive()
        #           _sending: one waits for _room          _receiving: one waits for _arrival
        #
        #   closed: no new send. The _pending ones continue, unless they are _refused. The channel ends
        #   once there is neither an item nor a pending send.
        #
        # The first waiter of each kind waits for a change, the others for its lock. Items and room are
        # taken when a waiter resumes and not handed over, so that a cancellation cannot lose them.
        self._items: deque[Sent] = deque()
        self._sending, self._receiving = FairLock(), FairLock()
        self._room, self._arrival = asyncio.Event(), asyncio.Event()
        self._pending = 0
        self._refused = False
        self._receivers: WeakSet[_Task] = WeakSet()
        self._sent = self._received = self._dropped = self._stale = 0

    def __repr__(self) -> str:
        return f"<Channel {self.name!r}: {len(self._items)} of {self._capacity}>"

    async def send(self, item: T, version: int | None = None, *, ack: Ack | None = None) -> None:
        """Send an item. On a full channel, wait, drop the oldest item or fail, by ``overflow``.

        Args:
            item: any object.
            version: the version of its origin. Default: the current one.
            ack: ``"commit"`` waits until a checkpoint is committed that has the item, or the step that
                has consumed it. From then on it survives a kill. Cancelling this wait does not withdraw
                the item.

        Raises:
            CancelledError: the channel is closed (``am.errors.CancelledError``). With ``ack``, the
                session was closed before that commit; or it stops, and this is in a task of its
                coordinator. In such a task, this is not a failure.
            ResourceExhaustedError: it is full, with ``overflow="error"``.
            ValueError: ``ack`` has another value.
            TypeError: with ``ack``, a checkpoint cannot have the item, or the channel belongs to no
                monitored session.
        """
        if ack is not None:
            self._check_ack(ack, item)
        await self._send(item, version)
        if ack is not None and self.keeper is not None:
            await self.keeper.wait_commit()

    def _check_ack(self, ack: Ack, item: T) -> None:
        if ack != "commit":
            raise ValueError(f"send(ack=...) is None or 'commit', not {ack!r}.")
        if self.keeper is None:
            raise TypeError(
                "send(ack='commit') needs a channel of a monitored session, sess.coord.channel(): its "
                f"checkpoints have the items. {self!r} is none."
            )
        if not can_pack(item):
            raise TypeError(
                f"send(ack='commit'): a checkpoint cannot have {item!r:.100} of the type "
                f"{type(item).__name__}. It has dicts, lists, tuples, strings, bytes, numbers, None, "
                "numpy arrays and tensors."
            )

    async def _send(self, item: T, version: int | None) -> None:
        if self._overflow == "block" and not self.closed and not self._has_room():
            await self._send_with_room(item, version)
        else:
            self.send_nowait(item, version)

    def send_nowait(self, item: T, version: int | None = None) -> None:
        """Send an item without waiting; like :meth:`send` otherwise.

        Raises:
            ResourceExhaustedError: it is full, and ``overflow`` is not ``"drop_oldest"``.
        """
        if self.closed:
            raise self._closed_error()
        while not self._has_room():
            if self._overflow != "drop_oldest":
                raise ResourceExhaustedError(
                    f"Channel {self.name!r} is full: {self._capacity} items wait to be received."
                )
            self._items.popleft()
            self._dropped += 1
        self._put(item, version)

    async def receive(self) -> T:
        """Wait for the next item that is not too old.

        Raises:
            OutOfRangeError: the channel is closed and empty.
        """
        item, _version = await self.receive_versioned()
        return item

    async def receive_versioned(self) -> tuple[T, int]:
        """Wait for the next item like :meth:`receive`. Return it with its version."""
        _number, version, item = await self.receive_sent()
        return item, version

    async def receive_sent(self) -> Sent:
        """Wait for the next item like :meth:`receive`. Return it in its sent form."""
        task = asyncio.current_task()
        if task is not None:
            self._receivers.add(task)
        while True:
            sent = await self._take()
            if self._max_staleness is None or self.version - sent.version <= self._max_staleness:
                self._received += 1
                return sent
            self._stale += 1

    def _has_room(self) -> bool:
        return len(self._items) < self._capacity and not self._pending

    async def _send_with_room(self, item: T, version: int | None) -> None:
        self._pending += 1
        try:
            async with self._sending:
                while len(self._items) >= self._capacity and not self._refused:
                    self._room.clear()
                    await self._room.wait()
                if self._refused:
                    raise self._closed_error()
                self._put(item, version)
        finally:
            self._pending -= 1
            self._arrival.set()  # or the end of the data

    def _put(self, item: T, version: int | None) -> None:
        version = self.version if version is None else version
        self._items.append(Sent(self.next_number, version, item))
        self.next_number += 1
        self._sent += 1
        self._arrival.set()

    async def _take(self) -> Sent:
        keeper = self.keeper
        if self._items and not self._receiving.held and not (keeper and keeper.copying):
            return self._pop()
        async with self._receiving:
            while not self._items or (keeper and keeper.copying):
                if self._items and keeper:
                    await keeper.wait_copied()  # the receiver may write to the item
                    continue
                if self.closed and not self._pending:
                    raise OutOfRangeError(
                        f"Channel {self.name!r} is closed and has insufficient elements (requested 1, "
                        "current size 0)"
                    )
                self._arrival.clear()
                await self._arrival.wait()
            return self._pop()

    def _pop(self) -> Sent:
        self._room.set()
        return self._items.popleft()

    def _closed_error(self) -> CancelledError:
        return CancelledError(f"Channel {self.name!r} is closed.")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except OutOfRangeError:
            raise StopAsyncIteration from None

    def close(self, *, cancel_pending: bool = False) -> None:
        """Refuse further items. Twice is fine.

        Args:
            cancel_pending: whether pending sends raise ``CancelledError`` or continue.
        """
        self.closed = True
        self._refused = self._refused or cancel_pending
        self._room.set()
        self._arrival.set()

    def receivers(self) -> set[_Task]:
        """Return the running tasks that have received from the channel."""
        return {task for task in self._receivers if not task.done()}

    # -- of its session

    def undelivered(self) -> tuple[Sent, ...]:
        """Return the items that no task has received."""
        return tuple(self._items)

    def take_all(self) -> list[Sent]:
        """Remove all items, and return them."""
        items = list(self._items)
        self._items.clear()
        self._room.set()
        return items

    def give_back(self, items: Iterable[Sent]) -> None:
        """Put items back that were sent before, also above the capacity."""
        self._items = deque(sorted((*self._items, *items), key=lambda sent: sent.number))
        if self._items:
            self.next_number = max(self.next_number, self._items[-1].number + 1)
            self._arrival.set()

    @property
    def is_over(self) -> bool:
        """Whether it is closed, and all that was sent is received and consumed."""
        is_used = self.keeper is not None and self.keeper.has_items_out()
        return self.closed and not self._items and not self._pending and not is_used

    @property
    def changes(self) -> int:
        """The number of changes of its items so far."""
        return self._sent + self._received + self._dropped + self._stale

    def statistics(self) -> ChannelStatistics:
        """Return the counts so far."""
        return ChannelStatistics(
            self._capacity, len(self._items), self._sent, self._received, self._dropped, self._stale
        )


class Channels:
    """The channels of a coordinator. A stop closes them in the order in which they were made."""

    def __init__(self, stop: StopEvent, running: Set[_Task], register: Callable[[_Task], None]) -> None:
        self.is_stop: Callable[[], bool] = lambda: True
        """Whether the stop is one of the session too, and no error that it may recover from."""
        self._stop = stop
        self._running = running  # the tasks of the coordinator
        self._register = register
        self._channels: list[Channel[Any]] = []
        self._left: set[_Task | None] = set()
        self._watching = False
        self._are_left_open = False

    def __iter__(self) -> Iterator[Channel[Any]]:
        return iter(self._channels)

    def make(
        self, capacity: int, overflow: Overflow, max_staleness: int | None, name: str | None
    ) -> Channel[Any]:
        """Return a new channel, which is closed last. See ``Coordinator.channel``."""
        self._channels = [one for one in self._channels if not self._is_over(one)]
        taken = {channel.name for channel in self._channels}
        if name in taken:
            raise ValueError(f"There is another channel of the name {name!r}. Give each its own name.")
        if name is None:
            numbers = ("channel", *(f"channel_{number}" for number in range(1, len(taken) + 1)))
            name = next(one for one in numbers if one not in taken)
        channel: Channel[Any] = Channel(capacity, overflow, max_staleness=max_staleness, name=name)
        self._adopt(channel)
        return channel

    def _is_over(self, channel: Channel[Any]) -> bool:
        # A task that has received the last item may send its result to the next channel.
        return channel.is_over and not channel.receivers() & self._running

    def _adopt(self, channel: Channel[Any]) -> None:
        self._channels.append(channel)
        if not self._watching:
            self._watching = True
            self._left = set()
            self._stop.when_set(self._begin_to_close)

    def leave_open(self) -> None:
        """Close no channel at the end of this coordinator: another one replaces it."""
        self._are_left_open = True

    def move_to(self, other: Channels) -> None:
        """Move the channels to the coordinator that replaces this one.

        Channels that its hooks have made again, of the same names, are closed.
        """
        names = {channel.name for channel in other}
        left = []
        for channel in self._channels:
            if channel.name in names:
                left.append(channel)
            else:
                other._adopt(channel)
        self._channels = left
        self.release()

    def release(self) -> None:
        """Close the channels, and let them and the tasks go: the session is closed."""
        for channel in self._channels:
            channel.close(cancel_pending=True)
        self._channels, self._left = [], set()

    def _begin_to_close(self) -> None:
        if self._are_left_open or not self.is_stop():
            return
        self._watching = False  # a channel made from now on is for the next stop
        task = asyncio.get_running_loop().create_task(self._close_in_order(), name="closing channels")
        self._register(task)

    async def _close_in_order(self) -> None:
        try:
            for channel in self._channels:
                channel.close()
                # Its receivers may still send to the next one: items sent before the stop pass through
                # all channels.
                while receivers := channel.receivers() & self._running:
                    await asyncio.wait(receivers)
                self._cancel_sends(channel)
        finally:
            for channel in self._channels:
                channel.close()

    def leave(self, task: _Task | None) -> None:
        """Cancel pending sends on channels whose only receiver is this task, which ends."""
        if self._are_left_open:
            return
        if self._watching and self._stop.is_set:  # the session ends by an error after all
            self.is_stop = lambda: True
            self._begin_to_close()
        self._left = {task}
        for channel in self._channels:
            self._cancel_sends(channel)

    def _cancel_sends(self, channel: Channel[Any]) -> None:
        if not channel.receivers() - self._left:
            channel.close(cancel_pending=True)
