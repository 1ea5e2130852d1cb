"""Products computed in parts are those of whole matrices."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon.graph.numerics.parallel import Team, split_products, using_team
from asyncmon.graph.ops import products
from asyncmon.graph.ops.products import product

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.complex64])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((130, 40), (40, 70)),
        ((30, 40), (40, 170)),
        ((5, 30, 20), (5, 20, 30)),
        ((6, 3, 20, 8), (8, 40)),
    ],
)
def test_split_products_are_whole_ones_on_any_number_of_threads(
    a: Any, b: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "SPLIT_FROM", 1000)
    monkeypatch.setattr(products, "CORES", 4)
    x, y = (RNG.normal(size=shape, scale=9).astype(dtype) for shape in (a, b))
    team = Team(3, "products")
    whole = product(x, y)
    with split_products():
        pieces = product(x, y)
        into = np.full(pieces.shape, 7, dtype)
        with using_team(team):
            assert product(x, y, into) is into
    team.close()
    assert pieces.dtype == whole.dtype == dtype
    np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(pieces, into)  # to the bit, with any helpers


def test_products_of_transposed_matrices_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "SPLIT_FROM", 1000)
    x, y = RNG.normal(size=(50, 90)), RNG.normal(size=(60, 50))
    with split_products():
        np.testing.assert_allclose(product(x.T, y.T), x.T @ y.T)


def test_small_ones_are_left_whole() -> None:
    x = RNG.normal(size=(50, 50))
    with split_products():
        np.testing.assert_array_equal(product(x, x), np.dot(x, x))


@given(st.integers(1, 5000), st.integers(1, 64), st.integers(1, 5000), st.integers(1, 5000))
def test_pieces_are_the_whole_and_the_first_one_is_not_the_smallest(
    size: int, pieces: int, other: int, inner: int
) -> None:
    total = max(size * other * inner, products.SPLIT_FROM)
    cuts = products.split_slices(size, pieces, total)
    assert cuts[0].start == 0
    assert cuts[-1].stop == size
    assert all(left.stop == right.start for left, right in pairwise(cuts))
    assert len(cuts) <= pieces
    lengths = [cut.stop - cut.start for cut in cuts]
    assert min(lengths) > 0
    if len(cuts) == pieces:
        assert lengths[0] >= max(lengths) - products.ROUND * pieces
