"""Protobuf's text format, for ``str(message)`` and ``graph.pbtxt``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncmon.protobuf.field import Field, Kind

_ESCAPES = {byte: f"\\{byte:03o}" for byte in range(256) if not 32 <= byte < 127}
_ESCAPES |= {ord(char): f"\\{char}" for char in "\\'\""} | {10: r"\n", 13: r"\r", 9: r"\t"}
_SPECIAL = re.compile(r"[^ -~]|[\"'\\]")
_CHARACTERS = [_ESCAPES.get(byte, chr(byte)) for byte in range(256)]


def message_text(message: Any) -> str:
    """Format a message."""
    lines: list[str] = []
    _add(lines, message, "")
    return "".join(lines)


def _add(lines: list[str], message: Any, indent: str) -> None:
    for field, value in message.ListFields():
        name = indent + field.name
        if field.key is not None:
            for key, element in sorted(value.items()):
                lines.append(f"{name} {{\n{indent}  key: {scalar_text(field.key, key)}\n")
                _add_value(lines, field, element, f"{indent}  value", indent + "  ")
                lines.append(f"{indent}}}\n")
        else:
            for element in value if field.repeated else [value]:
                _add_value(lines, field, element, name, indent)


def _add_value(lines: list[str], field: Field, value: Any, name: str, indent: str) -> None:
    if field.message is not None:
        lines.append(f"{name} {{\n")
        _add(lines, value, indent + "  ")
        lines.append(f"{indent}}}\n")
    else:
        lines.append(f"{name}: {scalar_text(field.kind, value, field.enum)}\n")


def scalar_text(kind: Kind, value: Any, enum: Mapping[int, str] | None = None) -> str:
    """Format a value that is no message."""
    if kind in (Kind.TEXT, Kind.BYTES):
        if isinstance(value, str) and not _SPECIAL.search(value):
            return f'"{value}"'
        data = value.encode() if isinstance(value, str) else value
        return f'"{"".join([_CHARACTERS[byte] for byte in data])}"'
    if kind is Kind.BOOL:
        return "true" if value else "false"
    if kind is Kind.INT:
        return str((enum or {}).get(value, int(value)))
    return _number(value, *((np.float32, 6, 9) if kind is Kind.FLOAT else (float, 15, 17)))


def _number(value: Any, kind: Any, digits: int, more: int) -> str:
    """Format a number with this number of digits if they suffice, else with more, as protobuf does."""
    short = f"{kind(value):.{digits}g}"
    return short if kind(short) == kind(value) or value != value else f"{kind(value):.{more}g}"
