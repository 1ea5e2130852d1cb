"""The transport between processes: gRPC, or another one that is set for a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from asyncmon.distributed.remote_backend import Channel, RemoteBackend
from asyncmon.distributed.wire import Message
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core.graph import Graph
from asyncmon.session_config import RPCOptions, SessionConfig
from asyncmon.system.process_local import ProcessLocal

Answer = Callable[[Message], Awaitable[Message]]


class Listener(Protocol):
    """Passes the requests at a port to a function. See :class:`.grpc_listener.Listener`."""

    port: int

    async def start(self) -> None:
        """Start serving."""

    async def stop(self, grace: float | None) -> None:
        """Stop serving, and cancel requests that exceed a grace period in seconds."""

    def take_no_more(self) -> None:
        """Stop accepting requests at once; :meth:`stop` must follow."""

    def abandon(self) -> None:
        """Release nothing: the loop ends before :meth:`stop` has completed."""


class Transport(Protocol):
    """Listens at ports, and connects to them."""

    def listen(self, host: str, address: str, answer: Answer, options: RPCOptions) -> Listener:
        """Bind a port.

        Args:
            host: the name by which others reach this process.
            address: the interface and port to bind, ``"127.0.0.1:2222"``. Port 0 is any free one.
            answer: awaited with each request; returns the response.
            options: the token and certificates.

        Raises:
            UnknownError: the port cannot be bound.
        """

    def connect(self, address: str, options: RPCOptions) -> Channel:
        """Return a connection to ``"host:port"``, which the first call opens."""


class _Grpc:
    def listen(self, _host: str, address: str, answer: Answer, options: RPCOptions) -> Listener:
        from asyncmon.distributed import grpc_listener

        return grpc_listener.Listener(address, answer, options)

    def connect(self, address: str, options: RPCOptions) -> Channel:
        from asyncmon.distributed import grpc_transport

        return grpc_transport.GrpcChannel(address, options)


transport: ProcessLocal[Transport] = ProcessLocal(_Grpc)
"""The transport of this process."""


def backend(target: str, graph: Graph, config: SessionConfig) -> RemoteBackend:
    """Return the backend of a session for ``grpc://host:port``.

    Raises:
        InvalidArgumentError: a malformed target.
    """
    address = target.partition("://")[2]
    if not address.rpartition(":")[2].isdecimal():
        raise InvalidArgumentError(f"Expected a target 'grpc://host:port', got {target!r}.")
    rpc = config.rpc_options
    channel = transport.get().connect(address, rpc)
    return RemoteBackend(target, graph, config, channel, rpc.timeout_secs)
