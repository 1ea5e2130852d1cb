"""Stop together: what the sessions of a cluster tell each other."""

from __future__ import annotations

import asyncio
import logging
import os
import socket

from asyncmon.errors import AbortedError, UnavailableError
from asyncmon.hooks.hook_support import created_session
from asyncmon.runtime import (
    SAVER,
    Coordinator,
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.runtime.program import step_fetch
from asyncmon.runtime.protocols import Peers, SessionMembers
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)

_POLL_SECS = 10.0  # how long a question may wait for its answer; the server may answer earlier
_PAUSE_SECS = 1.0  # after an error, while the session recovers
_RUN_SECS = 10.0  # how long a stop waits for the end of a run


class ClusterHook(SessionRunHook):
    """A stop that is requested in one session of a cluster reaches all, and the chief leaves last.

    :func:`MonitoredTrainingSession` adds one where its ``master`` is not "". A request stops the
    others, after the run that is under way or 10 s later; the end of one's data and an error do not. A
    run that fails meanwhile is recovered from, maybe to an earlier step, and training goes on to the
    step of the stop. The chief waits until the workers have left, and then its last checkpoint is
    saved, so that all of their steps are in it. Sessions that are in no cluster are left alone.

    Args:
        is_chief: whether this session is to leave last.
        wait_secs: for how long the chief waits. Those that it did not wait for are named in a WARNING.

    Example::

        creator = WorkerSessionCreator(master=server.target)
        async with MonitoredSession(creator, hooks=[ClusterHook(is_chief=False)]) as sess:
            ...
    """

    priority = SAVER - 1
    """After all other hooks but savers."""

    def __init__(self, is_chief: bool = True, wait_secs: float = 30.0) -> None:
        self._is_chief = is_chief
        self._wait_secs = wait_secs
        role = "chief" if is_chief else "worker"
        self._name = f"{role} {socket.gethostname()}:{os.getpid()}:{os.urandom(3).hex()}"
        self._coord: Coordinator | None = None
        self._stop: str | None = None  # why another session stopped

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Join the sessions that train together."""
        self._coord, self._stop = coord, None
        peers = members_of(SessionMembers, session).peers
        if peers is not None:
            await peers.join(self._name, self._is_chief)

    async def background(self, session: Session, coord: Coordinator) -> None:
        """Wait for the word that it is to stop."""
        members = members_of(SessionMembers, session)
        peers = members.peers
        while peers is not None and not members.closed:
            try:
                answer = await peers.watch(self._name, _POLL_SECS)
            except (AbortedError, UnavailableError) as error:  # the next run recovers from it
                logger.debug("The other sessions cannot be asked: %s", error)
                await asyncio.sleep(_PAUSE_SECS)
                continue
            if answer["stop"] is not None:
                self._stop = answer["stop"]
                # A run that fails now is repeated, maybe from an earlier state: that may go on.
                if created_session(coord).boundary.running:
                    await coord.wait_for_stop(_RUN_SECS)
                coord.request_stop(reason=self._stop)
                return

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Stop after a run that succeeded, where another session has stopped."""
        if self._stop is not None:
            run_context.request_stop(self._stop)

    async def end(self, session: Session) -> None:
        """Tell the others of a stop; as the chief, wait for them."""
        members, coord = members_of(SessionMembers, session), self._coord
        peers = members.peers
        if peers is None or coord is None:
            return
        try:
            if coord.should_stop():
                reason = coord.stop_reason or f"{self._name} stopped"
                await peers.stop(self._name, reason, members.global_step)
            if self._is_chief:
                await self._wait_for_others(peers)
                fetch = step_fetch(session)
                if fetch is not None:
                    await session.run(fetch)  # so that it knows of the others' last steps
            await peers.leave(self._name)
        except (AbortedError, UnavailableError) as error:
            logger.warning("The other sessions of the cluster cannot be told of the end: %s", error)

    async def _wait_for_others(self, peers: Peers) -> None:
        loop = asyncio.get_running_loop()
        end, waited = loop.time() + self._wait_secs, 0.0
        others: list[str] = []
        while (left := end - loop.time()) > 0:
            answer = await peers.watch(self._name, min(left, waited), len(others))
            others = answer["others"]
            if not others:
                return
            if not waited:
                logger.info("Waiting for %d sessions of the cluster to end: %s.", len(others), others)
            waited = _POLL_SECS
        logger.warning(
            "After %g s these sessions of the cluster have not ended, and are not waited for: %s.",
            self._wait_secs, ", ".join(others),
        )  # fmt: skip
