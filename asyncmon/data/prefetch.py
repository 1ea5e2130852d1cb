"""``prefetch``: read ahead in a task beside the consumer."""

from __future__ import annotations

import asyncio

from asyncmon.data.indexed import joined
from asyncmon.data.sources import SourceStage
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
    Waiter,
    end_tasks,
    open_node,
)
from asyncmon.system.loop_budget import LoopBudget


class Prefetch(Node):
    """Up to ``depth`` elements ahead of the consumer. Not part of positions."""

    def __init__(self, above: Node, depth: int) -> None:
        self.above = (above,)
        self._depth = depth

    def __repr__(self) -> str:
        return f"{self.above[0]!r}.prefetch({self._depth})"

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        above = await open_node(self.above[0], state, epoch)
        if isinstance(above, SourceStage):
            above.prefetch(self._depth)  # it has a task or a thread already
            return above
        return _PrefetchStage(above, self._depth)


class _PrefetchStage(StageOver):
    """The last pulled elements count as held until the next pull, so at most ``depth`` are ahead."""

    def __init__(self, above: Stage, depth: int) -> None:
        self.read_ahead = max(1, depth // 4)
        super().__init__(above)
        self._depth = depth
        self._backlog = Backlog()
        self._leaving = 0  # the number returned by the last pull
        self._least = 1  # the number that the consumer waits for
        self._ended = False
        self._error: BaseException | None = None
        self._arrival = Waiter()
        self._room = Waiter()
        self._task: asyncio.Task[None] | None = None

    def mark(self) -> Mark:
        return self._backlog.mark() or self._above.mark()

    async def skip(self, count: int) -> int:
        return await self._above.skip(count)

    async def pull(self, most: int, least: int = 1) -> Chunk:
        if self._task is None:
            self._task = asyncio.create_task(self._fill(), name="prefetch")
        self._leaving = 0
        if self._free() >= self.read_ahead:
            self._room.wake()
        self._least = min(least, self.read_ahead)
        while len(self._backlog) < self._least and not self._ended:
            await self._arrival.wait()
        if not self._backlog:
            if self._error is not None:
                raise self._error
            return []
        chunk = joined(self._backlog.first(min(most, self.read_ahead)))
        self._backlog.drop(len(chunk))
        self._leaving = len(chunk)
        return chunk

    def _free(self) -> int:
        return self._depth - len(self._backlog) - self._leaving

    async def _fill(self) -> None:
        budget = LoopBudget.of_running_loop()
        try:
            while True:
                while self._free() < self.read_ahead:
                    await self._room.wait()
                mark = self._above.mark()
                chunk = await self._above.pull(min(self._free(), CHUNK))
                if not chunk:
                    break
                self._backlog.add(mark, chunk)
                if len(self._backlog) >= self._least:
                    self._arrival.wake()
                if budget.spent():
                    await budget.pause()
        except asyncio.CancelledError:
            self._error = RuntimeError("The task that prefetches was cancelled.")
            raise
        except BaseException as error:
            self._error = error
        finally:
            self._ended = True
            self._arrival.wake()

    async def aclose(self) -> None:
        await end_tasks(self._task)
        await super().aclose()
