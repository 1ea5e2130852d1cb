"""Products of matrices, split where several threads of the team are to work on them.

BLAS multiplies small matrices in the calling thread, and larger ones too where it is single-threaded
(:mod:`asyncmon.graph.numerics.blas`). So threads that compute parts of one product do not disturb each
other, nor the rest of the machine.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.numerics.parallel import CORES, is_splitting, parallel_for
from asyncmon.graph.numerics.replaced import replaceable

_WORTH_IT = 1 << 23  # multiplications: fewer are done before another thread is awake
_LONG = 1 << 28  # multiplications: of more there are more parts, for a thread may be late
_ROUND = 16  # rows or columns: parts end where vectors do
_LATE = 1 << 21  # multiplications that the calling thread has done when another is awake


@replaceable
def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """Return ``a @ b``, of matrices or of batches of them, computed into ``out`` if that is given."""
    if is_splitting() and a.shape[-1] * b.shape[-1] * prod(a.shape[:-1]) >= _WORTH_IT:
        return _split_product(a, b, out)
    if a.ndim == b.ndim == 2:
        return np.dot(a, b, out)
    return np.matmul(a, b, out=out)


def _split_product(a: Array, b: Array, out: Array | None) -> Array:
    if out is None:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = np.empty((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    total = out.size * a.shape[-1]
    parts = 4 * CORES if total >= _LONG else CORES
    if a.ndim == b.ndim > 2 and len(a) == len(b) >= parts:
        slices = _even(len(a), parts)
        parallel_for(partial(np.matmul, a[part], b[part], out=out[part]) for part in slices)
    elif out.shape[-2] >= out.shape[-1]:
        slices = _slices(out.shape[-2], parts, total)
        parallel_for(partial(np.matmul, a[..., part, :], b, out=out[..., part, :]) for part in slices)
    else:
        slices = _slices(out.shape[-1], parts, total)
        parallel_for(partial(np.matmul, a, b[..., part], out=out[..., part]) for part in slices)
    return out


def _slices(size: int, parts: int, total: int) -> list[slice]:
    """Split rows or columns, the first part larger: the calling thread begins before others do."""
    ahead = size * _LATE // total
    step = max(round((size - ahead) / (parts * _ROUND)), 1) * _ROUND
    first = max(size - (parts - 1) * step, size % step or step)
    return [slice(0, first), *(slice(i, i + step) for i in range(first, size, step))]


def _even(size: int, parts: int) -> list[slice]:
    step = -(-size // parts)
    return [slice(i, min(i + step, size)) for i in range(0, size, step)]
