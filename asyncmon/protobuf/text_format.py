"""Messages in protobuf's text format, for people and for ``graph.pbtxt``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.protobuf.field import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncmon.protobuf.field import Field

_ESCAPES = {byte: f"\\{byte:03o}" for byte in range(256) if not 32 <= byte < 127}
_ESCAPES |= {ord(char): f"\\{char}" for char in "\\'\""} | {10: r"\n", 13: r"\r", 9: r"\t"}
_CHARACTERS = [_ESCAPES.get(byte, chr(byte)) for byte in range(256)]


def text_lines(message: Any) -> Iterator[str]:
    """Yield the lines of a message."""
    for field, value in message.ListFields():
        if field.key is not None:
            for key, element in sorted(value.items()):
                entry = (_scalar("key", field.key, key, None), *_lines(field, element, "value"))
                yield from _block(field.name, entry)
        else:
            for element in value if field.repeated else [value]:
                yield from _lines(field, element, field.name)


def _lines(field: Field, value: Any, name: str) -> Iterator[str]:
    if field.message is not None:
        yield from _block(name, text_lines(value))
    else:
        yield _scalar(name, field.kind, value, field.enum)


def _block(name: str, lines: Any) -> Iterator[str]:
    yield f"{name} {{"
    for line in lines:
        yield f"  {line}"
    yield "}"


def _scalar(name: str, kind: Kind, value: Any, enum: Any) -> str:
    if kind in (Kind.TEXT, Kind.BYTES):
        data = value.encode() if isinstance(value, str) else value
        return f'{name}: "{"".join([_CHARACTERS[byte] for byte in data])}"'
    if kind is Kind.BOOL:
        return f"{name}: {'true' if value else 'false'}"
    if kind is Kind.INT:
        return f"{name}: {(enum or {}).get(value, int(value))}"
    digits = (np.float32, 6, 9) if kind is Kind.FLOAT else (float, 15, 17)
    return f"{name}: {_number(value, *digits)}"


def _number(value: Any, kind: Any, digits: int, more: int) -> str:
    """Return a number with so many digits if they say all of it, else with more, as protobuf does."""
    short = f"{kind(value):.{digits}g}"
    return short if kind(short) == kind(value) or value != value else f"{kind(value):.{more}g}"
