"""Messages over gRPC: small ones as one call, large ones as streams of chunks.

A request of up to 1 MiB is a ``Call``, a larger one a ``Push``. A larger response is kept for a moment
under a number, which the caller receives instead; a ``Pull`` with that number fetches the response.
Chunks are received into the memory of the message's arrays. The deadline applies to each chunk, not to
the whole message.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from asyncmon import errors
from asyncmon.distributed.own_token import token_for
from asyncmon.distributed.wire import Buffer, Message, frame, unframe
from asyncmon.errors import InvalidArgumentError, OpError, ResourceExhaustedError, UnavailableError
from asyncmon.session_config import RPCOptions

# Environment variables that gRPC reads when it is imported; those of the user win. Its handlers of
# fork() abort a child that does not use gRPC, such as that of subprocess.Popen with a preexec_fn. It
# logs the normal end of a connection (GOAWAY) as information.
_SETTINGS = {"GRPC_ENABLE_FORK_SUPPORT": "0", "GRPC_VERBOSITY": "ERROR"}

_set = {name: value for name, value in _SETTINGS.items() if name not in os.environ}
os.environ.update(_set)
try:
    import grpc as grpc
    import grpc.aio
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Targets and servers of gRPC need the package grpcio: pip install 'asyncmon[grpc]'"
    ) from error
finally:
    for _name in _set:  # child processes do not inherit them
        os.environ.pop(_name, None)
CHUNK = 1 << 20
"""The maximum bytes of a message sent in one piece, and of a chunk of a larger one."""

_COMPRESSED = 1 << 15  # likewise with compression, which holds the loop for 0.1 ms per KiB

MAX_SIZE = 1 << 35
"""The maximum bytes of a message."""

SERVICE = "/asyncmon.Session/"
TICKET = struct.Struct("<IQQ")
"""A response to be fetched: NO_HEADER, its number, its size in bytes."""
NO_HEADER = 0xFFFFFFFF
"""Takes the place of the length of a header."""
SIZE, TOKEN = "asyncmon-size", "asyncmon-token-bin"  # -bin: any bytes
# Status codes of a failed request. Other codes mean a failed connection.
_OWN = {
    code.value[0]: getattr(errors, name)
    for code, name in [
        (grpc.StatusCode.INVALID_ARGUMENT, "InvalidArgumentError"),
        (grpc.StatusCode.PERMISSION_DENIED, "PermissionDeniedError"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "ResourceExhaustedError"),
        (grpc.StatusCode.UNIMPLEMENTED, "UnimplementedError"),
        (grpc.StatusCode.UNAUTHENTICATED, "UnauthenticatedError"),
    ]
}
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"  # in the details of a failed handshake


def both_sides(rpc: RPCOptions) -> list[tuple[str, int]]:
    """Return the options of both sides: a connection silent for ``timeout_secs`` is closed."""
    # A ping is sent after half of that time, and its answer awaited for a third. keepalive_timeout_ms
    # alone does not end a connection before a minute has passed.
    ms = int(rpc.timeout_secs * 1000)
    return [
        ("grpc.max_receive_message_length", 4 * CHUNK),
        ("grpc.max_send_message_length", 4 * CHUNK),
        ("grpc.keepalive_time_ms", max(ms // 2, 1)),
        ("grpc.keepalive_timeout_ms", max(ms // 3, 1)),
        ("grpc.http2.ping_timeout_ms", max(ms // 3, 1)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def compression(rpc: RPCOptions) -> grpc.Compression:
    """Return the compression of the options. InvalidArgumentError for an unknown algorithm."""
    known = {
        "": grpc.Compression.NoCompression,
        "deflate": grpc.Compression.Deflate,
        "gzip": grpc.Compression.Gzip,
    }
    if rpc.compression_algorithm not in known:
        raise InvalidArgumentError(
            "rpc_options.compression_algorithm must be one of "
            f"{sorted(known)}, got {rpc.compression_algorithm!r}."
        )
    return known[rpc.compression_algorithm]


def chunk_size(rpc: RPCOptions) -> int:
    """Return the size of a chunk in bytes."""
    return _COMPRESSED if rpc.compression_algorithm else CHUNK


def read_file(path: str | None) -> bytes | None:
    """Return the content of a file, or None without a path."""
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


_PRIVATE: dict[str, Any] = (  # not shared with children; Windows knows no such flag
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)


# --- chunks ---------------------------------------------------------------------------------------
def chunks(pieces: Sequence[Buffer], size: int) -> Iterator[bytes]:
    """Yield the bytes of several pieces as chunks of one size; the last chunk may be shorter."""
    parts: list[memoryview] = []
    room = size
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            part, rest = rest[:room], rest[room:]
            parts.append(part)
            room -= len(part)
            if not room:
                yield b"".join(parts)
                parts, room = [], size
    if parts:
        yield b"".join(parts)


class Assembly:
    """Memory into which the chunks of a message are received.

    Args:
        size: bytes of the message.

    Raises:
        ResourceExhaustedError: not enough memory.
    """

    def __init__(self, size: int) -> None:
        try:
            if size > MAX_SIZE:
                raise MemoryError
            # np.empty() asks for huge pages, and the first touch of each may hold the loop for 10 ms.
            self._view = memoryview(mmap.mmap(-1, max(size, 1), **_PRIVATE))[:size]
        except (MemoryError, OSError, OverflowError):
            raise ResourceExhaustedError(f"There is no memory for {size} bytes.") from None
        self._at = 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk. InvalidArgumentError if it is too long."""
        end = self._at + len(chunk)
        if end > len(self._view):
            raise InvalidArgumentError(f"{end} bytes of a message of {len(self._view)} were sent.")
        self._view[self._at : end] = chunk
        self._at = end

    def message(self) -> Message:
        """Return the message. InvalidArgumentError if it is incomplete or malformed."""
        if self._at < len(self._view):
            raise InvalidArgumentError(f"{self._at} bytes of a message of {len(self._view)} were sent.")
        return unframe(self._view)


