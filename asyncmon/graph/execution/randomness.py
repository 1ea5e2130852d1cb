"""Random numbers that belong to the session: positions in counter-based streams, no hidden state.

Each random op has a key: its seeds, and its number in the graph. The session counts the runs
in which it drew. The numbers of an op depend on these alone, so other ops do not change them, a failed
run draws nothing, and a restored session continues exactly where the saved one was.

The state is an array: the session's seed, the count for new ops, the count of each op.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

RngKey = tuple[int | None, int, int]
"""The two seeds of an op (None first: the session's seed) and its number, from 1."""

_MASK = (1 << 64) - 1


def generator(state: NDArray[Any], key: RngKey, iteration: int = 0) -> np.random.Generator:
    """Return the generator of one op in one run, at its start.

    Args:
        state: see the module.
        key: the key of the op.
        iteration: the iteration of the loop around the op.
    """
    graph_seed, op_seed, number = key
    session_seed, runs = int(state[0]), int(state[number + 1 if number + 1 < len(state) else 1])
    first = session_seed if graph_seed is None else graph_seed & _MASK
    bits = np.random.Philox(
        key=np.array([first, op_seed & _MASK], np.uint64),
        counter=np.array([0, iteration, runs, 0], np.uint64),
    )
    return np.random.Generator(bits)


def advanced(state: NDArray[Any], drew: Collection[int]) -> NDArray[Any]:
    """Return the state after another run, in which the ops of these numbers drew."""
    after = np.full(max(len(state), max(drew) + 2), state[1])
    after[: len(state)] = state
    for number in drew:
        after[number + 1] += np.uint64(1)
    return after
