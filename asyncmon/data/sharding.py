"""``shard``: every ``count``-th element, for one of several processes that read the same data."""

from __future__ import annotations

from asyncmon.data.indexed import joined
from asyncmon.data.shuffling import Shuffle
from asyncmon.data.stage import (
    CHUNK,
    Backlog,
    Chunk,
    Epoch,
    Mark,
    Node,
    Stage,
    StageOver,
    State,
    open_node,
)
from asyncmon.system.cancellation import shielded


class Shard(Node):
    """The elements of one process. Positions are those between two rounds of all processes.

    So they are the same in each process, and count the elements of all. ``passed`` is a number of
    elements after ``from``, of a position that another number of processes had saved.

    Raises:
        ValueError: the index is out of range, or a shuffle above has no seed.
    """

    kind = "shard"

    def __init__(self, above: Node, count: int, index: int) -> None:
        self.above = (above,)
        self.count = count
        self._index = index
        if not 0 <= index < count:
            raise ValueError(f"The index of {count} shards is from 0 to {count - 1}, not {index!r}.")
        if shuffle := _without_seed(above):
            raise ValueError(
                f"{shuffle!r} before a shard needs a seed, the same in all processes: each would have "
                "another order, and elements would come twice or never."
            )

    def __repr__(self) -> str:
        return f"{self.above[0]!r}.shard({self.count})"  # the same in all processes, as in positions

    def signature(self) -> State:
        return {"stage": self.kind, "count": self.count}

    def is_of_other_shards(self, state: State | None) -> bool:
        if state is None or state.get("stage") != self.kind:
            return False
        return bool(state["count"] != self.count)

    def _resharded(self, state: State, skip: int) -> State:
        passed = skip * state["count"] + state.get("passed", 0)
        return {**self.signature(), "from": state["from"], "passed": passed}

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        above = await open_node(self.above[0], state and state["from"], epoch)
        try:
            if state is not None and "passed" in state:
                await above.skip(state["passed"])  # fewer where a last batch was smaller
        except BaseException:
            await shielded(above.aclose, name="asyncmon.data closing")
            raise
        return _ShardStage(above, self.count, self._index)


class _ShardStage(StageOver):
    def __init__(self, above: Stage, count: int, index: int) -> None:
        super().__init__(above)
        self._count = count
        self._index = index
        self._backlog = Backlog()

    def mark(self) -> Mark:
        count, inner = self._count, self._backlog.mark() or self._above.mark()
        return lambda: {"stage": Shard.kind, "count": count, "from": inner()}

    async def pull(self, most: int, least: int = 1) -> Chunk:
        count, backlog = self._count, self._backlog
        wanted = max(min(most, CHUNK // count), 1) * count
        while len(backlog) < count:
            mark, missing = self._above.mark(), count - len(backlog)
            chunk = await self._above.pull(min(wanted - len(backlog), CHUNK), missing)
            if not chunk:
                return []  # without the elements of an incomplete round: all processes end at once
            backlog.add(mark, chunk)
        rounds = min(most, len(backlog) // count)
        elements: Chunk = joined(backlog.first(rounds * count))[self._index :: count]
        backlog.drop(rounds * count)
        return elements

    async def skip(self, count: int) -> int:
        return await self._above.skip(count * self._count) // self._count


def _without_seed(node: Node) -> Node | None:
    """Return a shuffle above whose seed each process draws itself, or None."""
    if isinstance(node, Shuffle) and not node.has_seed:
        return node
    return next(filter(None, map(_without_seed, node.above)), None)
