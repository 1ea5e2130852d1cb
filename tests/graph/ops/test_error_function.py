"""The error function against the C library's, digit by digit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asyncmon.graph.core.op import table

erf: Any = table["Erf"].kernel
erfc: Any = table["Erfc"].kernel

X = np.concatenate([np.linspace(-6, 6, 4001), [0.0, -0.0, 1.0, -1.0, 1e-300, 1e-8, 30.0, -30.0]])


def test_erf_in_double_precision() -> None:
    np.testing.assert_allclose(erf(X), [math.erf(x) for x in X], rtol=1e-14, atol=0)


def test_erfc_keeps_its_digits_in_the_tail() -> None:
    x = X[X < 26]
    np.testing.assert_allclose(erfc(x), [math.erfc(v) for v in x], rtol=1e-13, atol=0)


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1e-6), (np.float16, 1e-3)])
def test_lower_precisions_stay_what_they_are(dtype: type, error: float) -> None:
    x = X.astype(dtype)
    found = erf(x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, [math.erf(float(v)) for v in x], atol=error, rtol=0)
    assert erfc(x).dtype == dtype


def test_what_is_not_a_number_stays_so() -> None:
    with np.errstate(all="ignore"):
        assert np.isnan(erf(np.array([np.nan]))[0])
        assert np.isnan(erf(np.array([np.nan], "f"))[0])
        np.testing.assert_array_equal(erf(np.array([np.inf, -np.inf])), [1, -1])
