"""Products cut into small ones are those of whole matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon.graph.products import tall_product, thin_product

RNG = np.random.default_rng(0)


@given(
    st.integers(0, 300),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([np.float32, np.float64]),
)
def test_tall_and_thin(rows: int, inner: int, columns: int, dtype: Any) -> None:
    a, b = RNG.normal(size=(rows, inner)).astype(dtype), RNG.normal(size=(inner, columns)).astype(dtype)
    out = np.full((rows, columns), 7, dtype)
    tall_product(a, b, out)
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)
    other = RNG.normal(size=(rows, columns)).astype(dtype)
    found = thin_product(a, other)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, a.T @ other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("inner", "columns"), [(700, 900), (64, 64), (3, 500)])
def test_large_ones(inner: int, columns: int) -> None:
    a, b = RNG.normal(size=(1003, inner)), RNG.normal(size=(inner, columns))
    out = np.empty((1003, columns))
    tall_product(a, b, out)
    np.testing.assert_allclose(out, a @ b)
    other = RNG.normal(size=(1003, columns))
    np.testing.assert_allclose(thin_product(a, other), a.T @ other)
