"""A task of a cluster: it runs the sessions of others. TF1: ``tf.train.Server``."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.distributed.partitioned_backend import PartitionedBackend
from asyncmon.distributed.placement import Placement
from asyncmon.distributed.remote_backend import RemoteBackend
from asyncmon.distributed.service import SessionService
from asyncmon.distributed.targets import servers_here, servers_waiting
from asyncmon.distributed.transport import transport
from asyncmon.distributed.wire import Decoder, Encoder, Message
from asyncmon.errors import (
    AbortedError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    UnavailableError,
)
from asyncmon.graph.core.graph import DEFAULT_CONTAINER, Graph
from asyncmon.graph.core.node import Operation
from asyncmon.graph.execution.executor import Executor
from asyncmon.graph.execution.state import StateStore
from asyncmon.graph.session.backend import Backend, DirectBackend
from asyncmon.protobuf.cluster_def import ServerDef
from asyncmon.session_config import SessionConfig
from asyncmon.system.cancellation import outlast, running_loop
from asyncmon.system.clock import random_seed

logger = logging.getLogger(__name__)

_GRACE_SECS = 0.5  # for requests when a server stops; their clients then see it as unavailable
_STOP_SECS = 10.0  # for sessions to end


class Server:
    """Runs the sessions of other processes, which share its variables by name. TF1: same name.

    Where an event loop is running, the port is bound when the server is made, and requests are taken
    from the loop's next iteration on; ``await start()`` or ``async with`` waits for that. A server made
    before the event loop runs is started in it by its first use: ``start()``, ``join()``, ``target``,
    or a session of this process with that target. ``stop()``, the end of the block and the end of the
    event loop end it. A session of its own process and event loop works with it directly.

    With neither ``config.rpc_options.token`` nor a certificate it takes connections of this machine
    only. With a certificate the connections are encrypted, and with an authority only clients of a
    certificate that it signed are served. A token alone is sent as it is: use it in trusted networks.

    Args:
        server_or_cluster_def: a cluster, as for :class:`ClusterSpec`, or a ``ServerDef``.
        job_name: the server's job; may be left out where there is one.
        task_index: its task of that job; likewise.
        protocol: "grpc", the default.
        config: how sessions use the machine: threads and times are those of the server, not of its
            clients. And ``rpc_options``. By default that of the ``ServerDef``.
        start: false to start by hand.

    Raises:
        ValueError: the job or the task must be said, or there is no such job.
        TypeError: what describes no cluster.
        InternalError: the cluster has no such task.
        InvalidArgumentError: an address without a port.
        NotFoundError: a protocol that there is not.
        UnknownError: the port is taken; now, or from ``start()``.
        ModuleNotFoundError: grpcio is not installed; likewise.

    Example::

        async with Server({"ps": ["localhost:2222"], "worker": ["localhost:2223"]}, "ps", 0) as server:
            await server.join()
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: SessionConfig | None = None,
        start: bool = True,
    ) -> None:
        if config is not None and not isinstance(config, SessionConfig):
            raise TypeError(f"config must be a SessionConfig, got {config!r}.")
        self._def = _server_def(server_or_cluster_def, job_name, task_index, protocol)
        if config is not None:
            self._def.default_session_config = config
        self._config: SessionConfig = self._def.default_session_config
        self._config.check()
        self._host, self._port = _address(self._def)
        self._starts = start
        self.state = SharedState(self._config)  # its backends are those of parts of sessions, too
        self.service = SessionService(self.backend, self.state.backend)
        self.service.add_method("reset", self._answer_reset)
        self._cluster = self.service.run_record.cluster = ClusterSpec(self._def.cluster)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._stopping = asyncio.Event()
        if start and running_loop() is not None:
            self._begin()
        elif start:
            self._port = self._port or _free_port()
            servers_waiting.get()[self._target] = self

    @staticmethod
    def create_local_server(config: SessionConfig | None = None, start: bool = True) -> Server:
        """Return a server of a cluster of its own, on a free port of this machine. TF1: same name."""
        return Server({"localhost": ["localhost:0"]}, protocol="grpc", config=config, start=start)

    @property
    def server_def(self) -> ServerDef:
        """The server as data. TF1: same name."""
        return self._def

    @property
    def target(self) -> str:
        """What sessions connect to: ``"grpc://host:port"``. TF1: same name.

        Raises:
            FailedPreconditionError: the port is not known: any free one is meant, and it did not start.
            UnknownError: the port is taken.
        """
        self.start_with_loop()
        if not self._port:
            raise FailedPreconditionError(
                "The port of a server is not known before it starts: await start() first."
            )
        return self._target

    @property
    def _target(self) -> str:
        return f"grpc://{self._host}:{self._port}"

    def start_with_loop(self) -> None:
        """Start, if that was left to the event loop, and it is running."""
        waits = self._starts and self._task is None and not self._stopping.is_set()
        if waits and running_loop() is not None:
            self._begin()

    async def start(self) -> None:
        """Take requests. Another call does nothing.

        Raises:
            UnknownError: the port is taken.
            RuntimeError: it was stopped.
        """
        if self._task is None:
            self._begin()
        assert self._ready is not None, "set in _begin"
        await asyncio.shield(self._ready)

    async def join(self) -> None:
        """Wait until it is stopped. TF1: same name, which never returns.

        Raises:
            FailedPreconditionError: it was made with ``start=False``, and not started.
        """
        if self._task is None:
            if not self._starts:
                raise FailedPreconditionError("The server was not started: await start() first.")
            await self.start()
        assert self._task is not None, "set in start"
        await asyncio.wait((self._task,))

    async def stop(self) -> None:
        """Stop, for good: take no requests, end all sessions, free the port, within some seconds.

        Clients see ``UnavailableError``. A second call waits for the same end.
        """
        self._stopping.set()
        if self._task is not None:
            cancelled = await outlast(self._task)
            if cancelled is not None:
                raise cancelled

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    @property
    def executor(self) -> Executor:
        """Executes the runs of the sessions that share their state."""
        return self.state.executor

    def backend(self, graph: Graph, config: SessionConfig) -> Backend:
        """Return the backend of a session: of this task, and of the tasks of its devices."""
        cluster = self._cluster
        job, task = self._def.job_name, self._def.task_index
        placement = Placement(graph, cluster, job, task, soft=bool(config.allow_soft_placement))
        if sum(map(cluster.num_tasks, cluster.jobs)) == 1:
            return self.state.backend(graph, config, placement.check)
        own = self.state.backend(graph, config)
        isolated = config.isolate_session_state
        return PartitionedBackend(
            graph, own, self.service.run_record, placement,
            lambda place: self._connected(graph, placement.address(place), isolated),
            shares_state=not isolated,
        )  # fmt: skip

    async def reset(self, containers: Sequence[str]) -> None:
        """Clear the state of the server and of the other tasks of its cluster.

        See :meth:`asyncmon.graph.Session.reset`.

        Raises:
            UnavailableError: a task cannot be reached. The others are cleared.
        """
        await self._reset_here(containers)
        own, cluster = (self._def.job_name, self._def.task_index), self._cluster
        places = [(job, task) for job in cluster.jobs for task in cluster.task_indices(job)]
        addresses = [cluster.task_address(*place) for place in places if place != own]
        others = [self._connected(Graph(), address, False) for address in addresses]
        try:
            ended = [other.reset(containers, is_part=True) for other in others]
            found = await asyncio.gather(*ended, return_exceptions=True)
        finally:
            for other in others:
                await other.close()
        lost = {a: error for a, error in zip(addresses, found, strict=True) if error is not None}
        if lost:
            raise UnavailableError(
                f"The state of {', '.join(lost)} was not cleared, that of the other tasks was: "
                f"{next(iter(lost.values()))}"
            )

    async def _answer_reset(self, decoder: Decoder) -> Message:
        content = decoder.content
        await (self._reset_here if content["part"] else self.reset)(content["containers"])
        return Encoder().message({})

    async def _reset_here(self, containers: Sequence[str]) -> None:
        await self.state.reset(containers)
        await self.service.close()
        self.service.run_record.restore()

    def _connected(self, graph: Graph, address: str, isolated: bool) -> RemoteBackend:
        """Return the part of a session at another task."""
        rpc, config = self._config.rpc_options, SessionConfig(isolate_session_state=isolated)
        channel = transport.get().connect(address, rpc)
        return RemoteBackend(
            f"grpc://{address}", graph, config, channel, rpc.timeout_secs, is_part=True
        )

    @property
    def is_of_this_loop(self) -> bool:
        """Whether the running event loop is the server's."""
        return self._loop is not None and running_loop() is self._loop

    def _begin(self) -> None:
        """Bind the port, and start the task that is the server's life."""
        if self._stopping.is_set():
            raise RuntimeError("The server was stopped. Make another one.")
        servers_waiting.get().pop(self._target, None)
        rpc = self._config.rpc_options
        is_local = self._host.strip("[]") in ("localhost", "::1") or self._host.startswith("127.")
        is_open = not (rpc.token or rpc.certificate)
        place = ("[::1]" if "::1" in self._host else "127.0.0.1") if is_local or is_open else "[::]"
        listen = transport.get().listen
        self._listener = listen(self._host, f"{place}:{self._port}", self.service.answer, rpc)
        self._port = self._listener.port
        if is_open:
            logger.log(
                logging.INFO if is_local else logging.WARNING,
                "Server %s: neither a token nor a certificate is set: it takes connections of this "
                "machine and user only.",
                self._target,
            )
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        self._task = _ServerTask(self._serve(), loop=self._loop, name=f"server {self._target}")
        self._task.on_cancel = self._listener.take_no_more
        servers_here.get()[self._target] = self

    async def _serve(self) -> None:
        assert self._ready is not None, "set in _begin"
        try:
            await self._listener.start()
            if not self._ready.done():
                self._ready.set_result(None)
            job, task = self._def.job_name, self._def.task_index
            logger.info("Server %s: job %s, task %d.", self._target, job, task)
            await self._stopping.wait()
            self.service.release_clients()
            await self._listener.stop(_GRACE_SECS)
            logger.info("Server %s: stopped.", self._target)
        except OpError as error:  # it cannot start
            if self._ready.done():
                raise
            self._ready.set_exception(error)
            self._ready.exception()  # its waiters raise it
            logger.error("Server %s cannot start: %s", self._target, error)
        except asyncio.CancelledError:
            logger.debug("Server %s: the event loop ends before stop().", self._target)
            try:
                async with asyncio.timeout(_STOP_SECS):
                    await self._listener.stop(None)
            except TimeoutError:
                self._listener.abandon()
            raise
        finally:
            self._stopping.set()
            servers_here.get().pop(self._target, None)
            if not self._ready.done():
                self._ready.cancel()
            await self._end_sessions()

    async def _end_sessions(self) -> None:
        try:
            async with asyncio.timeout(_STOP_SECS):
                await self.service.close()
                await self.state.close("The server of this session was stopped.")
        except TimeoutError:
            logger.error(
                "Server %s: its sessions did not end within %g s: %s.",
                self._target, _STOP_SECS, self.executor.pending_operations(),
            )  # fmt: skip


