"""The session service in an actor of a Ray cluster: the targets ``"ray"`` and ``"ray://ADDRESS/NAME"``.

``"ray"`` is an actor of the session's own in the cluster that runs; it ends with the session.
``"ray://ADDRESS/NAME"`` is the actor NAME of the cluster at ADDRESS (``host:port`` of its control
process, or ``auto``), which all sessions with that target use: they share its variables. The first one
starts it, and it stays.

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

import numpy as np

from asyncmon.distributed.remote_backend import RemoteBackend
from asyncmon.distributed.service import SessionService
from asyncmon.distributed.shared_state import SharedState
from asyncmon.distributed.wire import Decoder, Encoder, Message, frame, unframe
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
from asyncmon.graph.session.backend import DirectBackend
from asyncmon.session_config import SessionConfig
from asyncmon.system.daemon_executor import DaemonExecutor

T = TypeVar("T")

logger = logging.getLogger(__name__)

NAMESPACE = "asyncmon"
"""Of the names of actors in a cluster."""

_INLINE = 90 << 10  # bytes: Ray sends more than 100 KiB through its object store
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
    channel = RayChannel(address, name) if address else RayChannel("auto", None)
    return RemoteBackend(target, graph, config, channel, config.rpc_options.timeout_secs)


def in_thread(fn: Callable[..., T], *args: Any) -> Future[T]:
    """Call a function that uses Ray in a thread, converting errors to :mod:`asyncmon.errors`."""
    return _threads.submit(_call, fn, *args)


def _call(fn: Callable[..., T], *args: Any) -> T:
    try:
        return fn(*args)
    except Exception as error:
        raise translated(error) from error


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


# --- the actor --------------------------------------------------------------------------------------
class ServiceActor:
    """The actor of the service. Restarted, it is empty; clients see a new incarnation."""

    def __init__(self) -> None:
        self._state: SharedState | None = None
        self._service = SessionService(self._backend_of)
        self._service.add_method("reset", self._reset)

    def _backend_of(self, graph: Graph, config: SessionConfig) -> DirectBackend:
        """Return the backend of a session; all use the threads of the first one."""
        if self._state is None:
            shared = replace(config, isolate_session_state=False, operation_timeout_in_ms=0)
            self._state = SharedState(shared)
        return self._state.backend(graph, config)

    async def _reset(self, decoder: Decoder) -> Message:
        if self._state is not None:
            await self._state.reset(decoder.content["containers"])
        await self._service.close()
        return Encoder().message({})

    async def answer(self, request: Any) -> Any:
        """Return the response to a message: bytes, or a list with the reference of a large one."""
        answer = await self._service.answer(_message(request))
        if answer.nbytes <= _INLINE:
            data = b"".join(frame(answer))
            answer.sent()
            return data
        ref = await asyncio.wrap_future(in_thread(_put, answer))
        answer.sent()
        return [ref]


def _put(message: Message) -> Any:
    """Put a large message into the object store, its buffers as arrays, and return the reference."""
    import ray

    arrays = [np.frombuffer(x, np.uint8) if len(x) else np.empty(0, np.uint8) for x in message.buffers]
    return ray.put([message.header, *arrays])


def _message(data: Any) -> Message:
    if isinstance(data, bytes):
        return unframe(bytearray(data))
    return Message(data[0], [array.data for array in data[1:]])


def _own(data: list[Any]) -> Message:
    """Copy a message out of the object store, whose arrays are read-only."""
    return Message(data[0], [array.copy().data for array in data[1:]])


# --- the channel ------------------------------------------------------------------------------------
class RayChannel:
    """The channel to an actor, which the first message finds or starts.

    Args:
        address: the address of the cluster.
        name: the name of the actor; None for an actor owned by this channel, which ends with it.
    """

    def __init__(self, address: str, name: str | None) -> None:
        self._address = address
        self._is_own = name is None
        self._name = name or f"session-{os.urandom(4).hex()}"
        self._starting: Future[tuple[Any, str]] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._pending: set[asyncio.Future[Any]] = set()
        self._is_ready = False
        self._closed = False

    async def call(self, request: Message, timeout: float) -> Message:
        """Return the response to a request.

        Raises:
            AbortedError: the actor has died.
            UnavailableError: no response in time, or the actor is being restarted.
        """
        waits_for, secs = "the actor was not there", timeout
        try:
            async with asyncio.timeout(secs):
                actor = await self._started()
            if not self._is_ready:
                waits_for, secs = "its process did not start", START_SECS
                async with asyncio.timeout(secs):
                    await self._result(actor.__ray_ready__.remote())
                self._is_ready = True
            waits_for, secs = "no answer came", timeout
            async with asyncio.timeout(secs):
                large = request.nbytes > _INLINE
                data: Any = (
                    b"".join(frame(request))
                    if not large
                    else await asyncio.wrap_future(in_thread(_put, request))
                )
                answer = await self._result(actor.answer.remote(data))
                if isinstance(answer, bytes):
                    return _message(answer)
                return await asyncio.to_thread(_own, await self._result(answer[0]))
        except TimeoutError:
            raise UnavailableError(
                f"{self._where}: {waits_for} within {secs:g} s. A cluster that has no free CPU for "
                "the actor lets it wait."
            ) from None

    async def close(self) -> None:
        """Cancel pending calls, and end the actor if this channel owns it."""
        if self._closed:
            return
        self._closed = True
        for future in self._pending:
            future.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if self._starting is not None and self._is_own:
            self._starting.add_done_callback(_kill)

    @property
    def _where(self) -> str:
        return f"Actor {self._name!r} of the Ray cluster at {self._address!r}"

    async def _started(self) -> Any:
        """Return the actor. Cancellation leaves its start running for the next call."""
        if self._closed:
            raise UnavailableError(f"{self._where}: the channel is closed.")
        starting = self._starting
        if starting is None or (starting.done() and starting.exception() is not None):
            self._starting = starting = in_thread(_start, self._address, self._name, self._is_own)
        if not starting.done():
            await asyncio.wrap_future(starting)
        actor, address = starting.result()
        if self._watch is None and not self._closed:
            self._watch = asyncio.create_task(watch(address), name="watch of Ray's control process")
        return actor

    async def _result(self, ref: Any) -> Any:
        """Await the result of a call, until this is closed."""
        future = asyncio.wrap_future(ref.future())
        self._pending.add(future)
        try:
            return await future
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None, "a coroutine runs in a task"
            if self._closed and not task.cancelling():
                raise UnavailableError(f"{self._where}: the channel was closed.") from None
            raise
        except Exception as error:
            raise translated(error) from error
        finally:
            self._pending.discard(future)


def _start(address: str, name: str, is_own: bool) -> tuple[Any, str]:
    """Find or start an actor, which may take a while. Return it and the address of the cluster.

    Ray restarts a named actor silently, and repeats no call.
    """
    ray = connected(address)
    shared = {"get_if_exists": True, "lifetime": "detached", "max_restarts": -1}
    options = {"name": name, "namespace": NAMESPACE, "max_task_retries": 0}
    actor = ray.remote(ServiceActor).options(**options, **({} if is_own else shared)).remote()
    if not hasattr(actor, "answer"):
        raise FailedPreconditionError(f"Actor {name!r} at {address!r} is no session service.")
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
