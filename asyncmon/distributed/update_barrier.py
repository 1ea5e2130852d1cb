"""A barrier for updates, so that a snapshot of several servers is of one version.

Each step of a worker that writes on several servers has a number, which it sends to each. A snapshot
*holds* all servers: later updates wait. It gets the steps that each server has applied, and *allows*
the steps that another server has applied already. Then each server has the same steps, and the
snapshots are taken; *release* lets the updates continue. Only updates wait, not other computations.

A restore holds the servers too. It supersedes an earlier hold: a snapshot of the values before the
restore is useless, and a failed hold may not have sent its release.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from asyncmon.errors import AbortedError

_WORKERS = 10_000  # remembered; the least recent one is dropped

LATE = "A snapshot of several servers took too long, or variables were restored during it."
"""The error of a snapshot or a restore if updates continued before its end."""


class UpdateBarrier:
    """See the module. One a server.

    Args:
        lease_secs: seconds without a request after which a hold expires.
    """

    def __init__(self, lease_secs: float) -> None:
        self._lease_secs = lease_secs
        self._applied: dict[str, list[Any]] = {}  # by worker: number, parts, how many for each place
        self._given_up: dict[str, int] = {}
        self._running = 0
        self._token: str | None = None
        self._released: str | None = None  # the last one, whose request may be repeated
        self._allowed: Mapping[str, int] = {}
        self._lease: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    @contextlib.asynccontextmanager
    async def update(self, label: list[Any]) -> AsyncIterator[None]:
        """Wait until an update is allowed, and apply it inside. A failed update does not count.

        Args:
            label: the worker, the number of its step, and how many parts it has at each place.

        Raises:
            AbortedError: a snapshot with its other half was taken without it, or variables were set
                after its other half.
        """
        worker, number, counts = label
        await self._until(lambda: self._token is None or number <= self._allowed.get(worker, 0))
        if number <= self._given_up.get(worker, 0):
            raise AbortedError(
                f"Step {number} of a worker came too late: variables of several servers were "
                "saved or restored meanwhile, and others have its updates."
            )
        self._running += 1
        try:
            yield
            last = self._applied.pop(worker, [0, 0, {}])
            parts = last[1] + 1 if last[0] == number else 1
            self._applied[worker] = [number, parts, counts]
            while len(self._applied) > _WORKERS:
                del self._applied[next(iter(self._applied))]
        finally:
            self._running -= 1
            self._changed.set()

    async def hold(self, token: str, *, restores: bool = False) -> dict[str, list[Any]]:
        """Block updates; return the applied steps after current updates have completed.

        Raises:
            AbortedError: a restore has superseded this hold.
        """
        await self._until(lambda: restores or self._is_free_for(token))
        self._token, self._allowed = token, {}
        self._renew(token)
        self._changed.set()
        await self._until(lambda: not self._running or self._token != token)
        self._check(token)
        return dict(self._applied)

    def _is_free_for(self, token: str) -> bool:
        """Return whether a snapshot may hold. One of the same session has lost its release."""
        held = self._token
        return held is None or held.partition(".")[0] == token.partition(".")[0]

    async def allow(self, token: str, wanted: Mapping[str, int], place: str, secs: float) -> None:
        """Allow these steps of workers, and wait for them with a timeout.

        After the timeout a worker counts as dead: its later updates are refused, and later holds do not
        wait for it. Without a timeout the steps are refused at once.
        """
        self._check(token)
        if secs > 0:
            self._allowed = wanted
            self._renew(token)
            self._changed.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(secs, self._lease_secs / 2)):
                    await self._until(
                        lambda: (
                            not self._running
                            and all(self._has(worker, wanted[worker], place) for worker in wanted)
                        )
                    )
            self._check(token)
        self._allowed = {}
        for worker, number in wanted.items():
            if not self._has(worker, number, place):
                self._given_up[worker] = number
        self._renew(token)

    def forget(self, worker: str) -> None:
        """Forget a worker whose session is closed."""
        self._applied.pop(worker, None)
        self._given_up.pop(worker, None)

    def restored(self) -> None:
        """Clear the applied steps: variables were set. Refused steps stay refused."""
        self._applied.clear()

    def _has(self, worker: str, number: int, place: str) -> bool:
        if number <= self._given_up.get(worker, 0):
            return True
        if worker not in self._applied:
            return False
        last, parts, counts = self._applied[worker]
        return bool(last > number or (last == number and parts >= counts.get(place, 1)))

    def release(self, token: str) -> bool:
        """Unblock updates. Return whether they were blocked until now."""
        if self._token == token:
            self._free(token)
            self._released = token
        return self._released == token

    async def answer(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Execute a request: :meth:`hold`, :meth:`allow` or :meth:`release`."""
        token = content["token"]
        match content["do"]:
            case "hold":
                return {"applied": await self.hold(token, restores=content["restores"])}
            case "allow":
                await self.allow(token, content["wanted"], content["place"], content["wait"])
                return {}
            case _:
                return {"held": self.release(token)}

    def _free(self, token: str) -> None:
        if self._token == token:
            self._token, self._allowed = None, {}
            if self._lease is not None:
                self._lease.cancel()
            self._changed.set()

    def _check(self, token: str) -> None:
        if self._token != token:
            raise AbortedError(LATE)

    def _renew(self, token: str) -> None:
        if self._lease is not None:
            self._lease.cancel()
        self._lease = asyncio.get_running_loop().call_later(self._lease_secs, self._free, token)