def _free_port() -> int:
    """Return a port for a server that starts later; it is not reserved."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _ServerTask(asyncio.Task[None]):
    """Calls a function when it is cancelled, before any task of the loop has seen its cancellation."""

    on_cancel: Callable[[], None]

    def cancel(self, msg: Any = None) -> bool:
        if not self.done():
            self.on_cancel()
        return super().cancel(msg)


def _server_def(
    given: Any, job_name: str | None, task_index: int | None, protocol: str | None
) -> ServerDef:
    made = ServerDef()
    if isinstance(given, ServerDef):
        made.CopyFrom(given)
    else:
        try:
            cluster = ClusterSpec(given)
        except TypeError:
            raise TypeError(
                "Could not convert `server_or_cluster_def` to a `tf.train.ServerDef` or "
                "`tf.train.ClusterSpec`."
            ) from None
        if job_name is None:
            if len(cluster.jobs) != 1:
                raise ValueError("Must specify an explicit `job_name`.")
            job_name = cluster.jobs[0]
        if task_index is None:
            indices = cluster.task_indices(job_name)
            if len(indices) != 1:
                raise ValueError("Must specify an explicit `task_index`.")
            task_index = indices[0]
        made = ServerDef(cluster=cluster.as_cluster_def(), protocol="grpc")
    if job_name is not None:
        made.job_name = job_name
    if task_index is not None:
        made.task_index = task_index
    if protocol is not None:
        made.protocol = protocol
    if made.protocol != "grpc":
        raise NotFoundError(
            f"No server factory registered for the given ServerDef: {made}\nExpected protocol 'grpc'."
        )
    return made


def _address(server: ServerDef) -> tuple[str, int]:
    jobs = {job.name: job.tasks for job in server.cluster.job}
    if server.job_name not in jobs:
        raise InternalError(f'Job "{server.job_name}" was not defined in cluster')
    tasks = jobs[server.job_name]
    if server.task_index not in tasks:
        raise InternalError(f'Task {server.task_index} was not defined in job "{server.job_name}"')
    host, _, port = tasks[server.task_index].rpartition(":")
    if not host or not port.isdecimal():
        address = tasks[server.task_index]
        raise InvalidArgumentError(f'Could not parse port for local server from "{address}".')
    return host, server.port or int(port)


class SharedState:
    """The variables and shared queues of a server. Makes the backends of its sessions.

    Args:
        config: how the server uses the machine.

    Attributes:
        executor: of the sessions that share their state.
    """

    def __init__(self, config: SessionConfig) -> None:
        self._config = config
        self.executor = Executor(StateStore(random_seed()), config)
        self._isolated: set[DirectBackend] = set()
        self._resetting = asyncio.Lock()

    def backend(
        self, graph: Graph, config: SessionConfig, check: Callable[[Operation], object] | None = None
    ) -> DirectBackend:
        """Return the backend of a session, which has a state of its own if its config says so.

        ``check`` is called with the operations of each new plan.
        """
        timeout = config.operation_timeout_in_ms
        if not config.isolate_session_state:
            return DirectBackend(graph, self.executor, shares=True, timeout_in_ms=timeout, check=check)
        own_config = replace(self._config, operation_timeout_in_ms=timeout)
        own = Executor(StateStore(random_seed()), own_config)
        backend = DirectBackend(graph, own, check=check)
        self._isolated = {one for one in self._isolated if not one.closed} | {backend}
        return backend

    async def reset(self, containers: Sequence[str]) -> None:
        """End all sessions, and clear some containers, or all if none is given.

        Raises:
            InvalidArgumentError: ``containers`` is no list of names.
        """
        if not (isinstance(containers, list) and all(isinstance(name, str) for name in containers)):
            raise InvalidArgumentError(f"The containers to reset are names, got {containers!r}.")
        async with self._resetting:
            ended = self.executor
            cleared = {"" if name == DEFAULT_CONTAINER else name for name in containers}
            kept = {key: x for key, x in ended.resources.items() if key[1] not in cleared}
            if not containers:
                kept.clear()
            for key in kept:
                del ended.resources[key]
            try:
                await self.close("The state of this session was reset.")
            finally:
                seed = random_seed()
                store = ended.store.without(cleared, seed) if containers else StateStore(seed)
                self.executor = Executor(store, self._config)
                self.executor.resources.update(kept)

    async def close(self, reason: str) -> None:
        """End all sessions: their runs raise AbortedError with the reason."""
        executors = [self.executor, *[one.executor for one in self._isolated]]
        for executor in executors:
            executor.ended, executor.closed = reason, True
        for executor in executors:
            await executor.close(AbortedError(reason))
        self._isolated.clear()
