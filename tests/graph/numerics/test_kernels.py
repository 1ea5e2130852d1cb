"""Half precision that is computed in single precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon.graph.numerics.kernels import half_in_single

SEEN: list[Any] = []


@half_in_single
def _sum(x: Any, counts: Any, out: Any = None, *, scale: int) -> Any:
    SEEN.append((x.dtype, counts.dtype))
    return np.multiply(np.add(x, counts), scale, out=out, dtype=x.dtype)


@pytest.mark.parametrize(("given", "computed"), [("e", "f"), ("f", "f"), ("d", "d")])
@pytest.mark.parametrize("position", ["out=", "after the inputs", "none"])
def test_a_kernel_sees_single_for_half_and_gives_half_back(
    given: str, computed: str, position: str
) -> None:
    SEEN.clear()
    x, counts, out = np.full(3, 0.1, given), np.arange(3, dtype=np.int32), np.empty(3, given)
    if position == "out=":
        result = _sum(x, counts, out=out, scale=3)
    elif position == "none":
        result = _sum(x, counts, scale=3)
    else:
        result = _sum(x, counts, out, scale=3)
    assert (result is out) == (position != "none")
    assert [tuple(dtype.char for dtype in seen) for seen in SEEN] == [(computed, "i")]
    exact = (x.astype(computed) + counts.astype(computed)) * np.dtype(computed).type(3)
    np.testing.assert_array_equal(result, exact.astype(given))
