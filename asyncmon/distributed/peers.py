"""The members of a cluster: sessions that train together and stop together, the chief last.

The server that holds the global step has the list of members. A session joins, polls for a stop
request, and leaves. A member that stops polling is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

from asyncmon.errors import InvalidArgumentError

Step = Callable[[], int | None]


_LEASE_SECS = 5.0
"""Seconds after which a member that does not poll is removed. Its next request adds it again."""


_UNTOLD_SECS = 30.0
"""Seconds during which a stop request also applies to late joiners."""


@dataclass(slots=True)
class _Member:
    """Attributes:
    seen: time of the end of its last request.
    waiting: the number of its pending requests.
    """

    is_chief: bool
    seen: float
    waiting: int = 0
    stop: str | None = None


class Peers:
    """The list of members on one server."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}
        self._reason, self._untold_until = (
            "",
            0.0,
        )  # of the last stop, and the end of its validity for late joiners
        self._had_chief = False
        self._later: tuple[int, str] | None = None  # a stop at a step that is ahead of the restored one
        self._changed = asyncio.Event()

    async def join(self, name: str, is_chief: bool) -> None:
        """Add a member."""
        if not self._others(name, monotonic())[0]:
            self._later = None  # of a finished run
        belongs = not self._had_chief if is_chief else not self._has_chief()
        member = self._members[name] = _Member(is_chief, monotonic())
        if belongs and monotonic() < self._untold_until:
            member.stop = self._reason
        if is_chief:
            self._untold_until = 0.0
        self._notify()

    def _has_chief(self) -> bool:
        return any(member.is_chief for member in self._members.values())

    async def leave(self, name: str) -> None:
        """Remove a member."""
        if self._members.pop(name, None) is not None:
            self._notify()

    async def stop(
        self, name: str, reason: str, step: int | None = None, current: Step | None = None
    ) -> None:
        """Broadcast a stop to all members, including late joiners of the same run.

        Late joiners are a chief, if none has joined yet, because a worker may begin before the chief
        that initialised its variables joins; and workers that find no chief.

        Args:
            name: the member that stops.
            reason: the reason.
            step: the step that it has reached. If variables were restored to an earlier step since, the
                stop applies when this step is reached again.
            current: returns the global step.
        """
        if step is not None and _is_behind(current, step):
            self._later = step, reason
        else:
            self._stop(reason)

    def _stop(self, reason: str) -> None:
        self._later = None
        for member in self._members.values():
            member.stop = member.stop or reason
        self._reason, self._untold_until = reason, monotonic() + _UNTOLD_SECS
        self._had_chief = self._has_chief()
        self._notify()

    def restored(self) -> None:
        """End the validity of the last stop for late joiners: variables were set for a new run."""
        self._untold_until = 0.0

    async def watch(
        self, name: str, wait: float, others: int | None = None, current: Step | None = None
    ) -> dict[str, Any]:
        """Return the reason of a stop, "" for none, and the names of the other members.

        Args:
            name: the member, which is added if it is missing.
            wait: timeout in seconds.
            others: wait while this number of others remains, instead of for a stop.
            current: returns the global step.
        """
        if self._later is not None and not _is_behind(current, self._later[0]):
            self._stop(self._later[1])
        member = self._members.setdefault(name, _Member(False, monotonic()))
        end = monotonic() + wait
        member.waiting += 1
        try:
            while True:
                now = monotonic()
                rest, until = self._others(name, now)
                is_due = member.stop is not None if others is None else len(rest) != others
                if is_due or now >= end:
                    return {"stop": member.stop, "others": rest}
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(end, until) - now):
                        await self._changed.wait()
        finally:
            member.waiting -= 1
            member.seen = monotonic()

    def _others(self, name: str, now: float) -> tuple[list[str], float]:
        """Return the other members after removing lost ones, and the time of the next removal."""
        ends = {x: inf if one.waiting else one.seen + _LEASE_SECS for x, one in self._members.items()}
        for one, end in ends.items():
            if end <= now:
                del self._members[one]
        rest = [one for one in self._members if one != name]
        return rest, min([ends[one] for one in rest], default=inf)

    async def answer(self, current: Step, method: Any, name: str, *args: Any) -> dict[str, Any]:
        """Execute a request of a :class:`RemotePeers`.

        Args:
            current: returns the global step.
            method: a method of this class.
            name: the member.
            args: the other arguments of the method.

        Raises:
            InvalidArgumentError: no such method.
        """
        match method, args:
            case "join", [is_chief]:
                await self.join(name, bool(is_chief))
            case "leave", []:
                await self.leave(name)
            case "stop", [reason, step]:
                await self.stop(name, str(reason), step, current)
            case "watch", [wait, others]:
                return await self.watch(name, float(wait), others, current)
            case _:
                raise InvalidArgumentError(f"There is no method {method!r} of peers for {args!r}.")
        return {}

    def _notify(self) -> None:
        self._changed.set()


def _is_behind(current: Step | None, step: int) -> bool:
    found = None if current is None else current()
    return found is not None and found < step


class RemotePeers:
    """The list of members in another process, with the methods of :class:`Peers`.

    Args:
        ask: sends a request to the session there.
        wait_secs: the maximum wait of a request in seconds.
    """

    def __init__(self, ask: Callable[..., Awaitable[dict[str, Any]]], wait_secs: float) -> None:
        self._request = ask
        self._wait_secs = wait_secs

    async def join(self, name: str, is_chief: bool) -> None:
        await self._ask("join", name, is_chief)

    async def leave(self, name: str) -> None:
        await self._ask("leave", name)

    async def stop(self, name: str, reason: str, step: int | None = None) -> None:
        await self._ask("stop", name, reason, step)

    async def watch(self, name: str, wait: float, others: int | None = None) -> dict[str, Any]:
        """Call :meth:`Peers.watch` there, with the maximum wait of a request."""
        return await self._ask("watch", name, min(wait, self._wait_secs), others)

    async def answer(self, _current: Step, method: Any, name: str, *args: Any) -> dict[str, Any]:
        """Send a request for :meth:`Peers.answer`."""
        return await self._ask(method, name, *args)

    async def _ask(self, method: str, *args: Any) -> dict[str, Any]:
        return await self._request("peers", method=method, args=args)
