"""Arguments that are part of a node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.core.convert import renamed_argument, static_axes, static_int, static_ints


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, (3,)),
        ([1, 2], (1, 2)),
        (np.array([1, 2]), (1, 2)),
        (np.int64(3), (3,)),
        ([], ()),
        (range(2), (0, 1)),
    ],
)
def test_integers_in_any_form(value: Any, expected: Any) -> None:
    assert static_ints(value, "axis") == expected


def test_constant_tensors_and_variables_shapes() -> None:
    assert static_ints(tf.constant([1, 2]), "axis") == (1, 2)
    assert static_ints([tf.constant(1), 2], "axis") == (1, 2)
    assert static_int(tf.rank(tf.ones([2, 3])), "axis") == 2
    assert static_axes(None) is None
    with pytest.raises(ValueError, match="axis must be known when the graph is built"):
        static_int(tf.Variable(1), "axis")
    with pytest.raises(ValueError, match="axis must be one integer"):
        static_int([1, 2], "axis")
    with pytest.raises(TypeError, match="axis must be an integer"):
        static_int("1", "axis")


def test_arguments_with_two_names() -> None:
    assert renamed_argument("new", 1, "old", None) == 1
    assert renamed_argument("new", None, "old", 2) == 2
    with pytest.raises(ValueError, match="Cannot specify both 'old' and 'new'"):
        renamed_argument("new", 1, "old", 2)
