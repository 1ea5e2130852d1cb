"""``decode_csv``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_to_tensor, create_ops
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, register
from asyncmon.graph.numerics.arrays import Array
from asyncmon.tf1.ops.strings import NUMERIC, parsed


def _decode_csv(
    records: Array,
    *defaults: Array,
    delimiter: str,
    quotes: bool,
    na_value: str,
    columns: tuple[int, ...],
    types: tuple[DType, ...],
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
    fields, start, end = [], 0, -1
    while end < len(line):
        if quotes and line.startswith('"', start):
            field, end = _quoted(line, start + 1, number)
            if line[end : end + 1] not in ("", delimiter):
                raise InvalidArgumentError(f"Text after a closing quote in record {number}: {line!r}")
        else:
            end = line.find(delimiter, start)
            end = len(line) if end < 0 else end
            field = line[start:end]
            if any(sign in field for sign in ('"\n\r' if quotes else "\n\r")):
                raise InvalidArgumentError(
                    f"Unquoted fields cannot have quotes or line ends inside, record {number}: {line!r}"
                )
        fields.append(field)
        start = end + 1
    return fields


def _quoted(line: str, start: int, number: int) -> tuple[str, int]:
    """Return the quoted field whose text begins at ``start``, and the index after it."""
    parts = []
    while (end := line.find('"', start)) >= 0:
        parts.append(line[start:end])
        if not line.startswith('"', end + 1):
            return '"'.join(parts), end + 1
        start = end + 2
    raise InvalidArgumentError(f"A quoted field in record {number} has no end: {line!r}")


def _default(default: Array, field: int, record: int) -> Any:
    if not np.size(default):
        raise InvalidArgumentError(f"Field {field} is required but missing in record {record}!")
    return np.reshape(default, -1)[0]


def _field(text: str, dtype: DType, field: int, record: int) -> Any:
    data = text.encode("latin-1")
    if dtype is dtypes.string:
        return data
    try:
        return parsed(data, dtype)
    except ValueError:
        raise InvalidArgumentError(
            f"Field {field} in record {record} is not a valid {dtype.name}: {text}"
        ) from None


def _decode_csv_rule(records: Spec, *defaults: Spec, **attrs: Any) -> tuple[Spec, ...]:
    rules.check_dtype(records.dtype, (dtypes.string,), "records")
    for default in defaults:
        rules.check_dtype(default.dtype, (*NUMERIC, dtypes.string), "record_defaults")
        if default.shape not in (None, (), (0,), (1,), (None,)):
            raise ValueError(f"Each record default must be a scalar or empty, got {default.shape}")
    return tuple(Spec(default.dtype, records.shape) for default in defaults)


register(OpDef("DecodeCSV", _decode_csv, _decode_csv_rule, ZERO))


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    name: str | None = None,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> list[Tensor]:
    """Return the columns of records of CSV as tensors of the shape of ``records``. TF1: same name.

    Args:
        records: strings, a record each.
        record_defaults: for each column the value of an empty field, in a list. Its dtype is that of
            the column: float32, float64, int32, int64 or string. An empty tensor for a required column.
        field_delim: one character.
        use_quote_delim: whether fields may be quoted with ``"``.
        name: the node's name.
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
    defaults = [convert_to_tensor(default) for default in record_defaults]
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
    return list(create_ops("DecodeCSV", (records, *defaults), attrs, name))
