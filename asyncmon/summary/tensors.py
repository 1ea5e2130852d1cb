"""Arrays as ``TensorProto`` messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.summary.events import TensorProto, TensorShapeDim, TensorShapeProto
from asyncmon.tf_types import DTYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