# --- the client -----------------------------------------------------------------------------------
class GrpcChannel:
    """A connection to a server, made by the first call. See :class:`.remote_backend.Channel`.

    Args:
        address: ``"host:port"``.
        options: the timeout limits the silence of a connection.

    Raises:
        InvalidArgumentError: an unknown compression.
    """

    def __init__(self, address: str, options: RPCOptions) -> None:
        self._address = address
        self._rpc = options
        self._compression = compression(options)
        self._chunk = chunk_size(options)
        self._metadata: tuple[tuple[str, Any], ...] = ()
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def call(self, request: Message, timeout: float) -> Message:
        """Return the response to a request. Silence for ``timeout`` plus one second is an error."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        before = task.cancelling()
        try:
            if self._loop is not asyncio.get_running_loop():
                await self._connect()
            pieces = frame(request)
            if request.nbytes <= self._chunk:
                limit = None if timeout == inf else timeout
                data = await self._call(b"".join(pieces), timeout=limit, metadata=self._metadata)
            else:
                data = await self._send(pieces, timeout)
            if data.startswith(b"\xff\xff\xff\xff"):
                return await self._fetch(data, timeout)
            return unframe(bytearray(data))  # the caller owns its arrays
        except grpc.aio.AioRpcError as error:
            raise self._error(error) from None
        except TimeoutError:
            raise UnavailableError(
                f"{self._address} did not take or send a part of a message for {timeout:g} s."
            ) from None
        except (asyncio.CancelledError, grpc.aio.UsageError, asyncio.InvalidStateError):
            if task.cancelling() > before or not self._closed:
                raise
            raise UnavailableError(f"The connection to {self._address} was closed.") from None

    async def close(self) -> None:
        """End the connection."""
        self._closed = True
        if self._channel is not None and self._loop is asyncio.get_running_loop():
            await self._channel.close()

    async def _connect(self) -> None:
        """Make the channel. A channel of a loop that has ended is not reused."""
        if self._closed:
            raise UnavailableError(f"The connection to {self._address} was closed.")
        async with self._connecting:
            loop = asyncio.get_running_loop()
            if self._loop is loop:
                return
            rpc, ms = self._rpc, int(self._rpc.timeout_secs * 1000)
            options = [
                *both_sides(rpc),
                ("grpc.initial_reconnect_backoff_ms", 100),
                # In fact the timeout of one attempt.
                ("grpc.min_reconnect_backoff_ms", max(ms // 2, 100)),
                ("grpc.max_reconnect_backoff_ms", 1000),
                # Otherwise a new session inherits the back-off of the last one.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_retries", 0),  # the backend retries, and knows the deadline
            ]
            token = None if rpc.token is None else rpc.token.encode()
            if not (rpc.token or rpc.certificate or rpc.authority):
                token = await asyncio.to_thread(token_for, self._address)
            self._metadata = () if token is None else ((TOKEN, token),)
            paths = rpc.authority, rpc.private_key, rpc.certificate
            if any(paths):
                read = await asyncio.to_thread(lambda: [read_file(path) for path in paths])
                credentials = grpc.ssl_channel_credentials(*read)
                channel = grpc.aio.secure_channel(
                    self._address, credentials, options, self._compression
                )
            else:
                channel = grpc.aio.insecure_channel(self._address, options, self._compression)
            self._call = channel.unary_unary(f"{SERVICE}Call")
            self._push = channel.stream_unary(f"{SERVICE}Push")
            self._pull = channel.unary_stream(f"{SERVICE}Pull")
            self._channel, self._loop = channel, loop

    async def _send(self, pieces: Sequence[Buffer], timeout: float) -> bytes:
        size = sum(len(piece) for piece in pieces)
        call = self._push(metadata=(*self._metadata, (SIZE, str(size))))
        try:
            for chunk in chunks(pieces, self._chunk):
                async with asyncio.timeout(timeout):
                    await call.write(chunk)
            await call.done_writing()
            async with asyncio.timeout(timeout):
                data: bytes = await call
        except asyncio.InvalidStateError:  # ended by the other side: the status has the reason
            data = await call
        finally:
            call.cancel()
        return data

    async def _fetch(self, data: bytes, timeout: float) -> Message:
        try:
            _, _, size = TICKET.unpack(data)
        except struct.error as error:
            raise InvalidArgumentError(f"An answer is malformed: {error}.") from None
        assembly = Assembly(size)
        call = self._pull(data, metadata=self._metadata)
        try:
            while True:
                async with asyncio.timeout(timeout):
                    chunk = await call.read()
                if chunk is grpc.aio.EOF:
                    return assembly.message()
                assembly.add(chunk)
        finally:
            call.cancel()

    def _error(self, error: grpc.aio.AioRpcError) -> OpError:
        kind = _OWN.get(error.code().value[0], UnavailableError)
        details = error.details() or error.code().name
        if _UNTRUSTED in details:  # a server that starts later has the same certificate
            kind = errors.UnauthenticatedError
            details += f". Is rpc_options.authority={self._rpc.authority!r} that of the server?"
        made: OpError = kind(f"{self._address}: {details}")
        return made
