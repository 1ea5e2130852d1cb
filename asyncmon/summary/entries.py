"""Pending events, which are encoded later, in the writer's thread.

An entry is a tuple ``(wall_time, step, tags, payload, encode)``. ``encode(tags, payload)`` runs in the
writer's thread. It returns the bytes of the event's other fields, or None for no event. ``tags`` is the
tag of a value, a tuple of the tags of a summary, or None for an event that must not be dropped, such as
a graph or a session log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from typing import Any

from asyncmon.protobuf import DELIMITED, WireError, fields, float32, read_varint, string, varint

Encode = Callable[[Any, Any], bytes | None]
Entry = tuple[float, int, Hashable | None, Any, Encode]

GRAPH, SUMMARY, SESSION_LOG, RUN_METADATA, META_GRAPH = 4, 5, 7, 8, 9
"""Field numbers of ``Event``."""

_TIME = struct.Struct("<cd")


def encode_entry(entry: Entry) -> bytes | None:
    """Return a serialized ``Event``, or None for no event."""
    wall_time, step, tags, payload, encode = entry
    what = encode(tags, payload)
    if what is None:
        return None
    if step:
        return b"".join((_TIME.pack(b"\x09", wall_time), b"\x10", varint(step), what))
    return _TIME.pack(b"\x09", wall_time) + what


def as_is(tags: object, payload: bytes) -> bytes:
    """Return a payload that is encoded already."""
    return payload


def scalar_fields(tag: str, value: float) -> bytes:
    """Encode one scalar. The bytes before the number depend on the tag alone, and are cached."""
    return _scalar_prefixes(tag)[1] + float32(value)


def scalar_summary_bytes(tag: str, value: float) -> bytes:
    """Return a serialized ``Summary`` of one number."""
    return _scalar_prefixes(tag)[0] + float32(value)


@lru_cache(4096)
def _scalar_prefixes(tag: str) -> tuple[bytes, bytes]:
    # A float32 has four bytes, so the lengths before it depend on the tag alone.
    value = string(1, tag) + b"\x15"
    summary = b"\x0a" + varint(len(value) + 4) + value
    return summary, varint(SUMMARY << 3 | 2) + varint(len(summary) + 4) + summary


def summary_tags(summary: bytes) -> tuple[str, ...]:
    """Return the tags of a serialized ``Summary``; ValueError for other bytes."""
    try:
        return tuple(_quick_tags(summary) or _tags(summary))
    except (WireError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{len(summary)} bytes were passed that are no serialized Summary: {error} "
            "Pass a Summary, or what running a summary op returned."
        ) from None


def _quick_tags(summary: bytes) -> list[str] | None:
    """Return the tags if each value starts with a tag of up to 127 bytes; else None."""
    tags, position, end = [], 0, len(summary)
    view = memoryview(summary)
    while position < end:
        if summary[position] != 0x0A:
            return None
        size, start = read_varint(view, position + 1)
        position = start + size
        if size < 2 or position > end or summary[start] != 0x0A or summary[start + 1] > 127:
            return None
        stop = start + 2 + summary[start + 1]
        if stop > position:
            return None
        tags.append(summary[start + 2 : stop].decode())
    return tags


def _tags(summary: bytes) -> Iterator[str]:
    for number, wire_type, value in fields(summary):
        if number != 1 or isinstance(value, int) or wire_type != DELIMITED:
            raise WireError(f"Field {number} of type {wire_type} is not one of a Summary.")
        for inner, _, tag in fields(value):
            if inner == 1 and not isinstance(tag, int):
                yield str(tag, "utf-8")
                break
        else:
            yield ""


def may_be_dropped(entry: Entry) -> bool:
    """Return whether an entry is a value: graphs, session logs and the like are always written."""
    return entry[2] is not None
