"""A server in an actor of a Ray cluster: the targets ``"ray"`` and ``"ray://ADDRESS/NAME"``.

``"ray"`` is an actor of the session's own in the cluster that runs; it ends with the session.
``"ray://ADDRESS/NAME"`` is the actor NAME of the cluster at ADDRESS (``host:port`` of its control
process, or ``auto``), which all sessions with that target use: they share its variables. The first one
starts it, and it stays. Ray starts the actor and reports its death; messages pass over gRPC.

Ray's client blocks, also for seconds: it is called in threads, and only calls of actors are submitted
and awaited in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from asyncmon.distributed.remote_backend import Channel, RemoteBackend
from asyncmon.distributed.server import Server
from asyncmon.distributed.transport import transport
from asyncmon.distributed.wire import Message
from asyncmon.errors import (
    AbortedError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from asyncmon.graph.core.graph import Graph
from asyncmon.session_config import RPCOptions, SessionConfig
from asyncmon.system.daemon_executor import DaemonExecutor

T = TypeVar("T")

logger = logging.getLogger(__name__)

NAMESPACE = "asyncmon"
"""Of the names of actors in a cluster."""

START_SECS = 60.0
"""Seconds for the process of an actor to start, on a busy machine or a full cluster."""
_WATCH_SECS = 2.0  # between connections to the control process
_threads = DaemonExecutor("asyncmon-ray", workers=8)  # a hanging call is abandoned
_connecting = threading.Lock()


def require_ray() -> None:
    """Raise ImportError with the pip line if Ray is missing, without importing it."""
    if importlib.util.find_spec("ray") is None:
        raise ImportError("Sessions on Ray need the package ray: pip install 'asyncmon[cluster]'")


def backend(target: str, graph: Graph, config: SessionConfig) -> RemoteBackend:
    """Return the backend of a session in an actor. Nothing is connected yet.

    Raises:
        ImportError: Ray is not installed.
        InvalidArgumentError: a malformed target.
    """
    require_ray()
    address, _, name = target.removeprefix("ray://").rpartition("/")
    if target != "ray" and not (target.startswith("ray://") and address and name):
        raise InvalidArgumentError(
            f"A target on Ray is 'ray' or 'ray://ADDRESS/NAME' with the HOST:PORT of the cluster's "
            f"control process, or 'auto', as ADDRESS; got {target!r}."
        )
    channel = RayChannel(address or "auto", name if address else None, config)
    secs = config.rpc_options.timeout_secs
    return RemoteBackend(target, graph, config, channel, secs, is_part=True)


def in_thread(fn: Callable[..., T], *args: Any) -> Future[T]:
    """Call a function that uses Ray in a thread, converting errors to :mod:`asyncmon.errors`."""
    return _threads.submit(_call, fn, *args)


def _call(fn: Callable[..., T], *args: Any) -> T:
    try:
        return fn(*args)
    except Exception as error:
        if (known := translated(error)) is error:
            raise
        raise known from error


def connected(address: str) -> Any:
    """Connect this process to a cluster, if it is not, and return the module. Blocks for seconds.

    Raises:
        FailedPreconditionError: the process is connected to another one.
        NotFoundError: none runs on this machine, and RAY_ADDRESS is not set.
        UnavailableError: there is none at the address.
    """
    import ray

    logging.getLogger("ray._private.worker").addFilter(_has_no_sigterm)
    with _connecting:
        if not ray.is_initialized():
            _probe(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
            try:
                ray.init(address=address, namespace=NAMESPACE)
            except ConnectionError as error:
                kind = NotFoundError if address == "auto" else UnavailableError
                raise kind(
                    f"There is no Ray cluster at {address!r}: {error} Start one with `ray start "
                    "--head`, or call ray.init() first."
                ) from error
            if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
                logger.warning(
                    "Processes of Ray listen on all interfaces of their machines, and do what is asked "
                    "by everything that reaches them: set RAY_AUTH_MODE=token, or close the network."
                )
    here = ray.get_runtime_context().gcs_address
    _probe(here)
    if address not in ("auto", here) and not _is_same(address, here):
        raise FailedPreconditionError(
            f"This process is connected to the Ray cluster at {here!r}, and a process has one: it "
            f"cannot use that at {address!r}."
        )
    return ray


def _has_no_sigterm(record: logging.LogRecord) -> bool:
    """Suppress the warning that Ray handles no SIGTERM in a thread: asyncmon handles it."""
    return "SIGTERM" not in record.getMessage()


def _is_same(address: str, here: str) -> bool:
    host, _, port = address.rpartition(":")
    return port == here.rpartition(":")[2] and host in ("localhost", "127.0.0.1")


def _probe(address: str) -> None:
    """Raise UnavailableError if nothing listens at an address: Ray would retry for long."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        socket.create_connection((host, int(port)), timeout=2.0).close()
    except OSError as error:
        raise UnavailableError(
            f"The control process of the Ray cluster does not answer at {address!r}: {error}."
        ) from error


def translated(error: Exception) -> Exception:
    """Return an error of Ray as one of :mod:`asyncmon.errors`, any other unchanged."""
    from ray import exceptions

    text = f"{type(error).__name__}: {error}"
    match error:
        case exceptions.ActorDiedError() | exceptions.OwnerDiedError():
            return AbortedError(text)
        case exceptions.ObjectStoreFullError() | exceptions.OutOfDiskError():
            return ResourceExhaustedError(text)
        case exceptions.RayTaskError():
            return InternalError(text)
        case exceptions.AuthenticationError():
            return FailedPreconditionError(text)
        case exceptions.RayError():  # an actor, a node or an object is currently missing
            return UnavailableError(text)
    return error


