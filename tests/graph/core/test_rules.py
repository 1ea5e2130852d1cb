"""Rules that several ops share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from asyncmon.graph.core import rules
from asyncmon.graph.core.shape import merge, num_elements


@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4), st.data())
def test_what_is_said_of_a_broadcast_shape_is_true(shapes: Any, data: Any) -> None:
    def forget(shape: Any) -> Any:
        if data.draw(st.integers(0, 9)) == 0:
            return None
        return tuple(d if data.draw(st.booleans()) else None for d in shape)

    x, y = shapes.input_shapes
    assert rules.broadcast(x, y) == np.broadcast_shapes(x, y)
    said = rules.broadcast(forget(x), forget(y))
    if said is not None:
        assert len(said) == len(shapes.result_shape)
        assert all(d in (None, e) for d, e in zip(said, shapes.result_shape, strict=True))


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ((None, 3), (3,), (None, 3)),
        ((None,), (1,), (None,)),
        ((None,), (4,), (4,)),
        ((None,), (None,), (None,)),
        ((1,), (None,), (None,)),
        (None, (2,), None),
        ((0,), (1,), (0,)),
    ],
)
def test_unknown_dimensions(x: Any, y: Any, expected: Any) -> None:
    assert rules.broadcast(x, y) == expected
    assert rules.broadcast(y, x) == expected


def test_shapes_that_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="must be equal, but are 2 and 3"):
        rules.broadcast((2,), (3,))
    with pytest.raises(ValueError, match="must be equal, but are 1 and 3"):
        merge((1,), (3,))
    with pytest.raises(ValueError, match="must be equal rank, but are 1 and 2"):
        merge((1,), (1, 1))
    assert merge((None, 2), (3, None)) == (3, 2)
    assert merge(None, (1,)) == merge((1,), None) == (1,)


def test_ranks_and_axes() -> None:
    assert rules.with_rank(None, 2) == (None, None)
    assert rules.with_rank_at_least(None, 2) is None
    assert rules.normalize_axis(-1, 3) == 2
    with pytest.raises(ValueError, match=r"Invalid axis 3: expected a value in \[-3, 3\)"):
        rules.normalize_axis(3, 3)


def test_counting_and_writing_shapes() -> None:
    assert num_elements((2, 3)) == 6
    assert num_elements((2, None)) is None
    assert num_elements(None) is None
    assert rules.text((2, None)) == "[2,?]"
    assert rules.text(None) == "<unknown>"
