"""Convert strings, which are bytes, to numbers: from text or from memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, register
from asyncmon.graph.numerics.arrays import Array

_STRING = (dtypes.string,)
NUMERIC = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)


# --- numbers --------------------------------------------------------------------------------------
_NUMBER = re.compile(
    rb"\s*[+-]?(0x[0-9a-f]+|\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)\s*", re.I
)
_INTEGER = re.compile(rb"\s*-?\d+\s*")


def parsed(text: bytes, dtype: DType) -> Any:
    """Parse a number; ValueError if it is invalid or out of range."""
    if dtype.is_floating:
        if not _NUMBER.fullmatch(text):
            raise ValueError(text)
        return float.fromhex(text.decode()) if b"x" in text.lower() else float(text)
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    number = int(text)
    if not dtype.min <= number <= dtype.max:
        raise ValueError(text)
    return number


def _to_number(x: Array, *, out_type: DType) -> Array:
    def parse(text: bytes) -> Any:
        try:
            return parsed(text, out_type)
        except ValueError:
            shown = text.decode(errors="backslashreplace")
            raise InvalidArgumentError(
                f"StringToNumberOp could not correctly convert string: {shown}"
            ) from None

    return np.asarray(np.frompyfunc(parse, 1, 1)(x), out_type.numpy)


def _to_number_rule(x: Spec, *, out_type: DType) -> Spec:
    rules.check_dtype(x.dtype, _STRING, "string_tensor")
    rules.check_dtype(out_type, NUMERIC, "out_type")
    return Spec(out_type, x.shape)


register(OpDef("StringToNumber", _to_number, _to_number_rule, ZERO))


def string_to_number(
    string_tensor: Any = None,
    out_type: Any = dtypes.float32,
    name: str | None = None,
    input: Any = None,
) -> Tensor:
    """Parse numbers: float32, float64, int32 or int64. TF1: same name.

    InvalidArgumentError in the run for other text, and numbers out of the range of the dtype.
    """
    texts = renamed_argument("input", input, "string_tensor", string_tensor)
    return create_op("StringToNumber", (texts,), {"out_type": dtypes.as_dtype(out_type)}, name)


def _decode_raw(x: Array, *, out_type: DType, little_endian: bool) -> Array:
    dtype, texts = out_type.numpy.newbyteorder("<" if little_endian else ">"), x.reshape(-1).tolist()
    length = len(texts[0]) if texts else 0
    for text in texts:
        if len(text) != length:
            raise InvalidArgumentError(
                "DecodeRaw requires input strings to all be the same size, got "
                f"{length} and {len(text)}"
            )
    if length % dtype.itemsize:
        raise InvalidArgumentError(
            f"Input to DecodeRaw has length {length} that is not a multiple of {dtype.itemsize}, "
            f"the size of {out_type.name}"
        )
    values = np.frombuffer(b"".join(texts), dtype).astype(out_type.numpy)
    return values.reshape(*x.shape, length // dtype.itemsize)


def _decode_raw_rule(x: Spec, *, out_type: DType, little_endian: bool) -> Spec:
    rules.check_dtype(x.dtype, _STRING, "bytes")
    rules.check_dtype(out_type, (*rules.NUMBERS, dtypes.bool), "out_type")
    return Spec(out_type, None if x.shape is None else (*x.shape, None))


register(OpDef("DecodeRaw", _decode_raw, _decode_raw_rule, ZERO))


def decode_raw(
    input_bytes: Any = None,
    out_type: Any = None,
    little_endian: bool = True,
    name: str | None = None,
    bytes: Any = None,
) -> Tensor:
    """Decode the bytes of strings as numbers along a new last dimension. TF1: same name.

    InvalidArgumentError in the run for strings of different lengths, or not of a multiple of the size.
    """
    texts = renamed_argument("input_bytes", input_bytes, "bytes", bytes)
    attrs = {"out_type": dtypes.as_dtype(out_type), "little_endian": little_endian}
    return create_op("DecodeRaw", (texts,), attrs, name)
