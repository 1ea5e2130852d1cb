"""JSON that every browser reads: NaN and infinities are strings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncmon.monitor.scalars import Series
from asyncmon.summary.scalars import json_number

_AT_ONCE = 4096  # numbers encoded between two chances for other threads


def to_json(value: Any) -> bytes:
    """Return plain values and data classes as JSON. Not for many numbers: see :func:`encode_series`."""
    try:
        text = json.dumps(value, allow_nan=False, default=_plain, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), default=_plain, separators=(",", ":"))
    return text.encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return _finite(value.item())
    if dataclasses.is_dataclass(value):
        return members(value)
    raise TypeError(f"{value!r} has no form in JSON")


def members(value: Any) -> dict[str, Any]:
    """Return the members of a data class; named tuples in them become objects."""
    return {field.name: _rows(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _rows(value: Any) -> Any:
    if isinstance(value, tuple):
        return [one._asdict() if hasattr(one, "_asdict") else one for one in value]
    return value


def _finite(value: Any) -> Any:
    """Return a value with NaN and infinities as strings."""
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if dataclasses.is_dataclass(value):
        return _finite(members(value))
    return value


def encode_series(series: Mapping[str, Series]) -> bytes:
    """Return ``{tag: {"steps": [...], "values": [...], "wall_times": [...]}}``."""
    if sum(len(columns.steps) for columns in series.values()) < _AT_ONCE // 3:
        plain = {
            tag: {"steps": s.tolist(), "values": v.tolist(), "wall_times": t.tolist()}
            for tag, (s, v, t) in series.items()
        }
        return to_json(plain)
    members = []  # in a thread, in pieces: between some thousand numbers other threads run
    for tag, columns in series.items():
        arrays = [
            f'"{name}":[{",".join(_numbers(column))}]'
            for name, column in zip(columns._fields, columns, strict=True)
        ]
        members.append(f"{json.dumps(tag)}:{{{','.join(arrays)}}}")
    return f"{{{','.join(members)}}}".encode()


def _numbers(column: NDArray[Any]) -> Iterator[str]:
    for begin in range(0, len(column), _AT_ONCE):
        piece = column[begin : begin + _AT_ONCE]
        plain = piece.tolist()
        if not np.isfinite(piece).all():
            plain = _finite(plain)
        yield json.dumps(plain, separators=(",", ":"))[1:-1]
