"""A service of this process, reached by messages that are really written and read."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from asyncmon.distributed.remote_backend import RemoteBackend
from asyncmon.distributed.service import SessionService
from asyncmon.distributed.wire import Message, frame, unframe
from asyncmon.errors import UnavailableError
from asyncmon.graph import Session
from asyncmon.graph.execution.executor import Executor
from asyncmon.graph.execution.state import StateStore
from asyncmon.graph.session.backend import DirectBackend, register_session_factory

if TYPE_CHECKING:
    from asyncmon.session_config import SessionConfig

_numbers = itertools.count()


def own_state_service(**options: float) -> SessionService:
    """Return a service whose sessions have a state each."""
    return SessionService(
        lambda graph, config: DirectBackend(graph, Executor(StateStore(1), config)), **options
    )


class InProcessChannel:
    """Carries bytes to a service of this process.

    Attributes:
        lose_answers: how many answers to lose, after what was asked for is done.
    """

    def __init__(self, service: SessionService) -> None:
        self.service = service
        self.lose_answers = 0
        self.closed = False
        self.requests: list[bytes] = []

    async def call(self, request: Message, timeout: float) -> Message:
        if self.closed:
            raise UnavailableError("The channel is closed.")
        self.requests.append(request.header)
        answer = await self.service.answer(unframe(b"".join(frame(request))))
        data = bytearray(b"".join(frame(answer)))
        answer.sent()
        if self.lose_answers:
            self.lose_answers -= 1
            raise UnavailableError("The connection broke.")
        return unframe(data)

    async def close(self) -> None:
        self.closed = True


def remote_session(
    channel: InProcessChannel, timeout_secs: float = 10.0, config: SessionConfig | None = None
) -> Session:
    """Return a session of the default graph that a channel's service runs."""
    scheme = f"test{next(_numbers)}"
    register_session_factory(
        scheme,
        lambda target, graph, config: RemoteBackend(target, graph, config, channel, timeout_secs),
    )
    return Session(scheme, config=config)