class SessionActor:
    """The actor of sessions: it has a server. Restarted, it is empty; clients see a new incarnation."""

    def __init__(self) -> None:
        self._server: Server | None = None

    async def serve(self, config: SessionConfig) -> tuple[str, RPCOptions]:
        """Return the address and the options of the server. The first call starts it.

        Args:
            config: the config of a session; all use the threads of the first one.
        """
        if self._server is None:
            from ray import util

            ray_util: Any = util  # partly untyped
            rpc = replace(
                config.rpc_options, token=os.urandom(24).hex(), certificate=None, private_key=None,
                authority=None,
            )  # fmt: skip
            config = replace(
                config, isolate_session_state=False, operation_timeout_in_ms=0, rpc_options=rpc
            )
            self._server = Server({"ray": [f"{ray_util.get_node_ip_address()}:0"]}, config=config)
        await self._server.start()
        options = self._server.server_def.default_session_config.rpc_options
        return self._server.target.removeprefix("grpc://"), options


class RayChannel:
    """The channel to the server of an actor, which the first message finds or starts.

    Args:
        address: the address of the cluster.
        name: the name of the actor; None for an actor owned by this channel, which ends with it.
        config: the config of the session.
    """

    def __init__(self, address: str, name: str | None, config: SessionConfig) -> None:
        self._address = address
        self._is_own = name is None
        self._name = name or f"session-{os.urandom(4).hex()}"
        self._config = config
        self._starting: Future[tuple[Any, str]] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._server: tuple[str, RPCOptions] | None = None  # that the channel is connected to
        self._channel: Channel | None = None
        self._closed = False

    async def call(self, request: Message, timeout: float) -> Message:
        """Return the response to a request.

        Raises:
            AbortedError: the actor has died.
            UnavailableError: no response in time, or the actor is being restarted.
        """
        channel = self._channel or await self._connected(timeout, START_SECS)
        try:
            return await channel.call(request, timeout)
        except UnavailableError as error:
            if not self._closed:  # it may be dead, or elsewhere
                with contextlib.suppress(UnavailableError):
                    await self._connected(timeout, timeout / 3)
            raise UnavailableError(f"{self._where}: no answer came: {error}") from None

    async def close(self) -> None:
        """Close the connection, and end the actor if this channel owns it."""
        if self._closed:
            return
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._starting is not None and self._is_own:
            self._starting.add_done_callback(_kill)
        if self._channel is not None:
            await self._channel.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError(f"{self._where}: the channel is closed.")

    @property
    def _where(self) -> str:
        return f"Actor {self._name!r} of the Ray cluster at {self._address!r}"

    async def _connected(self, secs: float, start_secs: float) -> Channel:
        """Return the channel to the server that the actor has now."""
        waits_for, limit = "the actor was not there", secs
        try:
            async with asyncio.timeout(limit):
                actor = await self._started()
            waits_for, limit = "its process did not start", start_secs
            async with asyncio.timeout(limit):
                server = await asyncio.wrap_future(actor.serve.remote(self._config).future())
        except TimeoutError:
            raise UnavailableError(
                f"{self._where}: {waits_for} within {limit:g} s. A cluster that has no free CPU for "
                "the actor lets it wait."
            ) from None
        except Exception as error:
            if (known := translated(error)) is error:
                raise
            raise known from error
        self._check_open()
        if self._channel is None or server != self._server:
            former, self._server = self._channel, server
            self._channel = transport.get().connect(*server)
            if former is not None:
                await former.close()
        return self._channel

    async def _started(self) -> Any:
        """Return the actor. Cancellation leaves its start running for the next call."""
        self._check_open()
        starting = self._starting
        if starting is None or (starting.done() and starting.exception() is not None):
            self._starting = starting = in_thread(_start, self._address, self._name, self._is_own)
        if not starting.done():
            await asyncio.wrap_future(starting)
        actor, address = starting.result()
        if self._watch is None and not self._closed:
            self._watch = asyncio.create_task(watch(address), name="watch of Ray's control process")
        return actor


def _start(address: str, name: str, is_own: bool) -> tuple[Any, str]:
    """Find or start an actor, which may take a while. Return it and the address of the cluster.

    Ray restarts a named actor silently, and repeats no call.
    """
    ray = connected(address)
    shared = {"get_if_exists": True, "lifetime": "detached", "max_restarts": -1}
    options = {"name": name, "namespace": NAMESPACE, "max_task_retries": 0}
    actor = ray.remote(SessionActor).options(**options, **({} if is_own else shared)).remote()
    if not hasattr(actor, "serve"):
        raise FailedPreconditionError(f"Actor {name!r} at {address!r} is no server of sessions.")
    return actor, ray.get_runtime_context().gcs_address


def _kill(started: Future[tuple[Any, str]]) -> None:
    if not started.cancelled() and started.exception() is None:
        import ray

        _threads.submit(ray.kill, started.result()[0])


async def watch(address: str) -> None:
    """Log when the control process is lost: Ray ends this process a minute after."""
    host, _, port = address.rpartition(":")
    is_lost = False
    while True:
        try:
            async with asyncio.timeout(_WATCH_SECS):
                _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            if is_lost:
                logger.warning("The control process of the Ray cluster at %s is back.", address)
            is_lost = False
        except OSError as error:  # TimeoutError is one
            if not is_lost:
                logger.error(
                    "The control process of the Ray cluster at %s is lost (%r). Unless it comes back, "
                    "Ray ends this process within a minute, without saving: save a checkpoint and "
                    "stop.", address, error,
                )  # fmt: skip
            is_lost = True
        await asyncio.sleep(_WATCH_SECS)
