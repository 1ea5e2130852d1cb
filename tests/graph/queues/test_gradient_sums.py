"""Accumulators in any order of runs that apply, take, commit and fail: each gradient counts once."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon.graph.execution.run import Run
from asyncmon.graph.queues.gradient_sums import Accumulator, Entry, GradientSum

ACTIONS = st.tuples(
    st.sampled_from(["apply", "apply", "take", "commit", "abort"]),
    st.integers(0, 2),  # the run
    st.integers(0, 1),  # the step of a gradient, or how many are wanted
)


class History:
    """Runs on an accumulator. Each gradient is a bit of its own, so that a sum says which are in it."""

    def __init__(self) -> None:
        self.sums = Accumulator(None)
        self.runs: dict[int, Run] = {}
        self.open: dict[int, list[tuple[int, int]]] = {}  # what runs applied: bit and step
        self.taken: dict[int, list[Entry]] = {}
        self.applied: dict[int, int] = {}  # committed gradients: bit and step
        self.given: list[int] = []  # the bits in sums that committed runs took
        self.steps = 0
        self.bit = 0

    def do(self, action: str, number: int, argument: int) -> None:
        if number not in self.runs:
            self.runs[number] = Run({}, np.zeros(2, np.uint64))
            self.open[number], self.taken[number] = [], []
        run = self.runs[number]
        if action == "apply":
            self.sums.apply(run, argument, GradientSum(np.array([1 << self.bit], np.uint64)))
            self.open[number].append((self.bit, argument))
            self.bit += 1
        elif action == "take":
            taken = self.sums.take_nowait(run, argument + 1)
            if taken is not None:
                run.on_commit(lambda: self.sums.settle(taken, committed=True))
                run.on_abort(lambda: self.sums.settle(taken, committed=False))
                assert bits(taken.total()) == taken.total().count >= argument + 1
                self.taken[number].append(taken)
        else:
            self.end(number, committed=action == "commit")

    def end(self, number: int, *, committed: bool) -> None:
        run = self.runs.pop(number)
        if committed:
            self.applied.update(self.open[number])
            self.given += [int(taken.total().values[0]) for taken in self.taken[number]]
            self.steps += len(self.taken[number])
        run.committed = committed
        run.finish()


def bits(total: GradientSum) -> int:
    return int(total.values[0]).bit_count()


@settings(max_examples=300)
@given(st.lists(ACTIONS, min_size=10, max_size=50))
def test_gradients_are_taken_once_or_are_left(actions: list[tuple[str, int, int]]) -> None:
    history = History()
    for action in actions:
        history.do(*action)
    for number in tuple(history.runs):
        history.end(number, committed=False)
    last = Run({}, np.zeros(2, np.uint64))
    left = history.sums.take_nowait(last, 1)
    found = [*history.given, int(left.total().values[0]) if left is not None else 0]
    together = 0
    for one in found:
        assert not together & one, "a gradient counts once"
        together |= one
    seen = {i for i in range(history.bit) if together >> i & 1}
    assert seen <= history.applied.keys(), "what a failed run applied is gone"
    fresh = {i for i, step in history.applied.items() if step >= history.steps}
    assert fresh <= seen, "a gradient of the last step is not lost"
