"""Element types: their names in files and the layout of their bytes.

=================  ==============================  =====================================
name (manifest)    in the tensor file              numpy
=================  ==============================  =====================================
bool               ``BOOL``                        ``bool``
int8 ... uint64    ``I8`` ... ``U64``              the same name
float16 ... 64     ``F16`` ``F32`` ``F64``         the same name
bfloat16           ``BF16``                        ``ml_dtypes.bfloat16``, see below
float8_e4m3fn      ``F8_E4M3``                     ``ml_dtypes.float8_e4m3fn``
float8_e5m2        ``F8_E5M2``                     ``ml_dtypes.float8_e5m2``
complex64          ``C64``                         ``complex64``
complex128         ``F64``, one more axis of 2     ``complex128``
=================  ==============================  =====================================

Bytes are always little-endian. A bfloat16 entry is read as the type of the package ``ml_dtypes`` if it
is installed, else as float32, which represents every bfloat16 exactly.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"


class Element(NamedTuple):
    """An element type: its name, its safetensors tag and the bytes of one element."""

    name: str
    tag: str
    size: int

    @property
    def is_native(self) -> bool:
        """Whether numpy has the type without ``ml_dtypes``."""
        return self.name not in _FOREIGN

    def file_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape in the header of the tensor file for an entry of this shape."""
        return (*shape, 2) if self.name == "complex128" else shape


_ELEMENTS = {
    one.name: one
    for one in [
        Element("bool", "BOOL", 1),
        *(Element(f"int{8 * size}", f"I{8 * size}", size) for size in (1, 2, 4, 8)),
        *(Element(f"uint{8 * size}", f"U{8 * size}", size) for size in (1, 2, 4, 8)),
        *(Element(f"float{8 * size}", f"F{8 * size}", size) for size in (2, 4, 8)),
        Element("bfloat16", "BF16", 2),
        Element("float8_e4m3fn", "F8_E4M3", 1),
        Element("float8_e5m2", "F8_E5M2", 1),
        Element("complex64", "C64", 8),
        Element("complex128", "F64", 16),
    ]
}
_FOREIGN = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}


def element_named(name: str) -> Element:
    """Return an element type by its name. Raises KeyError for an unknown one."""
    return _ELEMENTS[name]


def element_tagged(tag: str) -> Element | None:
    """Return an element type by its safetensors tag, or None for an unknown one."""
    return next((one for one in _ELEMENTS.values() if one.tag == tag), None)


def element_of(dtype: np.dtype[Any]) -> Element | None:
    """Return the element type of a numpy dtype of either byte order, or None if files have none."""
    return _ELEMENTS.get(dtype.name)


def is_text(dtype: np.dtype[Any]) -> bool:
    """Return whether the elements of a dtype are strings: object, ``str_`` and ``bytes_``."""
    return dtype.kind in "OUS"


def byte_chunks(array: Array, size: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of an array in C order, little-endian, in chunks of at most ``size`` bytes.

    A contiguous little-endian array is not copied. Others are copied one chunk at a time.
    """
    dtype = array.dtype.newbyteorder("<")
    if array.dtype == dtype and array.flags.c_contiguous:
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.nbytes, size):
            yield flat[start : start + size]
    elif array.ndim == 0 or array.nbytes <= size:
        yield np.array(array, dtype, order="C").reshape(-1).view(np.uint8)
    else:
        rows = max(1, size // (array.nbytes // len(array)))
        for start in range(0, len(array), rows):
            block = array[start] if rows == 1 else array[start : start + rows]
            yield from byte_chunks(block, size)


def decode(data: Array, element: Element, shape: tuple[int, ...]) -> Array:
    """Return bytes (an array of uint8) as an array of an element type, not copied if possible."""
    if element.name == "bfloat16" and _foreign_dtypes() is None:
        wide = np.zeros((data.size // 2, 2), "<u2")
        wide[:, 1] = data.view("<u2")
        return wide.view("<f4").reshape(shape)
    return data.view(numpy_dtype(element)).reshape(shape)


def numpy_dtype(element: Element) -> np.dtype[Any]:
    """Return the dtype of the arrays that :func:`decode` returns.

    Raises:
        ImportError: float8 without ``ml_dtypes``.
    """
    if element.is_native:
        return np.dtype(element.name).newbyteorder("<")
    foreign = _foreign_dtypes()
    if foreign is not None:
        return foreign[element.name]
    if element.name == "bfloat16":
        return np.dtype("<f4")
    raise ImportError(
        f"Reading {element.name} needs the package ml-dtypes, which is not installed: pip install"
        " ml-dtypes"
    )


@cache
def _foreign_dtypes() -> dict[str, np.dtype[Any]] | None:
    if importlib.util.find_spec("ml_dtypes") is None:
        return None
    ml_dtypes = importlib.import_module("ml_dtypes")
    return {name: np.dtype(getattr(ml_dtypes, name)) for name in _FOREIGN}
