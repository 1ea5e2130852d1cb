"""``repeat``, ``take``, ``zip`` and ``interleave``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from asyncmon.data.stage import Backlog, Chunk, Epoch, Mark, Node, Stage, StageOver, State, open_node
from asyncmon.system.cancellation import shielded


class Repeat(Node):
    """Repeats of the node above. Each repeat has a number, which a shuffle above uses."""

    kind = "repeat"

    def __init__(self, above: Node, count: int | None) -> None:
        self.above = (above,)
        self._count = count

    def __repr__(self) -> str:
        return f"{self.above[0]!r}.repeat({'' if self._count is None else self._count})"

    def _resharded(self, state: State, skip: int) -> State:
        return {**state, "from": self.above[0].resharded(state["from"], skip)}

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        turn = 0 if state is None else int(state["turn"])
        above = await open_node(self.above[0], state and state["from"], (*epoch, turn))
        return _RepeatStage(self.above[0], above, self._count, epoch, turn, resumed=state is not None)


class _RepeatStage(StageOver):
    def __init__(
        self, node: Node, above: Stage, count: int | None, epoch: Epoch, turn: int, resumed: bool
    ) -> None:
        self._node = node
        super().__init__(above)
        self._count = count
        self._epoch = epoch
        self._turn = turn
        self._not_empty = resumed  # an endless repeat ends if one repeat is empty

    def mark(self) -> Mark:
        turn, above = self._turn, self._above.mark()
        return lambda: {"stage": Repeat.kind, "turn": turn, "from": above()}

    async def pull(self, most: int, least: int = 1) -> Chunk:
        while not (chunk := await self._above.pull(most)):
            if not self._not_empty or (self._count is not None and self._turn + 1 >= self._count):
                return []
            ended = self._above
            self._above = await open_node(self._node, None, (*self._epoch, self._turn + 1))
            self._turn += 1
            self._not_empty = False
            await shielded(ended.aclose, name="asyncmon.data closing")
        self._not_empty = True
        return chunk


class Take(Node):
    """The first elements of the node above."""

    kind = "take"

    def __init__(self, above: Node, count: int) -> None:
        self.above = (above,)
        self._count = count

    def __repr__(self) -> str:
        return f"{self.above[0]!r}.take({self._count})"

    def _aligned(
        self, state: State | None, later: State | None, passed: int, later_passed: int
    ) -> State | None:
        inner, later_inner = state and state["from"], later and later["from"]
        above = self.above[0].aligned(inner, later_inner, passed, later_passed)
        return {"stage": self.kind, "taken": 0 if state is None else state["taken"], "from": above}

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        above = await open_node(self.above[0], state and state["from"], epoch)
        return _TakeStage(above, 0 if state is None else int(state["taken"]), self._count)


class _TakeStage(StageOver):
    def __init__(self, above: Stage, taken: int, count: int) -> None:
        super().__init__(above)
        self._taken = taken
        self._count = count

    def mark(self) -> Mark:
        taken, above = self._taken, self._above.mark()
        return lambda: {"stage": Take.kind, "taken": taken, "from": above()}

    async def pull(self, most: int, least: int = 1) -> Chunk:
        wanted = min(most, self._count - self._taken)
        if wanted <= 0:
            return []
        chunk = await self._above.pull(wanted)
        self._taken += len(chunk)
        return chunk

    async def skip(self, count: int) -> int:
        passed = await self._above.skip(min(count, self._count - self._taken))
        self._taken += passed
        return passed


class Zip(Node):
    """Tuples of one element of each node above, up to the shortest."""

    kind = "zip"

    def __init__(self, above: tuple[Node, ...]) -> None:
        self.above = above

    def __repr__(self) -> str:
        return f"{self.above[0]!r}.zip({', '.join(map(repr, self.above[1:]))})"

    def signature(self) -> State:
        return {"stage": self.kind, "inputs": len(self.above)}

    def _states_above(self, state: State) -> Iterable[State | None]:
        return list(state["from"])

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        states = [None] * len(self.above) if state is None else state["from"]
        stages: list[Stage] = []
        try:
            for node, inner in zip(self.above, states, strict=True):
                stages.append(await open_node(node, inner, epoch))
        except BaseException:
            await shielded(_close_all, stages, name="asyncmon.data closing")
            raise
        return _ZipStage(stages)


class _ZipStage(Stage):
    def __init__(self, stages: list[Stage]) -> None:
        self._stages = stages
        self._backlogs = [Backlog() for _ in stages]

    def mark(self) -> Mark:
        marks = [
            backlog.mark() or stage.mark()
            for stage, backlog in zip(self._stages, self._backlogs, strict=True)
        ]
        return lambda: {"stage": Zip.kind, "inputs": len(marks), "from": [mark() for mark in marks]}

    async def pull(self, most: int, least: int = 1) -> Chunk:
        for stage, backlog in zip(self._stages, self._backlogs, strict=True):
            if not backlog:
                mark = stage.mark()
                chunk = await stage.pull(most)
                if not chunk:
                    return []
                backlog.add(mark, chunk)
        parts = [backlog.some(most) for backlog in self._backlogs]
        tuples = list(zip(*parts, strict=False))
        for backlog in self._backlogs:
            backlog.drop(len(tuples))
        return tuples

    async def skip(self, count: int) -> int:
        return min([await stage.skip(count) for stage in self._stages])

    async def aclose(self) -> None:
        await _close_all(self._stages)


class Interleave(Node):
    """Blocks of elements of several datasets in turn; each dataset is made from an element."""

    kind = "interleave"

    def __init__(
        self, above: Node, inner: Callable[[Any], Awaitable[Node]], cycle_length: int, block_length: int
    ) -> None:
        self.above = (above,)
        self.inner = inner
        self.cycle_length = cycle_length
        self.block_length = block_length

    def __repr__(self) -> str:
        return f"{self.above[0]!r}.interleave({self.cycle_length}, {self.block_length})"

    def signature(self) -> State:
        return {"stage": self.kind, "cycle": self.cycle_length, "block": self.block_length}

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        above = await open_node(self.above[0], state and state["from"], epoch)
        stage = _InterleaveStage(self, above, epoch)
        if state is not None:
            try:
                await stage.resume(state, self.above[0])
            except BaseException:
                await shielded(stage.aclose, name="asyncmon.data closing")
                raise
        return stage


@dataclass(slots=True, eq=False)
class _Slot:
    index: int
    outer: Mark
    """The position of the element above that the stage was made from."""
    stage: Stage


class _InterleaveStage(Stage):
    def __init__(self, node: Interleave, above: Stage, epoch: Epoch) -> None:
        self._node = node
        self._above = above
        self._epoch = epoch
        self._slots: list[_Slot | None] = [None] * node.cycle_length
        self._opened = 0
        self._turn = 0  # the slot of the current block
        self._given = 0  # elements of the block that were returned
        self._next: tuple[Mark, Any] | None = None  # the element from above whose stage is opening
        self._ended = False

    async def resume(self, state: State, outer: Node) -> None:
        """Reopen the datasets of the saved slots, from the elements above that they were made of."""
        self._opened = int(state["opened"])
        self._turn, self._given = int(state["turn"]), int(state["given"])
        for place, slot in enumerate(state["slots"]):
            if slot is None:
                continue
            above = await open_node(outer, slot["outer"], self._epoch)
            try:
                element = (await above.pull(1))[0]
            finally:
                await shielded(above.aclose, name="asyncmon.data closing")
            node = await self._node.inner(element)
            node.check(slot["inner"])
            stage = await open_node(node, slot["inner"], (*self._epoch, int(slot["index"])))
            self._slots[place] = _Slot(int(slot["index"]), partial(dict, slot["outer"]), stage)

    def mark(self) -> Mark:
        above = self._next[0] if self._next is not None else self._above.mark()
        slots = [slot and (slot.index, slot.outer, slot.stage.mark()) for slot in self._slots]
        place = {"opened": self._opened, "turn": self._turn, "given": self._given}
        fixed = {**self._node.signature(), **place}

        def resolve() -> State:
            states = [
                slot and {"index": slot[0], "outer": slot[1](), "inner": slot[2]()} for slot in slots
            ]
            return {**fixed, "slots": states, "from": above()}

        return resolve

    async def pull(self, most: int, least: int = 1) -> Chunk:
        while True:
            slot = self._slots[self._turn]
            if slot is None:
                slot = await self._open_next()
            if slot is None:
                if not any(self._slots):
                    return []
                self._advance()
                continue
            chunk = await slot.stage.pull(min(most, self._node.block_length - self._given))
            if chunk:
                self._given += len(chunk)
                if self._given == self._node.block_length:
                    self._advance()
                return chunk
            self._slots[self._turn] = None
            self._advance()
            await shielded(slot.stage.aclose, name="asyncmon.data closing")

    def _advance(self) -> None:
        self._turn = (self._turn + 1) % self._node.cycle_length
        self._given = 0

    async def _open_next(self) -> _Slot | None:
        """Open the next dataset in the current slot; None at the end."""
        if self._next is None and not self._ended:
            mark = self._above.mark()
            chunk = await self._above.pull(1)
            if chunk:
                self._next = (mark, chunk[0])
            else:
                self._ended = True
        if self._next is None:
            return None
        mark, element = self._next
        node = await self._node.inner(element)
        stage = await open_node(node, None, (*self._epoch, self._opened))
        slot = self._slots[self._turn] = _Slot(self._opened, mark, stage)
        self._opened += 1
        self._next = None
        return slot

    async def aclose(self) -> None:
        await _close_all([slot.stage for slot in self._slots if slot is not None] + [self._above])


async def _close_all(stages: list[Stage]) -> None:
    """Close all, also after an error; the first error is raised at the end."""
    first: BaseException | None = None
    for stage in stages:
        try:
            await stage.aclose()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
