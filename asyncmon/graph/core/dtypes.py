"""Element types, one object each: compare with ``is`` or ``==``. TF1: ``tf.DType``."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from asyncmon.protobuf.tf_types import DTYPES


class DType:
    """The type of a tensor's elements. TF1: ``tf.DType``.

    It equals any value that :func:`as_dtype` converts to it: ``tensor.dtype == np.float32``.
    """

    def __init__(self, name: str, numpy_type: type) -> None:
        self.name = name
        self.numpy: np.dtype[Any] = np.dtype(numpy_type)
        """The dtype of arrays."""
        self.as_numpy_dtype: type[Any] = builtins.object if numpy_type is np.object_ else numpy_type
        """The class of array elements: ``dtype.as_numpy_dtype(0)`` is a zero. TF1: same name."""
        kind = self.numpy.kind
        self.is_floating = kind == "f"
        self.is_integer = kind in "iu"
        self.is_unsigned = kind == "u"
        self.is_complex = kind == "c"
        self.is_bool = kind == "b"

    @property
    def base_dtype(self) -> DType:
        """The type itself: asyncmon has no reference types. TF1: same name."""
        return self

    @property
    def real_dtype(self) -> DType:
        """The type of the real part: ``float32`` of ``complex64``."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    @property
    def is_numpy_compatible(self) -> builtins.bool:
        """True. TF1: same name."""
        return True

    @property
    def size(self) -> int:
        """The size of an element in bytes."""
        return self.numpy.itemsize

    @property
    def min(self) -> Any:
        """The smallest finite value of a real type."""
        return self._limits().min

    @property
    def max(self) -> Any:
        """The greatest finite value of a real type."""
        return self._limits().max

    @property
    def limits(self) -> tuple[Any, Any]:
        """The range of values in images: 0 to the greatest integer, or 0 to 1. TF1: same name."""
        return (0, self.max if self.is_integer else 1)

    def is_compatible_with(self, other: Any) -> builtins.bool:
        """Return true when ``other`` is this type or converts to it."""
        return as_dtype(other) is self

    def _limits(self) -> Any:
        if self.is_floating:
            return np.finfo(self.numpy)
        if self.is_integer:
            return np.iinfo(self.numpy)
        raise TypeError(f"{self!r} has no smallest and greatest value")

    def __eq__(self, other: object) -> builtins.bool:
        if self is other:
            return True
        if other is None or any(other is kind for kind in _NO_DTYPES):
            return False
        try:
            return as_dtype(other) is self
        except TypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __repr__(self) -> str:
        return f"am.graph.{self.name}"


float16 = DType("float16", np.float16)
float32 = DType("float32", np.float32)
float64 = DType("float64", np.float64)
int8 = DType("int8", np.int8)
int16 = DType("int16", np.int16)
int32 = DType("int32", np.int32)
int64 = DType("int64", np.int64)
uint8 = DType("uint8", np.uint8)
uint16 = DType("uint16", np.uint16)
uint32 = DType("uint32", np.uint32)
uint64 = DType("uint64", np.uint64)
complex64 = DType("complex64", np.complex64)
complex128 = DType("complex128", np.complex128)
bool = DType("bool", np.bool_)
half, double = float16, float64
string = DType("string", np.object_)  # elements are bytes
variant = DType("variant", np.object_)  # one opaque Python object, not an array
variant.is_floating = True  # gradients pass through it

_ALL = [value for value in list(globals().values()) if isinstance(value, DType)]
_BY_NAME = {dtype.name: dtype for dtype in _ALL} | {
    "float": float32,
    "double": float64,
    "half": float16,
}
_BY_NUMPY = {dtype.numpy: dtype for dtype in _ALL if dtype is not variant}
_BY_NUMBER = {number: _BY_NAME[name] for name, number in DTYPES.items() if name in _BY_NAME}
_BY_PYTHON = {
    builtins.float: float32,
    builtins.int: int32,
    builtins.bool: bool,
    builtins.complex: complex128,
    builtins.str: string,
    builtins.bytes: string,
    builtins.object: string,
}

# Python types that convert to a dtype but equal none: int32 == int is false, as in TF1.
_NO_DTYPES = (builtins.int, builtins.complex, builtins.str, builtins.bytes)


def as_strings(value: Any) -> np.ndarray[Any, Any]:
    """Return a new array of bytes from str (encoded as UTF-8) or bytes, also in lists or arrays.

    TypeError if an element is neither.
    """
    array = np.array(value, dtype=np.object_)
    flat = array.reshape(-1)  # a view: the array is new
    for i, item in enumerate(flat):
        if isinstance(item, str):
            flat[i] = item.encode()
        elif type(item) is not bytes:
            if not isinstance(item, bytes):
                raise TypeError(f"A string must be str or bytes, got {item!r}.")
            flat[i] = bytes(item)
    return array


def as_objects(value: Any) -> np.ndarray[Any, Any]:
    """Return an array unchanged, and any other object as a 0-d array of objects."""
    if isinstance(value, np.ndarray):
        return value
    array = np.empty((), np.object_)
    array[()] = value
    return array


def as_dtype(value: Any) -> DType:
    """Convert a name, a number of TF1, a numpy type or a Python type to a DType. TF1: same name.

    TypeError if there is no such type.
    """
    if isinstance(value, DType):
        return value
    found = None
    try:
        if value is None:  # float64 for numpy
            raise TypeError
        if isinstance(value, str):
            found = _BY_NAME.get(value)
        elif isinstance(value, type):
            found = _BY_PYTHON.get(value)
        elif type(value) is builtins.int:
            found = _BY_NUMBER.get(value)
        if found is None:
            dtype = np.dtype(value)
            found = string if dtype.kind in "SU" else _BY_NUMPY.get(dtype)
    except TypeError:
        found = None
    if found is None:
        raise TypeError(
            f"Cannot convert value {value!r} to a DType. "
            f"Expected one of {', '.join(sorted(_BY_NAME))}, or the numpy or Python type of one."
        )
    return found
