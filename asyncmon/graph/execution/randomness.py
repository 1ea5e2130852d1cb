"""Random numbers that belong to the session: positions in counter-based streams, no hidden state.

Each random op has a key: its seeds, and its number in the graph. The session counts in how many runs it
drew. The numbers an op draws depend on these alone, so other ops do not change them, a run that fails
has drawn nothing, and a restored session goes on exactly where the saved one was.

The state is an array: the session's seed, the count of ops that have none yet, the count of each op.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

RngKey = tuple[int | None, int, int]
"""An op's two seeds (None in front stands for the session's seed) and its number, from 1 on."""

_MASK = (1 << 64) - 1


def generator(state: NDArray[Any], key: RngKey, iteration: int = 0) -> np.random.Generator:
    """Return the generator of one op in one run, placed at its beginning.

    Args:
        state: see the module.
        key: of the op.
        iteration: of the loop that the op is in.
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
    """Return the state after one more run, in which the ops of these numbers drew."""
    after = np.full(max(len(state), max(drew) + 2), state[1])
    after[: len(state)] = state
    for number in drew:
        after[number + 1] += np.uint64(1)
    return after
