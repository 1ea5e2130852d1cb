"""``y = a * x + b * y`` in one pass, where numpy needs three: most of what an optimizer does."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.kernels.blas import find

if TYPE_CHECKING:
    from asyncmon.graph.kernels.arrays import Array

__all__ = ["axpby", "axpy", "xpby"]

_WORTH_IT = 1 << 15  # elements: of fewer, three calls of numpy take no longer than one through ctypes


def _function(name: str, dtype: Any, real: Any) -> Any:
    """Return a function of BLAS, if there is one that does what it should."""
    found = find(name)
    if found is None:
        return None
    function, integer = found
    pointer = ctypes.c_void_p
    function.argtypes = [integer, real, pointer, integer, real, pointer, integer]
    function.restype = None
    x, y = np.arange(9, dtype=dtype), np.ones(9, dtype)
    function(9, 2.0, x.ctypes.data, 1, 3.0, y.ctypes.data, 1)
    return function if np.array_equal(y, 2 * x + 3) else None


_FUNCTIONS = {
    np.dtype(np.float32): _function("cblas_saxpby", np.float32, ctypes.c_float),
    np.dtype(np.float64): _function("cblas_daxpby", np.float64, ctypes.c_double),
}


def axpby(a: Any, x: Array, b: Any, y: Array, scratch: Array | None = None) -> None:
    """Set ``y = a * x + b * y``, in place.

    BLAS rounds fewer times than numpy: large arrays may differ from small ones in the last bit.

    Args:
        a: a number.
        x: an array.
        b: a number.
        y: another one of its shape and dtype, which does not overlap it.
        scratch: one more, which may be ``x``: what is in it afterwards is not said.
    """
    if y.size < _WORTH_IT or not _in_one_pass(a, x, b, y):
        y *= b
        y += np.multiply(x, a, scratch)


def axpy(a: Any, x: Array, y: Array, scratch: Array | None = None) -> None:
    """Set ``y = a * x + y``, in place; see :func:`axpby`."""
    if y.size < _WORTH_IT or not _in_one_pass(a, x, 1, y):
        y += np.multiply(x, a, scratch)


def xpby(x: Array, b: Any, y: Array) -> None:
    """Set ``y = x + b * y``, in place; see :func:`axpby`."""
    if y.size < _WORTH_IT or not _in_one_pass(1, x, b, y):
        y *= b
        y += x


def _in_one_pass(a: Any, x: Array, b: Any, y: Array) -> bool:
    """Let BLAS do it, and return True, if it can."""
    function = _FUNCTIONS.get(y.dtype)
    if function is None or not (_is_like(x, y) and np.ndim(a) == np.ndim(b) == 0):
        return False
    if not (a and b):  # BLAS takes a zero for "do not look", and would lose a NaN
        return False
    function(y.size, a, _address(x), 1, b, _address(y), 1)
    return True


def _is_like(x: Any, y: Array) -> bool:
    """Return whether elements of two arrays follow each other alike: BLAS looks at no shape."""
    if x.__class__ is not np.ndarray or x.shape != y.shape or x.dtype != y.dtype:
        return False
    flat: bool = x.flags.c_contiguous and y.flags.c_contiguous
    return flat


def _address(array: Array) -> int:
    if array.flags.writeable:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    return int(array.ctypes.data)  # for any array, and five times as long
