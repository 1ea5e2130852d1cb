"""What waits for the disk: an event that is not encoded yet, so that the step path does not pay for it.

An entry is a plain tuple ``(wall_time, step, tags, payload, encode)``. ``encode(tags, payload)`` runs
in the writer's thread and returns the bytes of the event after its time and step, or None if there is
nothing to write. ``tags`` says what may be dropped or replaced by a newer one: None for what must be
kept (a graph, a session log), the tag of a value, or a tuple of the tags of a summary.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

from asyncmon.summary.wire import WireError, fields, float32, string, varint

__all__ = ["Encode", "Entry", "as_is", "encode_entry", "scalar_fields", "summary_tags"]

Encode = Callable[[Any, Any], bytes | None]
Entry = tuple[float, int, Hashable | None, Any, Encode]

SUMMARY_FIELD = 5
"""The number of ``Event.summary``."""

_TIME = struct.Struct("<cd")


def encode_entry(entry: Entry) -> bytes | None:
    """Return the bytes of an ``Event``, or None if the entry has nothing to write."""
    wall_time, step, tags, payload, encode = entry
    what = encode(tags, payload)
    if what is None:
        return None
    if step:
        return b"".join((_TIME.pack(b"\x09", wall_time), b"\x10", varint(step), what))
    return _TIME.pack(b"\x09", wall_time) + what


def as_is(tags: object, payload: bytes) -> bytes:
    """Encode a payload that is the event's field already."""
    return payload


def scalar_fields(tag: str, value: float) -> bytes:
    """Encode one scalar, the most frequent event by far: only the number differs between two steps."""
    return _scalar_prefix(tag) + float32(value)


@lru_cache(4096)
def _scalar_prefix(tag: str) -> bytes:
    # The length of what follows is known, four bytes, so everything before it is fixed by the tag.
    value = string(1, tag) + b"\x15"
    summary = b"\x0a" + varint(len(value) + 4) + value
    return varint(SUMMARY_FIELD << 3 | 2) + varint(len(summary) + 4) + summary


def summary_tags(summary: bytes) -> tuple[str, ...]:
    """Return the tags of a serialized ``Summary``, and check its outline on the way.

    Raises:
        ValueError: these bytes are no ``Summary``.
    """
    try:
        tags = []
        for number, wire_type, value in fields(summary):
            if number != 1 or wire_type != 2 or isinstance(value, int):
                raise WireError(f"Field {number} of type {wire_type} is not one of a Summary.")
            tags.append(next((str(tag, "utf-8") for n, _, tag in fields(value) if n == 1), ""))  # type: ignore[arg-type]
        return tuple(tags)
    except (WireError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{len(summary)} bytes were passed that are no serialized Summary: {error} "
            "Pass a Summary, or what running a summary op returned."
        ) from None
