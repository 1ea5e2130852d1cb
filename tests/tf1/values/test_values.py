"""Values and gradients are those of TensorFlow, which ``cases.py`` has written into a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from tests.tf1.values import cases

VALUES: dict[str, Any] = json.loads(cases.VALUES.read_text())


def compare(found: Any, wanted: Any, at: str) -> None:
    if isinstance(wanted, dict) and "values" in wanted:
        assert found["shape"] == wanted["shape"], at
        numbers = [np.array(one["values"], float) for one in (found, wanted)]
        np.testing.assert_allclose(*numbers, rtol=2e-5, atol=1e-5, err_msg=at)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), at
        for i, pair in enumerate(zip(found, wanted, strict=True)):
            compare(*pair, f"{at}[{i}]")
    else:
        assert found == wanted, at


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
@pytest.mark.usefixtures("graph")
def test_values_are_those_of_tensorflow(case: Any, evaluate: Callable[..., Any]) -> None:
    fetches = case(tf)
    runs = fetches if isinstance(fetches, cases.Runs) else [fetches]
    compare(cases.plain(evaluate(*runs)), VALUES[case.__name__], case.__name__)


def test_the_table_has_no_other_cases() -> None:
    assert set(VALUES) == {case.__name__ for case in cases.CASES}
