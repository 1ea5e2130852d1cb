"""Random numbers that belong to the session: positions in a counter-based stream, no hidden state.

Each random op has a key (its seeds), each run a number (how many runs drew before it). The numbers an
op draws depend on these alone, so a run that fails has drawn nothing, and a restored session goes on
exactly where the saved one was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MASK = (1 << 64) - 1


def generator(
    state: NDArray[Any], key: tuple[int | None, int], iteration: int = 0
) -> np.random.Generator:
    """Return the generator of one op in one run, placed at its beginning.

    Args:
        state: the session's seed, and the number of runs that drew.
        key: the op's two seeds; None in front stands for the session's seed.
        iteration: of the loop that the op is in.
    """
    session_seed, runs = int(state[0]), int(state[1])
    graph_seed, op_seed = key
    first = session_seed if graph_seed is None else graph_seed & _MASK
    bits = np.random.Philox(
        key=np.array([first, op_seed & _MASK], np.uint64),
        counter=np.array([0, iteration, runs, 0], np.uint64),
    )
    return np.random.Generator(bits)


def advanced(state: NDArray[Any]) -> NDArray[Any]:
    """Return the state after one more run that drew."""
    return state + np.array([0, 1], np.uint64)
