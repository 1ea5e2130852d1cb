"""What the calls of a pipeline know of the learner: its versions, and the weights of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from asyncmon.runtime.frontier import Recoveries
from asyncmon.system.error_text import add_note


class Versions:
    """The versions of the learner: the number of committed steps.

    Args:
        sessions: of the session.
        fetches: of the weights, or None.
        peek: see ``program.peek_with_step``.
    """

    def __init__(
        self,
        sessions: Recoveries,
        fetches: Any,
        peek: Callable[[Any, Any], Awaitable[tuple[int | None, Any]]],
    ) -> None:
        self._sessions = sessions
        self._fetches = fetches
        self._peek_with_step = peek
        self._waiters: list[asyncio.Future[None]] = []
        self._copy: tuple[int, asyncio.Future[tuple[int, Any]]] | None = None
        self._seen = self.now

    @property
    def now(self) -> int:
        """The present version. During a recovery, that before the interrupted run."""
        return self._sessions.step_of_data() or 0

    @property
    def has_weights(self) -> bool:
        """Whether there are fetches of the weights."""
        return self._fetches is not None

    def have_changed(self) -> bool:
        """Return whether there is a new version since the last call. If so, wake its waiters."""
        if self._seen == self.now:
            return False
        self.wake()
        return True

    def wake(self) -> None:
        """Wake the waiters for a version, or for the end of a recovery."""
        self._seen = self.now  # a recovery may have moved it back
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def forget(self) -> None:
        """Drop the copy of the weights: the state went back, and a version is another one."""
        self._copy = None
        self.wake()

    async def wait_newer(self, version: int) -> int:
        """Wait for another version than this one, and return it."""
        while (now := self.now) == version:
            await self._wait()
        return now

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def weights(self) -> tuple[int, Any]:
        """Return the newest version and its weights: one copy of a version for all callers."""
        if self._fetches is None:
            raise ValueError(
                "policy.weights() needs the fetches of the weights: produce(..., weights='policy')."
            )
        while (session := self._sessions.current) is None:
            await self._wait()
        copy, now = self._copy, self.now
        if copy is None or (copy[1].result()[0] if _is_there(copy[1]) else copy[0]) != now:
            copy = self._copy = now, asyncio.ensure_future(self._peek(session.raw))
        return await asyncio.shield(copy[1])

    async def _peek(self, raw: Any) -> tuple[int, Any]:
        before = self.now
        try:
            step, weights = await self._peek_with_step(raw, self._fetches)
        except Exception as error:
            add_note(error, f"asyncmon: raised by policy.weights(), weights={self._fetches!r:.100}")
            raise
        return before if step is None else step, weights


def _is_there(copy: asyncio.Future[Any]) -> bool:
    return copy.done() and not copy.cancelled() and copy.exception() is None


class Policy:
    """What one call of a pipeline's function knows of the learner."""

    __slots__ = ("_first", "_is_pinned", "_version", "_versions", "oldest")

    def __init__(self, versions: Versions, first: Policy | None = None) -> None:
        self._versions = versions
        self._first = first  # of the call; None for that one
        self._version = versions.now
        self.oldest = self._version
        """The oldest version that has a part in the result."""
        self._is_pinned = False  # whether the call may have used the version

    def __repr__(self) -> str:
        return f"<Policy of version {self._version}>"

    @property
    def version(self) -> int:
        """The committed steps of the learner when the call began, or of the newest weights it has got.

        A call that has read it is taken to use it: ``Item.version`` is not newer.
        """
        self._is_pinned = True
        return self._version

    @property
    def has_weights(self) -> bool:
        """Whether the pipeline has ``weights=``."""
        return self._versions.has_weights

    @property
    def newer(self) -> bool:
        """Whether another version is committed than :attr:`version`, so that the call may give way."""
        self._is_pinned = True
        return self._versions.now != self._version

    async def wait_newer(self) -> Policy:
        """Wait until :attr:`newer` is true, and return the newest version as a policy of its own.

        This version still has a part in the result. Cancelling this changes nothing.
        """
        await self._versions.wait_newer(self.version)
        first = self._first or self
        first._is_pinned = True
        return Policy(self._versions, first)

    async def weights(self) -> Any:
        """Return the newest committed weights: the fetches ``weights=`` of ``sess.produce``.

        A version is fetched once for all calls, by ``peek``, which delays no step: do not write into
        it. :attr:`version` becomes that of the weights. During a recovery this waits.

        Raises:
            ValueError: the pipeline has no ``weights=``.
            Exception: that of ``peek``.
        """
        self._version, weights = await self._versions.weights()
        if self._first is None and not self._is_pinned:  # no older version has a part in the result
            self.oldest, self._is_pinned = self._version, True
        return weights
