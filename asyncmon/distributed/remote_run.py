"""The run of a cluster as one of its sessions sees it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from asyncmon.distributed.fingerprint import variables_of
from asyncmon.errors import FailedPreconditionError
from asyncmon.graph.core.graph import Graph
from asyncmon.runtime.stop.stop import Stop
from asyncmon.system import clock

logger = logging.getLogger(__name__)

# How long a chief waits for the end of another chief of its directory, which may be dead.
_OTHER_CHIEF_SECS = 30.0

_OTHER_CHIEF_PAUSE_SECS = 0.5


class RemoteRun:
    """Sends requests to the :class:`.RunRecord` of a run.

    See :class:`asyncmon.runtime.protocols.ClusterRun`.

    Args:
        ask: sends a request to the record, which may be in another process.
        graph: the graph of the session.
    """

    def __init__(self, ask: Callable[..., Awaitable[dict[str, Any]]], graph: Graph) -> None:
        self._ask = ask
        self._graph = graph
        self.may_leave = False
        """Whether the job of this session is elastic, as the server says when it joins."""
        self._number: str | None = None
        self._directory = ""
        self._restores = 0

    def continue_from(self, before: RemoteRun) -> None:
        """Take part in the run of a session that this one replaces."""
        self._number, self._directory = before._number, before._directory

    async def begin(self, directory: str) -> bool:
        """Begin a run as its chief. Return whether the variables are live.

        Another chief of this directory whose connection has not ended is waited for, half a minute.

        Raises:
            FailedPreconditionError: another chief or its workers train.
        """
        if self._number is None:
            self._directory = directory
        name = f"{socket.gethostname()}:{os.getpid()}"
        end, waits_for = clock.monotonic() + _OTHER_CHIEF_SECS, None
        while True:
            answer = await self._ask(
                method="begin", number=self._number, directory=self._directory, name=name,
                fingerprint=self._fingerprint(),
            )  # fmt: skip
            if "waits_for" not in answer:
                break
            if clock.monotonic() >= end:
                raise FailedPreconditionError(
                    f"The chief {name} cannot begin a run: the {answer['waits_for']} is connected to "
                    f"the same servers for {_OTHER_CHIEF_SECS:g} s now. End one of the two programs."
                )
            if waits_for is None:
                waits_for = answer["waits_for"]
                logger.info("Waiting for the end of the %s.", waits_for)
            await asyncio.sleep(_OTHER_CHIEF_PAUSE_SECS)
        self._number = answer["run"]
        return bool(answer["is_live"])

    async def restore(self) -> None:
        """Note that the chief begins to set the variables."""
        await self._ask(method="restore")

    async def ready(self) -> bool:
        """Return whether the variables are not about to be set by the chief."""
        return bool((await self._ask(method="ready", fingerprint=self._fingerprint()))["ready"])

    async def restored(self, before: int | None, after: int | None) -> None:
        """Record that the variables were set, from one step to another."""
        await self._ask(method="restored", number=self._number, before=before, after=after)

    async def join(self, name: str, is_chief: bool) -> Stop | None:
        """Add a session. Return the stop of the run, or None."""
        answer = await self._ask(
            method="join", name=name, is_chief=is_chief, number=self._number,
            fingerprint=self._fingerprint(),
        )  # fmt: skip
        self._number, self._restores = answer["run"], answer["restores"]
        self.may_leave = answer["may_leave"]
        return _received(answer["stop"])

    async def watch(self, name: str, wait: float, others: int | None = None) -> dict[str, Any]:
        """Return ``stop``, ``others``, ``rollback`` and ``saved`` of a change, or after a wait."""
        answer = await self._ask(
            method="watch", name=name, number=self._number, restores=self._restores, wait=wait,
            others=others,
        )  # fmt: skip
        if answer["restores"] == self._restores:
            answer["rollback"] = None
        answer["stop"] = _received(answer["stop"])
        self._number, self._restores = answer["run"], answer["restores"]
        return answer

    async def stop(self, stop: Stop, step: int | None = None) -> None:
        """Stop the run."""
        await self._ask(method="stop", number=self._number, stop=stop.to_wire(), step=step)

    async def saved(self, step: int) -> None:
        """Record that a checkpoint of a step is committed."""
        await self._ask(method="saved", number=self._number, step=step)

    async def leave(self, name: str) -> None:
        """Note that a session ends."""
        await self._ask(method="leave", name=name)

    def _fingerprint(self) -> dict[str, Any]:
        return {"cluster": None, "variables": variables_of(self._graph)}


def _received(stop: Any) -> Stop | None:
    return None if stop is None else Stop.from_wire(stop)
