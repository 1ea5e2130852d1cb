"""Values as text, compared with what the original printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon.graph.ops.showing import shown

MATRIX = np.array([[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("value", "summarize", "text"),
    [
        (np.float32([1, 2, 3.5, 4, 5]), 3, "[1 2 3.5...]"),
        (7, 3, "[7]"),
        (7, 0, "[...]"),
        (np.array("word", object), 3, "[word]"),
        (np.array(["a", b"b\xff"], object), 3, r"[a b\xff]"),
        (np.array([True, False]), 3, "[1 0]"),
        (np.float32(1e-9), 3, "[1e-09]"),
        (np.float32(123456.789), 3, "[123456.789]"),
        (np.float32(0.1), 3, "[0.1]"),
        (np.float64(1 / 3), 3, "[0.33333333333333331]"),
        (np.float64(0.1), 3, "[0.1]"),
        (np.float16(0.1), 3, "[0.0999755859]"),
        (np.float32([1e20, np.nan, -np.inf]), 3, "[1e+20 nan -inf]"),
        (np.zeros(0), 3, "[]"),
        (MATRIX, 10, "[[1 2][3 4]]"),
        (MATRIX, -1, "[[1 2][3 4]]"),
        (MATRIX, 3, "[[1 2][3...]...]"),
        (MATRIX, 2, "[[1 2]...]"),
        (np.arange(8).reshape(2, 2, 2), 5, "[[[0 1][2 3]][[4...]]...]"),
        (np.arange(8).reshape(2, 2, 2), 4, "[[[0 1][2 3]]...]"),
        (np.arange(8).reshape(2, 2, 2), 3, "[[[0 1][2...]]...]"),
        (MATRIX, 0, "[...]"),
        (np.zeros((2, 0)), 3, "[]"),
        (np.zeros((0, 2)), 3, "[]"),
    ],
)
def test_as_the_original_writes_it(value: Any, summarize: int, text: str) -> None:
    assert shown(value, summarize) == text
