"""One walk over a dataset, and the position it has reached."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from asyncmon.data.stage import Mark, Node, Stage, State, open_node, skipped
from asyncmon.system.cancellation import shielded
from asyncmon.system.loop_budget import LoopBudget

_FORMAT = 1


class Position:
    """The position of the next element: a number of elements after a mark, in a pass."""

    __slots__ = ("mark", "offset", "passes")

    def __init__(self, passes: int = 0, mark: Mark | None = None) -> None:
        self.passes = passes
        self.mark = mark
        self.offset = 0

    def state_dict(self, unread: int) -> State:
        """Return the state of the position, or of an earlier one."""
        if unread not in (0, 1) or (unread and not self.offset):
            raise ValueError(
                f"unread={unread!r}: a dataset can go back by the element it gave last, by no more."
            )
        state = None if self.mark is None else skipped(self.mark, self.offset - unread)()
        return {"format": _FORMAT, "passes": self.passes, "position": state}

    @classmethod
    def from_state_dict(cls, state: Any) -> Position:
        """Return the position of a state.

        Raises:
            ValueError: the state is not one of a dataset, or of a newer asyncmon.
        """
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise ValueError(f"Expected a state that Dataset.state_dict() returned, found {state!r}.")
        inner = state["position"]
        return cls(int(state["passes"]), None if inner is None else lambda: inner)


class Walked(Protocol):
    """What an iteration needs of its dataset: the description, and the position that it moves."""

    _node: Node
    _position: Position

    async def _end_walk(self, next_walk: Iteration | None) -> None:
        """End the current iteration for another one."""

    def _close_later(self, stage: Stage) -> None:
        """Close a stage whose walk was left early and forgotten."""


class Iteration:
    """The iterator of ``async for``. Follows the dataset when a position is loaded during it.

    A cancelled ``anext`` loses no element. Leaving the loop early closes the iteration as soon as
    nothing refers to it; :meth:`aclose` does so at once and waits.
    """

    def __init__(self, dataset: Walked) -> None:
        self._dataset = dataset
        self._position: Position | None = None
        self._stage: Stage | None = None
        self._chunk: list[Any] = []
        self._at = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._budget: LoopBudget | None = None
        self._busy = False
        self._closed = False
        self._over: BaseException | None = None  # what every further call raises

    def __aiter__(self) -> Iteration:
        return self

    async def __anext__(self) -> Any:
        if self._busy:
            raise RuntimeError(
                "A task waits for an element here already; tasks share a dataset by get_next()."
            )
        self._busy = True
        try:
            if self._position is not self._dataset._position or self._at == len(self._chunk):
                await self._advance()
            elif self._budget is not None and self._budget.spent():
                await self._budget.pause()
        finally:
            self._busy = False
        element = self._chunk[self._at]
        self._chunk[self._at] = None
        self._at += 1
        assert self._position is not None
        self._position.offset = self._at
        return element

    async def aclose(self) -> None:
        """End the tasks and threads of the iteration. The position stays. Twice is fine."""
        self._closed = True
        await self._close_stage()

    async def _advance(self) -> None:
        """Get the next chunk, from the position of the dataset if that was changed."""
        if self._closed:
            raise StopAsyncIteration
        if self._position is not self._dataset._position:
            await self._open()
        elif self._over is not None:
            raise self._over
        stage, position = self._stage, self._position
        assert stage is not None
        assert position is not None
        if self._budget is not None and self._budget.spent():
            await self._budget.pause()
        mark = stage.mark()
        try:
            chunk = await stage.pull(stage.read_ahead)
        except Exception as error:
            self._over = error
            await self._close_stage()
            raise
        if not chunk:
            self._over = StopAsyncIteration()
            if self._dataset._position is position:
                self._position = self._dataset._position = Position(position.passes + 1)
            await self._close_stage()
            raise StopAsyncIteration
        position.mark, position.offset = mark, 0
        self._chunk, self._at = list(chunk), 0

    async def _open(self) -> None:
        await self._dataset._end_walk(self)
        await self._close_stage()
        self._loop = asyncio.get_running_loop()
        self._budget = LoopBudget.of_running_loop()
        position = self._dataset._position
        state = position.state_dict(0)["position"]
        self._stage = await open_node(self._dataset._node, state, (position.passes,))
        position.mark, position.offset = self._stage.mark(), 0
        self._position = position
        self._over = None
        self._chunk, self._at = [], 0

    async def _close_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            await shielded(stage.aclose, name="asyncmon.data closing")

    def __del__(self) -> None:
        stage, loop = self._stage, self._loop
        if stage is None or loop is None or loop.is_closed():
            return
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:  # in a thread without one, or after the loop has run
            here = False
        if here:
            self._dataset._close_later(stage)
        else:
            loop.call_soon_threadsafe(self._dataset._close_later, stage)
