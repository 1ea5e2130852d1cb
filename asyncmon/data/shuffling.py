"""``shuffle``: draw elements from a buffer in random order, reproducible by the seed.

The order depends only on the seed, the pass and the position in it, not on how many
elements are pulled at once. A position is therefore small: the numbers of the elements in the buffer
in a recent snapshot, and the count of elements since. Resuming reads these elements again.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

import numpy as np

from asyncmon.data.stage import (
    CHUNK,
    Chunk,
    Epoch,
    Mark,
    Node,
    Stage,
    StageOver,
    State,
    mark_before,
    open_node,
    skipped,
    too_short,
)
from asyncmon.system.clock import random_seed
from asyncmon.system.files import in_thread
from asyncmon.system.loop_budget import LoopBudget

_TAIL = 2**32  # the segment number of the last draw of a pass, out of reach of the others

_LONG = 20_000  # a permutation longer than this is drawn in a thread


class Shuffle(Node):
    """A buffer; each new element replaces a random one, which is returned."""

    kind = "shuffle"

    def __init__(self, above: Node, buffer: int, seed: int | None) -> None:
        self.above = (above,)
        self._buffer = buffer
        self._given_seed = seed
        self._seed = seed if seed is not None else random_seed()

    @property
    def has_seed(self) -> bool:
        """Whether the order is the same in each process."""
        return self._given_seed is not None

    def __repr__(self) -> str:
        seed = "" if self._given_seed is None else f", seed={self._given_seed}"
        return f"{self.above[0]!r}.shuffle({self._buffer}{seed})"

    def signature(self) -> State:
        chosen = {} if self._given_seed is None else {"seed": self._given_seed}
        return {"stage": self.kind, "buffer": self._buffer, **chosen}

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        if state is not None:  # without a given seed, later passes use the seed of the saved run
            self._seed = int(state["seed"])
        above = await open_node(self.above[0], state and state["from"], epoch)
        stage = _ShuffleStage(above, self._buffer, self._seed, epoch)
        if state is not None:
            stage.resume(state)
        return stage


class _ShuffleStage(StageOver):
    """Elements are numbered from the first one from above; slots hold these numbers."""

    #   from above --_came--> an element takes the slot _draws[_used], whose element is returned
    #   _slots      the elements in the buffer        _numbers   theirs
    #   _segment    the next one, of CHUNK draws from a generator of its own
    #   _tail       after the last element from above: the slots that are left, in reverse
    #   a position  _snapshot, the numbers at the start of a segment, and _since, returned since

    def __init__(self, above: Stage, buffer: int, seed: int, epoch: Epoch) -> None:
        super().__init__(above)
        self._buffer = buffer
        self._seed = seed
        self._epoch = epoch
        self._slots: list[Any] = []
        self._numbers = array("q")
        self._came = 0
        self._marks: deque[tuple[int, Mark]] = deque()  # the number at which each chunk began
        self._segment = 0
        self._draws: list[int] = []
        self._used = 0
        self._tail: list[int] | None = None
        self._resume_at = 0  # after resuming: earlier elements only fill slots
        self._snapshot = self._take_snapshot()
        self._since = 0

    def resume(self, state: State) -> None:
        """Resume from a snapshot. Its slots are filled again at the first pull."""
        self._segment = int(state["segment"])
        self._resume_at = int(state["next"])
        self._numbers = array("q", [int(number) for number in state["slots"]])
        self._slots = [None] * len(self._numbers)
        self._snapshot = lambda: state

    def mark(self) -> Mark:
        return skipped(self._snapshot, self._since)

    async def pull(self, most: int, least: int = 1) -> Chunk:
        if self._came < self._resume_at:
            await self._read_slots()
        if self._tail is None:
            await self._fill()
        if self._tail is None:
            if self._used == len(self._draws):
                self._next_segment()
            if elements := await self._come(min(most, len(self._draws) - self._used)):
                return self._exchange(elements)
            self._tail = await self._draw_tail()
        leaving = self._tail[-most:]
        del self._tail[-most:]
        leaving.reverse()
        self._since += len(leaving)
        return [self._slots[slot] for slot in leaving]

    async def _come(self, most: int) -> Chunk:
        mark = self._above.mark()
        chunk = await self._above.pull(min(most, CHUNK))
        if chunk:
            self._marks.append((self._came, mark))
            self._came += len(chunk)
        return chunk

    async def _fill(self) -> None:
        budget = LoopBudget.of_running_loop()
        while len(self._slots) < self._buffer:
            first = self._came
            if not (chunk := await self._come(self._buffer - len(self._slots))):
                self._tail = await self._draw_tail()
                return
            self._slots += chunk
            self._numbers.extend(range(first, self._came))
            if budget.spent():
                await budget.pause()

    async def _read_slots(self) -> None:
        slot_of = {number: slot for slot, number in enumerate(self._numbers)}
        while self._came < self._resume_at:
            first = self._came
            if not (chunk := await self._come(self._resume_at - self._came)):
                raise too_short("elements of its shuffle buffer were missing")
            for number, element in enumerate(chunk, first):
                if (slot := slot_of.get(number)) is not None:
                    self._slots[slot] = element

    def _exchange(self, elements: Chunk) -> list[Any]:
        leaving: list[Any] = []
        slots, numbers, number = self._slots, self._numbers, self._came - len(elements)
        for slot, element in zip(self._draws[self._used :], elements, strict=False):
            leaving.append(slots[slot])
            slots[slot] = element
            numbers[slot] = number
            number += 1
        self._used += len(leaving)
        self._since += len(leaving)
        return leaving

    def _next_segment(self) -> None:
        if self._since >= max(self._buffer, CHUNK):
            self._snapshot = self._take_snapshot()
            self._since = 0
        self._draws = self._random(self._segment).integers(0, self._buffer, CHUNK).tolist()
        self._used = 0
        self._segment += 1

    async def _draw_tail(self) -> list[int]:
        draw, count = self._random(_TAIL).permutation, len(self._slots)
        slots: list[int] = (await in_thread(draw, count) if count > _LONG else draw(count)).tolist()
        return slots

    def _random(self, segment: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *self._epoch, segment])

    def _take_snapshot(self) -> Mark:
        first = int(np.asarray(self._numbers).min()) if self._numbers else self._came
        above = mark_before(first, self._marks, self._above)
        fixed = {
            "stage": Shuffle.kind,
            "buffer": self._buffer,
            "seed": self._seed,
            "segment": self._segment,
            "slots": np.array(self._numbers) - first,
            "next": self._came - first,
        }
        return lambda: {**fixed, "from": above()}
