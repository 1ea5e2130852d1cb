"""Arrays as ``TensorProto`` messages, and protobuf's numbers of their dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.summary.events import TensorProto, TensorShapeDim, TensorShapeProto

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DTYPES", "tensor_proto"]

DTYPES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "variant": 21,
    "uint32": 22,
    "uint64": 23,
}
"""The numbers of ``tf.DataType`` by name."""


def tensor_proto(tag: str, array: NDArray[Any]) -> TensorProto:
    """Return an array of numbers, or of str and bytes, as a message.

    Raises:
        TypeError: its elements are something else.
    """
    if array.dtype.kind in "OSU":
        return _message("string", array, string_val=[_encoded(tag, item) for item in array.ravel()])
    if array.dtype.name not in DTYPES:
        raise TypeError(f"The tensor summary {tag!r} was given {array.dtype} values.")
    data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return _message(array.dtype.name, array, tensor_content=data)


def _message(dtype: str, array: NDArray[Any], **content: Any) -> TensorProto:
    shape = TensorShapeProto(dim=[TensorShapeDim(size=size) for size in array.shape])
    return TensorProto(dtype=DTYPES[dtype], tensor_shape=shape, **content)


def _encoded(tag: str, item: Any) -> bytes:
    if not isinstance(item, str | bytes):
        raise TypeError(f"The summary {tag!r} was given {item!r}; expected strings.")
    return item.encode() if isinstance(item, str) else bytes(item)
