"""Where windows lie."""

from __future__ import annotations

from typing import Any

import pytest

from asyncmon.graph.numerics.windows import Windows, output_sizes


@pytest.mark.parametrize(
    ("size", "window", "stride", "padding", "expected"),
    [
        (5, 3, 1, "SAME", 5),
        (5, 3, 2, "SAME", 3),
        (5, 3, 1, "VALID", 3),
        (5, 3, 2, "VALID", 2),
        (5, 3, 2, ((1, 2), (1, 2)), 3),
        (None, 3, 2, "SAME", None),
        (0, 3, 2, "SAME", 0),
    ],
)
def test_how_many_windows_fit(size: Any, window: int, stride: int, padding: Any, expected: Any) -> None:
    found = output_sizes((size, size), (window, window), (stride, stride), padding)
    assert found == [expected, expected]


def test_a_window_larger_than_the_input() -> None:
    with pytest.raises(ValueError, match="Negative dimension size caused by subtracting 3 from 2"):
        output_sizes((5, 2), (3, 3), (1, 1), "VALID")


def test_the_padding_of_same_goes_after_where_it_is_odd() -> None:
    windows = Windows((1, 5, 6, 1), (2, 3), (2, 2), "SAME")
    assert windows.counts == (3, 3)
    assert windows.around == ((0, 1), (0, 1))
