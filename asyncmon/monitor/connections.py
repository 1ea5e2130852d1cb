"""Bounds of a server's connections, which hold before any request is authenticated."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from asyncmon.system import clock, portable

logger = logging.getLogger(__name__)

MOST = 128
MOST_OF_CLIENT = 48
"""Of one address. Less than the viewers of a server, so that one address cannot keep out the others."""

HEAD_SECS = 10.0
"""The time for the head of a request."""

BACKLOG = 16
"""The connections that one iteration of the loop accepts. Each takes a descriptor before its protocol
can refuse it."""

RESERVE = 32
"""The descriptors that the connections leave to the program."""

_WARN_SECS = 60.0


class Connections:
    """The open connections of a server.

    A new connection above a bound replaces the longest one that has no open request. If there is
    none, it is refused.
    """

    def __init__(self, most: int = MOST, most_of_client: int = MOST_OF_CLIENT) -> None:
        self._most = most
        self._most_of_client = most_of_client
        self._open: dict[Any, str] = {}  # the clients by protocol, in the order of their arrival
        self._warn_at = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, protocol: Any, client: str, descriptor: int) -> bool:
        """Add a connection and return True, or refuse it."""
        limit = portable.most_descriptors()
        # The system gives the least free number, so that those below it are in use.
        has_room = limit is None or descriptor < limit - RESERVE
        same = [one for one, other in self._open.items() if other == client]
        crowd = same if len(same) >= self._most_of_client else list(self._open)
        if has_room and (len(same) >= self._most_of_client or len(self._open) >= self._most):
            idle = next((one for one in crowd if not one.is_busy()), None)
            if idle is None:
                has_room = False
            else:
                self.remove(idle)
                idle.transport.abort()
        if has_room:
            self._open[protocol] = client
        elif clock.monotonic() >= self._warn_at:
            self._warn_at = clock.monotonic() + _WARN_SECS
            logger.warning(
                "The monitor refuses connections: it has %d, of which %d are of %s.",
                len(self._open), len(same), client,
            )  # fmt: skip
        return has_room

    def remove(self, protocol: Any) -> None:
        """Remove a connection that has ended."""
        self._open.pop(protocol, None)


def bounded(protocol_class: type[Any], connections: Connections) -> type[Any]:
    """Return an HTTP protocol of uvicorn whose connections are bounded."""

    class Bounded(protocol_class):  # type: ignore[misc]  # h11's or httptools'
        _head: asyncio.TimerHandle | None = None

        def is_busy(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            opened = transport.get_extra_info("socket")
            descriptor = -1 if opened is None else opened.fileno()
            if connections.add(self, self.client[0] if self.client else "local", descriptor):
                self._await_head()
            else:
                transport.abort()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._head is not None and self.is_busy():
                self._head.cancel()
                self._head = None
            elif self._head is None and not self.is_busy():  # of a further request
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None
            connections.remove(self)
            super().connection_lost(exc)

        def _await_head(self) -> None:
            loop = asyncio.get_running_loop()
            self._head = loop.call_later(HEAD_SECS, self._head_is_late)

        def _head_is_late(self) -> None:
            self._head = None
            if not self.is_busy():
                self.transport.abort()

    return Bounded
