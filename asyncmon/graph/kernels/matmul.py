"""Products of matrices, cut up where several threads of ours are to work on them.

BLAS multiplies small matrices in the calling thread, without waking its own; larger ones where it is
kept to one thread (:mod:`asyncmon.graph.kernels.blas`).
So threads that work on parts of one product do not
get into each other's way, nor into that of whatever else runs on the machine: threads of BLAS spin
while they wait for each other, for long where a core is wanted elsewhere.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from asyncmon.graph.kernels.blas import keeper
from asyncmon.graph.kernels.parallel import CORES, is_cut_up, share

if TYPE_CHECKING:
    from asyncmon.graph.kernels.arrays import Array

__all__ = ["product", "tall_product", "thin_product"]

_WORTH_IT = 1 << 23  # multiplications: fewer are done before a helper is awake
_LONG = 1 << 28  # multiplications: of more there are more pieces, for a helper may be late
_ROUND = 16  # rows or columns: pieces end where vectors do
_LATE = 1 << 21  # multiplications that the one who shares has done when a helper is awake


def _limit() -> int:
    """Return up to how many multiplications BLAS does at once without threads and without packing."""
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    found = " ".join(simd.get("found", [])) + " ".join(simd.get("baseline", []))
    return 980_000 if "AVX512" in found or "X86_V4" in found else 1 << 18


_LIMIT = _limit()
_FEWEST = 8  # rows: of fewer, small products are slow


def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """Return ``a @ b``, of matrices or of batches of them, computed into ``out`` if that is given."""
    if keeper.count and is_cut_up() and a.shape[-1] * b.shape[-1] * prod(a.shape[:-1]) >= _WORTH_IT:
        return _cut_product(a, b, out)
    if a.ndim == b.ndim == 2:
        return np.dot(a, b, out)
    return np.matmul(a, b, out=out)


def _cut_product(a: Array, b: Array, out: Array | None) -> Array:
    if out is None:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = np.empty((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    total = out.size * a.shape[-1]
    pieces = 4 * CORES if total >= _LONG else CORES
    if a.ndim == b.ndim > 2 and len(a) == len(b) >= pieces:
        cuts = _even(len(a), pieces)
        share(partial(np.matmul, a[cut], b[cut], out=out[cut]) for cut in cuts)
    elif out.shape[-2] >= out.shape[-1]:
        cuts = _slices(out.shape[-2], pieces, total)
        share(partial(np.matmul, a[..., cut, :], b, out=out[..., cut, :]) for cut in cuts)
    else:
        cuts = _slices(out.shape[-1], pieces, total)
        share(partial(np.matmul, a, b[..., cut], out=out[..., cut]) for cut in cuts)
    return out


def _slices(size: int, pieces: int, total: int) -> list[slice]:
    """Cut rows or columns, the first piece larger: who takes it begins before helpers do."""
    ahead = size * _LATE // total
    step = max(round((size - ahead) / (pieces * _ROUND)), 1) * _ROUND
    first = max(size - (pieces - 1) * step, size % step or step)
    return [slice(0, first), *(slice(i, i + step) for i in range(first, size, step))]


def _even(size: int, pieces: int) -> list[slice]:
    step = -(-size // pieces)
    return [slice(i, min(i + step, size)) for i in range(0, size, step)]


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
