"""The queue of pending events, which are encoded later, in the writer's thread.

An entry is a tuple ``(wall_time, step, tags, payload, encode)``. ``encode(tags, payload)`` runs in the
writer's thread. It returns the bytes of the event's other fields, or None for no event. ``tags`` is the
tag of a value, a tuple of the tags of a summary, or None for an event that must not be dropped, such as
a graph or a session log.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from typing import Any, Literal, get_args

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


Policy = Literal["block", "drop_oldest", "coalesce"]
MOST_PENDING = 500_000
"""Entries that ``"block"`` keeps, some 100 MB."""


class EventQueue:
    """Pending entries, and the policy for a slow disk. :meth:`put` is thread-safe.

    The queue is full when ``bound`` entries are pending while others are being written. Then

    * ``"block"`` adds the entry even so: producers await ``drain()`` to limit the queue. Beyond
      500,000 entries, as on a disk that is full for hours, it drops like the next policy;
    * ``"drop_oldest"`` drops the oldest value;
    * ``"coalesce"`` replaces the pending entry of the same tags, if any, so that the newest value of
      each tag is written.

    Graphs, session logs and other events without tags are never dropped.

    Attributes:
        busy: whether entries are being written. Set by the writer.
        dropped: the number of dropped and replaced events.
    """

    def __init__(self, policy: Policy, bound: int) -> None:
        if policy not in get_args(Policy):
            raise ValueError(f"policy={policy!r} was passed; expected one of {get_args(Policy)}.")
        if bound < 1:
            raise ValueError(f"max_queue={bound!r} was passed; expected 1 or more.")
        self.policy = policy
        self.bound = bound
        self.busy = False
        self.dropped = 0
        self._most = MOST_PENDING if policy == "block" else bound
        self._make_room = self._coalesce if policy == "coalesce" else self._drop_oldest
        self._entries: deque[Entry] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry) -> int:
        """Add an entry and return the number of pending entries."""
        with self._lock:
            entries = self._entries
            if self.busy and len(entries) >= self._most:
                self._make_room(entry)
            entries.append(entry)
            return len(entries)

    def pending(self) -> list[Entry]:
        """Return all entries."""
        with self._lock:
            return list(self._entries)

    def take(self) -> list[Entry]:
        """Remove and return all entries."""
        with self._lock:
            entries, self._entries = self._entries, deque()
        return list(entries)

    def _drop_oldest(self, entry: Entry) -> None:
        for index, pending in enumerate(self._entries):
            if pending[2] is not None:
                del self._entries[index]
                self.dropped += 1
                return

    def _coalesce(self, entry: Entry) -> None:
        tags = entry[2]
        if tags is None:
            return
        for index, pending in enumerate(self._entries):
            if pending[2] == tags:
                del self._entries[index]
                self.dropped += 1
                return
