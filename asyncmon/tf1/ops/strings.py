"""Convert strings, which are bytes, to numbers: from text, CSV or memory."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import rules
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.graph.core.op import ZERO
from asyncmon.graph.numerics.arrays import Array

__all__ = ["decode_base64", "decode_csv", "decode_raw", "encode_base64", "string_to_number"]

_STRING = (g.string,)
_NUMERIC = (g.float32, g.float64, g.int32, g.int64)


# --- numbers --------------------------------------------------------------------------------------
_NUMBER = re.compile(
    rb"\s*[+-]?(0x[0-9a-f]+|\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)\s*", re.I
)
_INTEGER = re.compile(rb"\s*-?\d+\s*")


def _parsed(text: bytes, dtype: g.DType) -> Any:
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


def _to_number(x: Array, *, out_type: g.DType) -> Array:
    def parse(text: bytes) -> Any:
        try:
            return _parsed(text, out_type)
        except ValueError:
            shown = text.decode(errors="backslashreplace")
            raise InvalidArgumentError(
                f"StringToNumberOp could not correctly convert string: {shown}"
            ) from None

    return np.asarray(np.frompyfunc(parse, 1, 1)(x), out_type.numpy)


def _to_number_rule(x: g.Spec, *, out_type: g.DType) -> g.Spec:
    rules.check_dtype(x.dtype, _STRING, "string_tensor")
    rules.check_dtype(out_type, _NUMERIC, "out_type")
    return g.Spec(out_type, x.shape)


g.register(g.OpDef("StringToNumber", _to_number, _to_number_rule, ZERO))


def string_to_number(
    string_tensor: Any = None,
    out_type: Any = g.float32,
    name: str | None = None,
    input: Any = None,
) -> g.Tensor:
    """Parse numbers: float32, float64, int32 or int64. TF1: same name.

    InvalidArgumentError in the run for other text, and numbers out of the range of the dtype.
    """
    texts = renamed_argument("input", input, "string_tensor", string_tensor)
    return g.create_op("StringToNumber", (texts,), {"out_type": g.as_dtype(out_type)}, name)


def _decode_raw(x: Array, *, out_type: g.DType, little_endian: bool) -> Array:
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


def _decode_raw_rule(x: g.Spec, *, out_type: g.DType, little_endian: bool) -> g.Spec:
    rules.check_dtype(x.dtype, _STRING, "bytes")
    rules.check_dtype(out_type, (*rules.NUMBERS, g.bool), "out_type")
    return g.Spec(out_type, None if x.shape is None else (*x.shape, None))


g.register(g.OpDef("DecodeRaw", _decode_raw, _decode_raw_rule, ZERO))


def decode_raw(
    input_bytes: Any = None,
    out_type: Any = None,
    little_endian: bool = True,
    name: str | None = None,
    bytes: Any = None,
) -> g.Tensor:
    """Decode the bytes of strings as numbers along a new last dimension. TF1: same name.

    InvalidArgumentError in the run for strings of different lengths, or not of a multiple of the size.
    """
    texts = renamed_argument("input_bytes", input_bytes, "bytes", bytes)
    attrs = {"out_type": g.as_dtype(out_type), "little_endian": little_endian}
    return g.create_op("DecodeRaw", (texts,), attrs, name)


# --- CSV ------------------------------------------------------------------------------------------
def _decode_csv(
    records: Array,
    *defaults: Array,
    delimiter: str,
    quotes: bool,
    na_value: str,
    columns: tuple[int, ...],
    types: tuple[g.DType, ...],
) -> Any:
    lines = [line.decode("latin-1") for line in records.reshape(-1).tolist()]
    found: list[list[Any]] = [[] for _ in defaults]
    for number, line in enumerate(lines):
        fields = _fields(line, delimiter, quotes, number)
        if columns:
            if columns[-1] >= len(fields):
                raise InvalidArgumentError(
                    f"Expect field {columns[-1]} but have {len(fields)} fields in record {number}"
                )
            fields = [fields[i] for i in columns]
        if len(fields) != len(defaults):
            raise InvalidArgumentError(
                f"Expect {len(defaults)} fields but have {len(fields)} in record {number}"
            )
        for i, (field, default, dtype) in enumerate(zip(fields, defaults, types, strict=True)):
            missing = field in ("", na_value)
            found[i].append(
                _default(default, i, number) if missing else _field(field, dtype, i, number)
            )
    arrays = [np.empty(records.shape, dtype.numpy) for dtype in types]
    for array, values in zip(arrays, found, strict=True):
        array.reshape(-1)[...] = values
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _fields(line: str, delimiter: str, quotes: bool, number: int) -> list[str]:
    plain = f"([^{re.escape(delimiter)}]*)"
    field_of = re.compile(f'"((?:[^"]|"")*)"(?!")|{plain}' if quotes else f"(?!)()|{plain}").match
    fields, end = [], -1
    while end < len(line):
        found = field_of(line, end + 1)
        assert found is not None, "a field may be empty"
        end, (quoted, field) = found.end(), found.groups()
        if quoted is not None:
            field = quoted.replace('""', '"')
            if line[end : end + 1] not in ("", delimiter):
                raise InvalidArgumentError(f"Text after a closing quote in record {number}: {line!r}")
        elif quotes and field.startswith('"'):
            raise InvalidArgumentError(f"A quoted field in record {number} has no end: {line!r}")
        elif any(sign in field for sign in ('"\n\r' if quotes else "\n\r")):
            raise InvalidArgumentError(
                f"Unquoted fields cannot have quotes or line ends inside, record {number}: {line!r}"
            )
        fields.append(field)
    return fields


def _default(default: Array, field: int, record: int) -> Any:
    if not np.size(default):
        raise InvalidArgumentError(f"Field {field} is required but missing in record {record}!")
    return np.reshape(default, -1)[0]


def _field(text: str, dtype: g.DType, field: int, record: int) -> Any:
    data = text.encode("latin-1")
    if dtype is g.string:
        return data
    try:
        return _parsed(data, dtype)
    except ValueError:
        raise InvalidArgumentError(
            f"Field {field} in record {record} is not a valid {dtype.name}: {text}"
        ) from None


def _decode_csv_rule(records: g.Spec, *defaults: g.Spec, **attrs: Any) -> tuple[g.Spec, ...]:
    rules.check_dtype(records.dtype, _STRING, "records")
    for default in defaults:
        rules.check_dtype(default.dtype, (*_NUMERIC, g.string), "record_defaults")
        if default.shape not in (None, (), (0,), (1,), (None,)):
            raise ValueError(f"Each record default must be a scalar or empty, got {default.shape}")
    return tuple(g.Spec(default.dtype, records.shape) for default in defaults)


g.register(g.OpDef("DecodeCSV", _decode_csv, _decode_csv_rule, ZERO))


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    name: str | None = None,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> list[g.Tensor]:
    """Return the columns of records of CSV as tensors of the shape of ``records``. TF1: same name.

    Args:
        records: strings, a record each.
        record_defaults: for each column the value of an empty field, in a list. Its dtype is that of
            the column: float32, float64, int32, int64 or string. An empty tensor for a required column.
        field_delim: one character.
        use_quote_delim: whether fields may be quoted with ``"``.
        na_value: another text of an empty field.
        select_cols: the columns to return, in ascending order; by default all.

    Returns:
        A list. InvalidArgumentError in the run for a record with another number of fields, or a field
        that its column's dtype cannot hold.

    Raises:
        ValueError: ``field_delim`` is not a single character, or ``select_cols`` does not fit.
    """
    if len(field_delim) != 1:
        raise ValueError(f"field_delim should be only 1 char, got {field_delim!r}.")
    defaults = [g.convert_to_tensor(default) for default in record_defaults]
    if not defaults:
        raise ValueError("record_defaults must have a default for each column, got none.")
    columns = tuple(select_cols or ())
    if columns and len(columns) != len(defaults):
        raise ValueError("Length of select_cols and record_defaults do not match.")
    if any(a >= b for a, b in pairwise(columns)) or min(columns, default=0) < 0:
        raise ValueError(f"select_cols must be strictly increasing and >= 0, got {columns}.")
    attrs = {
        "delimiter": field_delim,
        "quotes": use_quote_delim,
        "na_value": na_value,
        "columns": columns,
        "types": tuple(default.dtype for default in defaults),
    }
    return list(g.create_ops("DecodeCSV", (records, *defaults), attrs, name))


# --- base64 ---------------------------------------------------------------------------------------
def _encode(x: Array, *, pad: bool) -> Array:
    def one(text: bytes) -> bytes:
        made = base64.urlsafe_b64encode(text)
        return made if pad else made.rstrip(b"=")

    return np.asarray(np.frompyfunc(one, 1, 1)(x), object)


def _decode(x: Array) -> Array:
    def one(text: bytes) -> bytes:
        plain = text.rstrip(b"=")
        try:
            return base64.b64decode(plain + b"=" * (-len(plain) % 4), b"-_", validate=True)
        except ValueError:
            raise InvalidArgumentError("Invalid character found in base64.") from None

    return np.asarray(np.frompyfunc(one, 1, 1)(x), object)


def _string_rule(x: g.Spec, **_attrs: Any) -> g.Spec:
    rules.check_dtype(x.dtype, _STRING, "input")
    return g.Spec(x.dtype, x.shape)


g.register(g.OpDef("EncodeBase64", _encode, _string_rule, ZERO))
g.register(g.OpDef("DecodeBase64", _decode, _string_rule, ZERO))


def encode_base64(input: Any, pad: bool = False, name: str | None = None) -> g.Tensor:
    """Return strings in the web-safe base64, with ``=`` at their ends if ``pad``. TF1: same name."""
    return g.create_op("EncodeBase64", (g.convert_to_tensor(input, g.string),), {"pad": pad}, name)


def decode_base64(input: Any, name: str | None = None) -> g.Tensor:
    """Return the content of strings in the web-safe base64, padded or not. TF1: same name.

    InvalidArgumentError in the run for other characters.
    """
    return g.create_op("DecodeBase64", (g.convert_to_tensor(input, g.string),), None, name)
