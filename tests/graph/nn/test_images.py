"""The arguments of ops on images: strides, padding, layout."""

from __future__ import annotations

from typing import Any

import pytest

from asyncmon.graph.nn.images import check_data_format, spatial, window_padding


@pytest.mark.parametrize(
    ("value", "layout", "expected"),
    [
        (2, "NHWC", (2, 2)),
        ([3], "NHWC", (3, 3)),
        ([2, 3], "NHWC", (2, 3)),
        ([1, 2, 3, 1], "NHWC", (2, 3)),
        ([1, 1, 2, 3], "NCHW", (2, 3)),
    ],
)
def test_spatial_numbers(value: Any, layout: str, expected: Any) -> None:
    assert spatial(value, "strides", layout) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([2, 1, 1, 1], "strides must be 1 in the batch and depth dimensions"),
        ([1, 1, 1], "strides should be of length 1, 2 or 4 but was 3"),
        (0, "strides must be positive"),
    ],
)
def test_other_numbers_are_refused(value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        spatial(value, "strides", "NHWC")


def test_padding_forms() -> None:
    assert window_padding("SAME", "NHWC") == "SAME"
    assert window_padding([[0, 0], [1, 2], [3, 4], [0, 0]], "NHWC") == ((1, 2), (3, 4))
    assert window_padding([[0, 0], [0, 0], [1, 2], [3, 4]], "NCHW") == ((1, 2), (3, 4))
    wrong: list[Any] = ["FULL", "same", None, [[1, 1]], [[0, 0], [-1, 0], [0, 0], [0, 0]]]
    for padding in wrong:
        with pytest.raises(ValueError, match="padding must be 'SAME', 'VALID' or"):
            window_padding(padding, "NHWC")
    with pytest.raises(ValueError, match="Padding of the batch or depth"):
        window_padding([[1, 0], [0, 0], [0, 0], [0, 0]], "NHWC")


def test_data_formats() -> None:
    assert check_data_format(None) == "NHWC"
    with pytest.raises(ValueError, match="data_format must be"):
        check_data_format("CHWN")
