"""Bounded channels between the workers and the trainer of one event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from weakref import WeakSet

from asyncmon.errors import OutOfRangeError, ResourceExhaustedError
from asyncmon.graph.queues.core import QueueCore
from asyncmon.graph.queues.order import FirstInFirstOut

if TYPE_CHECKING:
    from typing import Self

    from asyncmon.runtime.coordinator import Coordinator

__all__ = ["Channel", "ChannelStatistics", "Channels", "Overflow"]

T = TypeVar("T")

Overflow = Literal["block", "drop_oldest", "error"]


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """What went through a channel so far."""

    capacity: int
    size: int
    """Items that are there now, stale ones included."""
    sent: int
    received: int
    dropped: int
    """Items that were pushed out by newer ones."""
    stale: int
    """Items that were too old when somebody came to receive them."""


class Channel(Generic[T]):
    """A bounded queue of items, each with the version of what made it. Made by ``Coordinator.channel``.

    For loops whose data is made by workers from a state that changes meanwhile, a policy for example:
    the trainer counts :attr:`version` up, workers say with which version they made an item, and an
    item that is too old when its turn comes is left out.

    When the coordinator stops, the channel is closed: nothing more can be sent, who waits to send
    goes on to wait, and what is there can be received; then the channel is at its end. Cancelling a
    ``send`` or a ``receive`` loses nothing.

    Example::

        channel = coord.channel(64, max_staleness=4)

        async def worker():
            while True:
                version = channel.version
                await channel.send(await rollout(policy), version=version)

        async for item in channel:
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
        """The version that is current. Set by whoever changes what the items are made from."""
        self.name = name
        self._capacity = capacity
        self._overflow = overflow
        self._max_staleness = max_staleness
        self._core = QueueCore(f"Channel {name!r}", FirstInFirstOut(), capacity)
        self._receivers: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._sent = self._received = self._dropped = self._stale = 0

    def __repr__(self) -> str:
        return f"<Channel {self.name!r}: {self._core.size()} of {self._capacity}>"

    async def send(self, item: T, version: int | None = None) -> None:
        """Put an item. On a full channel: wait, push out the oldest, or fail, as ``overflow`` says.

        Args:
            item: anything.
            version: of what it was made from. Default: the current one.

        Raises:
            CancelledError: the channel is closed (``am.errors.CancelledError``). In a worker of a
                coordinator that is stopping it is no failure.
            ResourceExhaustedError: it is full, with ``overflow="error"``.
        """
        if self._overflow == "block":
            owner = object()
            room = self._core.reserve_nowait(owner, 1) or await self._core.reserve(owner, 1)
            self._put(room, item, version)
        else:
            self.send_nowait(item, version)

    def send_nowait(self, item: T, version: int | None = None) -> None:
        """Put an item without waiting; like :meth:`send` otherwise.

        Raises:
            ResourceExhaustedError: it is full, and ``overflow`` is not ``"drop_oldest"``.
        """
        owner = object()
        room = self._core.reserve_nowait(owner, 1)
        while room is None and self._overflow == "drop_oldest":
            self._core.take_nowait(owner, 1)
            self._dropped += 1
            room = self._core.reserve_nowait(owner, 1)
        if room is None:
            raise ResourceExhaustedError(
                f"Channel {self.name!r} is full: {self._capacity} items wait to be received."
            )
        self._put(room, item, version)

    def _put(self, room: Any, item: T, version: int | None) -> None:
        self._core.fill(room, [(item, self.version if version is None else version)])
        self._core.commit(room)
        self._sent += 1

    async def receive(self) -> T:
        """Wait for the next item that is not too old, and return it.

        Raises:
            OutOfRangeError: the channel is closed and empty.
        """
        item, _version = await self.receive_versioned()
        return item

    async def receive_versioned(self) -> tuple[T, int]:
        """Like :meth:`receive`, and return its version too."""
        task = asyncio.current_task()
        if task is not None:
            self._receivers.add(task)
        while True:
            owner = object()
            taken = self._core.take_nowait(owner, 1) or await self._core.take(owner, 1)
            item, version = taken.elements[0]
            if self._max_staleness is None or self.version - version <= self._max_staleness:
                self._received += 1
                return item, version
            self._stale += 1

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except OutOfRangeError:
            raise StopAsyncIteration from None

    def close(self, *, cancel_pending: bool = False) -> None:
        """Let nothing more in. Twice is fine.

        Args:
            cancel_pending: end those who wait to send with ``CancelledError``; else they wait on.
        """
        self._core.close(cancel_pending_enqueues=cancel_pending)

    @property
    def closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._core.closed

    def receivers(self) -> set[asyncio.Task[Any]]:
        """Return the tasks that have received from it and have not ended."""
        return {task for task in self._receivers if not task.done()}

    def statistics(self) -> ChannelStatistics:
        """Return what went through so far."""
        return ChannelStatistics(
            self._capacity, self._core.size(), self._sent, self._received, self._dropped, self._stale
        )


class Channels:
    """The channels of a coordinator. At a stop they are closed in the order in which they were made.

    The next one is closed when the coordinator's tasks that receive from the one before have ended:
    what was sent before the stop goes all the way through them.
    """

    def __init__(self, coord: Coordinator, tasks: set[asyncio.Task[Any]]) -> None:
        self._coord = coord
        self._tasks = tasks  # the coordinator's, as they are at any time
        self._channels: list[Channel[Any]] = []
        self._left: set[asyncio.Task[Any] | None] = set()
        self._watching = False

    def make(
        self, capacity: int, overflow: Overflow, max_staleness: int | None, name: str
    ) -> Channel[Any]:
        """Return a new channel, the last of them."""
        channel: Channel[Any] = Channel(capacity, overflow, max_staleness=max_staleness, name=name)
        self._channels.append(channel)
        if not self._watching:
            self._watching = True
            self._left = set()
            self._coord.when_stopped(self._begin_to_close)
        return channel

    def _begin_to_close(self) -> None:
        self._watching = False  # a channel made from now on is for the next stop
        task = asyncio.get_running_loop().create_task(self._close_in_order(), name="closing channels")
        self._coord.register_task(task)

    async def _close_in_order(self) -> None:
        try:
            for channel in self._channels:
                channel.close()
                while receivers := channel.receivers() & self._tasks:
                    await asyncio.wait(receivers)
                self._release(channel)
        finally:
            for channel in self._channels:
                channel.close()

    def leave(self, task: asyncio.Task[Any] | None) -> None:
        """Let nobody wait to send where only this task, which does not any more, has received."""
        self._left = {task}
        for channel in self._channels:
            self._release(channel)

    def _release(self, channel: Channel[Any]) -> None:
        if not channel.receivers() - self._left:
            channel.close(cancel_pending=True)
