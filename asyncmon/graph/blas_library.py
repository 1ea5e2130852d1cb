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
    for module in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        try:
            path = importlib.import_module(module).__file__
            library = ctypes.CDLL(path)  # names in what it is linked with are found, too
        except (ImportError, OSError, TypeError):
            continue
        for suffix, integer in (("64_", ctypes.c_int64), ("", ctypes.c_int)):
            for prefix in ("scipy_", ""):
                function = getattr(library, f"{prefix}{name}{suffix}", None)
                if function is not None:
                    return function, integer
    return None
