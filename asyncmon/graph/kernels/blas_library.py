"""Functions of the BLAS that numpy is linked with, which numpy itself does not offer."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

__all__ = ["find"]


def find(name: str) -> tuple[Any, type[ctypes.c_int] | type[ctypes.c_int64]] | None:
    """Return a function and the type of its integers; None where BLAS has no such function.

    The wheels of numpy come with an OpenBLAS whose names begin with ``scipy_``, and end with ``64_``
    where integers have 64 bits.
    """
    library = _library()
    for suffix, integer in (("64_", ctypes.c_int64), ("", ctypes.c_int)):
        for prefix in ("scipy_", ""):
            function = getattr(library, f"{prefix}{name}{suffix}", None)
            if function is not None:
                return function, integer
    return None


def _library() -> ctypes.CDLL | None:
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        try:
            module = importlib.import_module(name)
        except ImportError:  # numpy 1 has the second one, and numpy 2 warns of it
            continue
        try:
            return ctypes.CDLL(module.__file__)  # names in what it is linked with are found, too
        except (OSError, TypeError):
            return None
    return None
