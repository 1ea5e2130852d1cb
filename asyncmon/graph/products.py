"""Products of matrices of which one is long and thin, cut into small ones.

BLAS multiplies small matrices in the calling thread, without waking its own. So threads that work on
parts of one product do not get into each other's way, nor into that of whatever else runs on the
machine: threads of BLAS spin while they wait for each other, for long where a core is wanted elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from asyncmon.graph.arrays import Array

__all__ = ["tall_product", "thin_product"]


def _limit() -> int:
    """Return up to how many multiplications BLAS does at once without threads and without packing."""
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    found = " ".join(simd.get("found", [])) + " ".join(simd.get("baseline", []))
    return 980_000 if "AVX512" in found or "X86_V4" in found else 1 << 18


_LIMIT = _limit()
_FEWEST = 8  # rows: of fewer, small products are slow


def tall_product(a: Array, b: Array, out: Array) -> None:
    """Set ``out = a @ b``, where ``a`` has many rows."""
    rows = min(_LIMIT // max(b.size, 1), 48)
    whole = len(a) - len(a) % rows if rows >= _FEWEST else 0
    if whole:
        stacked = a[:whole].reshape(-1, rows, a.shape[1])
        np.matmul(stacked, b, out=out[:whole].reshape(-1, rows, b.shape[1]))
    if whole < len(a):
        np.dot(a[whole:], b, out[whole:])


def thin_product(a: Array, b: Array) -> Array:
    """Return ``a.T @ b``, where both have many rows and few columns."""
    rows = _LIMIT // max(a.shape[1] * b.shape[1], 1)
    whole = len(a) - len(a) % rows if rows >= 4 * _FEWEST else 0
    if not whole:
        product: Array = np.dot(a.T, b)
        return product
    first = a[:whole].reshape(-1, rows, a.shape[1]).swapaxes(1, 2)
    total = np.add.reduce(np.matmul(first, b[:whole].reshape(-1, rows, b.shape[1])), axis=0)
    if whole < len(a):
        total += np.dot(a[whole:].T, b[whole:])
    return total
