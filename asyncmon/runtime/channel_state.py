"""The items of a session's channels in its checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Self

from asyncmon.checkpoint.packing import can_pack, own_containers
from asyncmon.errors import OutOfRangeError
from asyncmon.runtime.channel import Channel, Sent
from asyncmon.runtime.commits import Commits
from asyncmon.runtime.data_iterator import DataIterator
from asyncmon.runtime.data_parts import DataParts
from asyncmon.runtime.frontier import Frontier
from asyncmon.runtime.frontier_batch import Batch, Task
from asyncmon.runtime.pipelines.source import ReadOnce

logger = logging.getLogger(__name__)


class ChannelState:
    """The items of a channel that a checkpoint has: not received, or not consumed.

    ``receive()`` delivers an item for good. With ``sess.iterate(channel)`` it stays in the checkpoints
    until a step has consumed it, by the rule of :class:`Frontier`. After a recovery that lost that
    step, the channel gives it again.

    Args:
        channel: of the session.
        parts: of the session.
    """

    def __init__(self, channel: Channel[Any], parts: DataParts) -> None:
        self.channel = channel
        self._parts = parts
        self._source = ReadOnce(_SentItems(channel))
        # Two numbers of an item: Sent.number orders the items for ever, also in later sessions. The
        # frontier counts the items that the body receives, from 0 in each session, and so does _out.
        self._frontier: Frontier | None = None  # once it is iterated
        self._out: dict[int, Sent] = {}
        self._most_out = 16
        self._commits = Commits(parts.on_committed, parts.stops.event)
        self._is_warned = False
        channel.keeper = self

    def __repr__(self) -> str:
        return f"<items of {self.channel!r}>"

    def iterate(self, should_stop: Callable[[], bool]) -> tuple[Frontier, DataIterator[Any]]:
        """Return the frontier of the items, and an iterator over them for the body."""
        parts, frontier = self._parts, self._frontier
        if frontier is None:
            recoveries = parts.recoveries
            frontier = Frontier(self._source, recoveries.step_of_data, recoveries, rewinds=False)
            frontier.returned = self._returned
            self._frontier = frontier
        return frontier, ChannelIterator(
            self._source, should_stop, parts.stops, parts.sources, frontier, self._received
        )

    async def wait_commit(self) -> None:
        """Wait for the commit of a checkpoint with the present items. See :meth:`Commits.wait`."""
        await self._commits.wait()

    @property
    def copying(self) -> Collection[object]:
        """The copies of items that saves make in threads."""
        return self._parts.stateful.copying

    async def wait_copied(self) -> None:
        """Wait for the end of these copies."""
        await self._parts.stateful.wait_copied()

    def has_items_out(self) -> bool:
        """Return whether items are with the body that no committed step has consumed."""
        return bool(self._outstanding())

    def take_over(self, other: ChannelState) -> None:
        """Continue for a channel that a hook has made again in a recovery."""
        channel, before = self.channel, other.channel
        channel.next_number = max(channel.next_number, before.next_number)
        channel.give_back(before.take_all())
        other.close()

    def close(self) -> None:
        """End the waits for commits: the session is closed."""
        self._commits.close()

    def _received(self, sent: Sent) -> Any:
        assert self._frontier is not None, "it is iterated"
        self._out[self._frontier.newest] = sent
        if len(self._out) > self._most_out:
            self._forget_consumed()
            self._most_out = 2 * len(self._out) + 16
        return sent.item

    def _forget_consumed(self) -> None:
        # What an uncommitted step has consumed is given again if a recovery loses the step.
        needed = self._outstanding()
        if self._parts.saves():
            needed |= self._commits.still_needed(self._out).keys()
        self._out = {number: sent for number, sent in self._out.items() if number in needed}

    def _outstanding(self) -> set[int]:
        return set() if self._frontier is None else self._frontier.outstanding()

    def _returned(self, batch: Batch) -> None:
        """Put items back whose run is not repeated."""
        assert self._frontier is not None, "it is iterated"
        for number in batch.elements:
            del self._frontier.pending[number]
        self.channel.give_back(self._out.pop(number) for number in batch.elements)

    # -- the state

    @property
    def revision(self) -> int:
        """See ``StatefulMembers.revision``. A step consumes iterated items."""
        return self.channel.changes - (0 if self._frontier is None else self._frontier.taken)

    def state_dict(self) -> dict[str, Any]:
        """Return the items with their numbers and versions, as far as a checkpoint can have them."""
        return self.later_state()()

    def later_state(self) -> Callable[[], dict[str, Any]]:
        """See ``StatefulMembers.later_state``. No item is delivered before the copies are made."""
        self._forget_consumed()
        channel, step = self.channel, self._parts.recoveries.step_of_data()
        outstanding = self._outstanding()
        # The body may add to these at any time, and the arrays stay until the end of its run.
        with_body = [
            sent._replace(item=own_containers(sent.item))
            for number, sent in self._out.items()
            if number in outstanding
        ]
        taken = 0 if self._frontier is None else self._frontier.taken
        self._commits.captured(step, taken, outstanding)
        state = {"step": step, "version": channel.version, "next": channel.next_number}
        return partial(self._with_items, state, [*with_body, *channel.undelivered()])

    def _with_items(self, state: dict[str, Any], items: list[Sent]) -> dict[str, Any]:
        packable = [sent for sent in items if can_pack(sent.item)]
        if len(packable) < len(items) and not self._is_warned:
            self._is_warned = True
            wrong = next(sent.item for sent in items if not can_pack(sent.item))
            logger.warning(
                "Channel %r: checkpoints cannot have items like %.100r of the type %s, which are lost "
                "if the session ends before they are used. Send dicts, lists, tuples, strings, bytes, "
                "numbers, None, numpy arrays or tensors.",
                self.channel.name, wrong, type(wrong).__name__,
            )  # fmt: skip
        return {**state, "items": [[sent.number, sent.version, sent.item] for sent in packable]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Give the saved items again, unless a recovery has lost no step."""
        channel, frontier, step = self.channel, self._frontier, self._parts.recoveries.step_of_data()
        is_new = channel.next_number == 0
        if frontier is not None:
            frontier.load_state_dict({**frontier.state_dict(), "step": state["step"]})
        if not is_new and state["step"] == step:
            return
        self._commits.moved_back()
        back = {number: Sent(number, version, item) for number, version, item in state["items"]}
        if frontier is not None:  # and the items of a run that is not repeated
            back |= {self._out[n].number: self._out[n] for n in frontier.pending}
            back |= {sent.number: sent for sent in self._out.values() if sent.number >= state["next"]}
            frontier.pending.clear()
            self._out = {n: sent for n, sent in self._out.items() if n in frontier.held()}
        there = {sent.number for sent in (*channel.undelivered(), *self._out.values())}
        channel.next_number = max(channel.next_number, state["next"])
        channel.version = max(channel.version, state["version"])
        channel.give_back(sent for number, sent in back.items() if number not in there)

    def restart(self, step: int | None) -> None:
        """Continue in a state that is initialised again."""
        if step is not None:
            self.load_state_dict({"step": step, "version": 0, "next": 0, "items": []})


class ChannelIterator(DataIterator[Any]):
    """The iterator of ``sess.iterate(channel)``.

    Args:
        received: is called with each item in its sent form, and returns it for the body.
    """

    def __init__(
        self, source: Any, should_stop: Any, stops: Any, sources: Any, frontier: Frontier, received: Any
    ) -> None:
        super().__init__(source, should_stop, stops, sources, frontier)
        self._received = received

    async def _fetch(self, task: Task | None) -> Any:
        return self._received(await super()._fetch(task))


class _SentItems:
    def __init__(self, channel: Channel[Any]) -> None:
        self._channel = channel

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sent:
        try:
            return await self._channel.receive_sent()
        except OutOfRangeError:
            raise StopAsyncIteration from None
