"""The bounded queue between those who add events and the thread that writes them."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from asyncmon.summary.entries import Entry

__all__ = ["Backlog", "Policy"]

Policy = Literal["block", "drop_oldest", "coalesce"]


class Backlog:
    """Entries in order, and what to do when the disk is behind.

    A backlog is full when ``bound`` entries wait while others are being written. Then

    * ``"block"`` takes more: nothing is lost, and who adds may await ``drain()`` not to run ahead;
    * ``"drop_oldest"`` drops the oldest value;
    * ``"coalesce"`` lets a value replace the waiting one of the same tags; a tag not yet waiting is
      taken, so that every tag's newest value arrives.

    Graphs, session logs and other events without tags are always kept. Any thread may put.

    Attributes:
        busy: entries are being written at this moment. Set by who writes.
        dropped: how many events were dropped or replaced since the beginning.
    """

    def __init__(self, policy: Policy, bound: int) -> None:
        if policy not in get_args(Policy):
            raise ValueError(f"policy={policy!r} was passed; expected one of {get_args(Policy)}.")
        if bound < 1:
            raise ValueError(f"max_queue={bound!r} was passed; expected 1 or more.")
        self.bound = bound
        self.busy = False
        self.dropped = 0
        self._make_room = {"block": None, "drop_oldest": self._drop_oldest, "coalesce": self._coalesce}[
            policy
        ]
        self._entries: deque[Entry] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry) -> int:
        """Add an entry and return how many wait now."""
        with self._lock:
            entries = self._entries
            if self._make_room is not None and self.busy and len(entries) >= self.bound:
                self._make_room(entry)
            entries.append(entry)
            return len(entries)

    def take(self) -> list[Entry]:
        """Return all entries and be empty."""
        with self._lock:
            entries, self._entries = self._entries, deque()
        return list(entries)

    def _drop_oldest(self, entry: Entry) -> None:
        for index, waiting in enumerate(self._entries):
            if waiting[2] is not None:
                del self._entries[index]
                self.dropped += 1
                return

    def _coalesce(self, entry: Entry) -> None:
        tags = entry[2]
        if tags is None:
            return
        for index, waiting in enumerate(self._entries):
            if waiting[2] == tags:
                del self._entries[index]
                self.dropped += 1
                return
