"""A service of this process, reached by messages that are really written and read."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from typing import Any

from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.distributed.partitioned_backend import PartitionedBackend
from asyncmon.distributed.placement import Placement
from asyncmon.distributed.remote_backend import RemoteBackend
from asyncmon.distributed.service import SessionService
from asyncmon.distributed.wire import Message, frame, unframe
from asyncmon.errors import CancelledError, UnavailableError
from asyncmon.graph import Graph, Session
from asyncmon.graph.execution.executor import Executor
from asyncmon.graph.execution.state import StateStore
from asyncmon.graph.session.backend import DirectBackend, register_session_factory
from asyncmon.session_config import SessionConfig

_numbers = itertools.count()


def own_state_service() -> SessionService:
    """Return a service whose sessions have a state each."""
    return SessionService(lambda graph, config: DirectBackend(graph, Executor(StateStore(1), config)))


class InProcessCluster:
    """Tasks of a cluster in this process, each with a state that its sessions share.

    Attributes:
        services: by place.
        channels: all that were made, by place.
    """

    def __init__(self, spec: Any) -> None:
        self.spec = ClusterSpec(spec)
        self.services: dict[str, SessionService] = {}
        self.executors: dict[str, Executor] = {}
        self.channels: dict[str, list[InProcessChannel]] = defaultdict(list)
        for job in self.spec.jobs:
            for task in self.spec.task_indices(job):
                self.start(f"/job:{job}/task:{task}")

    def start(self, place: str) -> None:
        """Start a task, with nothing in its state."""
        executor = self.executors[place] = Executor(StateStore(1), SessionConfig())
        self.services[place] = SessionService(
            lambda graph, _config: DirectBackend(graph, executor, shares=True)
        )
        for channel in self.channels[place]:
            channel.service = self.services[place]

    async def close(self) -> None:
        """End the threads of all tasks."""
        for executor in self.executors.values():
            await executor.close(CancelledError("The cluster was closed."))

    def session(self, job: str, task: int, config: SessionConfig | None = None) -> Session:
        """Return a session of the default graph at a task."""
        own = self.executors[f"/job:{job}/task:{task}"]

        def make(_target: str, graph: Graph, config: SessionConfig) -> PartitionedBackend:
            def connect(place: str) -> RemoteBackend:
                channel = InProcessChannel(self.services[place])
                self.channels[place].append(channel)
                return RemoteBackend(place, graph, config, channel, 10.0, is_part=True)

            placement = Placement(graph, self.spec, job, task)
            record = self.services[f"/job:{job}/task:{task}"].run_record
            return PartitionedBackend(
                graph, DirectBackend(graph, own, shares=True), record, placement, connect
            )

        self.target = f"cluster{next(_numbers)}"
        register_session_factory(self.target, make)
        return Session(self.target, config=config)


class InProcessChannel:
    """Carries bytes to a service of this process.

    Attributes:
        lose_answers: how many answers to lose, after the requests are done.
    """

    def __init__(self, service: SessionService) -> None:
        self.service = service
        self.lose_answers = 0
        self.closed = False
        self.requests: list[bytes] = []
        self.moved = 0  # bytes
        self._pending: set[asyncio.Task[Message]] = set()  # on the side of the service

    async def call(self, request: Message, timeout: float) -> Message:
        if self.closed:
            raise UnavailableError("The channel is closed.")
        self.requests.append(request.header)
        self.moved += sum(len(buffer) for buffer in request.buffers)
        answering = asyncio.create_task(self.service.answer(unframe(b"".join(frame(request)))))
        self._pending.add(answering)
        answering.add_done_callback(self._pending.discard)
        try:
            answer = await answering
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None, "a coroutine runs in a task"
            if task.cancelling():
                raise
            raise UnavailableError("The connection broke.") from None
        data = bytearray(b"".join(frame(answer)))
        self.moved += sum(len(buffer) for buffer in answer.buffers)
        answer.sent()
        if self.lose_answers:
            self.lose_answers -= 1
            raise UnavailableError("The connection broke.")
        return unframe(data)

    def disconnect(self) -> None:
        """End the connection: pending requests fail here, and are cancelled there."""
        for pending in tuple(self._pending):
            pending.cancel()

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
