"""Serves requests at a port over gRPC. See :mod:`.grpc_transport`."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

from asyncmon import errors
from asyncmon.distributed.grpc_transport import (
    NO_HEADER,
    SERVICE,
    SIZE,
    TICKET,
    TOKEN,
    Assembly,
    both_sides,
    chunk_size,
    chunks,
    compression,
    grpc,
    read_file,
)
from asyncmon.distributed.own_token import own_token
from asyncmon.distributed.wire import Message, frame, unframe
from asyncmon.errors import InvalidArgumentError, OpError
from asyncmon.session_config import RPCOptions

_DIGITS = 20  # of the size of a message
_IDLE_MS = 600_000  # after which a connection without requests is closed; clients make another
_abandoned: list[Any] = []


class Listener(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc is untyped
    """Passes the requests at a port to a function, and sends its responses.

    Args:
        address: ``"host:port"`` to listen at; the port is bound at once.
        answer: awaited with each request; returns the response.
        options: the token and certificates.

    Attributes:
        port: the port.

    Raises:
        UnknownError: the port cannot be bound.
        ValueError: incomplete certificates.
    """

    def __init__(
        self, address: str, answer: Callable[[Message], Awaitable[Message]], options: RPCOptions
    ) -> None:
        self._answer = answer
        self._token = None if options.token is None else options.token.encode()
        self._is_open = not (options.token or options.certificate)
        self._timeout = options.timeout_secs
        self._chunk = chunk_size(options)
        self._room = _Room(options.max_bytes_in_flight)
        self._kept: dict[int, tuple[Message, asyncio.TimerHandle]] = {}
        self._methods = {
            f"{SERVICE}Call": grpc.unary_unary_rpc_method_handler(self._call),
            f"{SERVICE}Push": grpc.stream_unary_rpc_method_handler(self._push),
            f"{SERVICE}Pull": grpc.unary_stream_rpc_method_handler(self._pull),
        }
        self._denied = grpc.stream_stream_rpc_method_handler(_deny)
        ms = int(options.timeout_secs * 1000)
        self._server = grpc.aio.server(
            handlers=(self,),
            options=[
                *both_sides(options),
                ("grpc.so_reuseport", 0),  # else two servers of one port share its connections
                ("grpc.http2.min_ping_interval_without_data_ms", max(ms // 8, 1)),
                ("grpc.http2.max_ping_strikes", 0),
                # Connections that send nothing must not use up the descriptors of the process.
                ("grpc.server_handshake_timeout_ms", max(ms, 1)),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
            ],
            compression=compression(options),
        )
        try:
            self.port: int = self._bind(address, options)
        except RuntimeError:
            raise errors.UnknownError(
                f"Could not start gRPC server: {address} cannot be bound. Does another process listen "
                "there?"
            ) from None

    def _bind(self, address: str, options: RPCOptions) -> int:
        if not (options.certificate or options.private_key or options.authority):
            bound: int = self._server.add_insecure_port(address)
            return bound
        key, chain = read_file(options.private_key), read_file(options.certificate)
        if key is None or chain is None:
            raise ValueError(
                "A server with certificates needs rpc_options.certificate and rpc_options.private_key; "
                f"got certificate={options.certificate!r}, private_key={options.private_key!r}."
            )
        credentials = grpc.ssl_server_credentials(
            [(key, chain)], read_file(options.authority), options.authority is not None
        )
        bound = self._server.add_secure_port(address, credentials)
        return bound

    async def start(self) -> None:
        """Start serving.

        Raises:
            PermissionDeniedError: the secret of the user's processes cannot be read.
        """
        if self._is_open:
            self._token = await asyncio.to_thread(own_token, self.port)
        await self._server.start()

    async def stop(self, grace: float | None) -> None:
        """Stop serving, and cancel requests that exceed a grace period in seconds. None: at once."""
        try:
            await self._server.stop(grace)
        finally:
            for number in tuple(self._kept):
                self._drop(number)

    def take_no_more(self) -> None:
        """Stop accepting requests at once; :meth:`stop` must follow."""
        # A task of grpc waits for the next request and owns the memory that the core writes it to. If
        # that task is cancelled first, the next request, or a stop, writes to freed memory.
        stopping = self._server.stop(None)  # its first part, up to where it waits, stops the core
        with contextlib.suppress(StopIteration):
            stopping.send(None)
        stopping.close()

    def abandon(self) -> None:
        """Keep alive the objects that grpc's core may still use."""
        _abandoned.append(vars(self._server).pop("_server", None))

    def service(self, details: Any) -> Any:
        """Return the handler of a request."""
        if self._token is not None:
            given = dict(details.invocation_metadata).get(TOKEN, b"")
            if not hmac.compare_digest(given, self._token):
                return self._denied
        return self._methods.get(details.method)

    async def _call(self, data: bytes, context: Any) -> bytes:
        try:
            request = unframe(data)
        except InvalidArgumentError as error:
            await _refuse(context, error)
        return await self._answered(request)

    async def _push(self, _requests: Any, context: Any) -> bytes:
        try:
            size = dict(context.invocation_metadata()).get(SIZE)
            if not isinstance(size, str) or not size.isdecimal() or len(size) > _DIGITS:
                raise InvalidArgumentError(f"Expected a number of bytes, got {size!r:.100}.")
            async with self._room.taken(int(size), self._timeout / 2):
                assembly = Assembly(int(size))
                while True:
                    async with asyncio.timeout(self._timeout):
                        chunk = await context.read()
                    if chunk is grpc.aio.EOF:
                        break
                    assembly.add(chunk)
                request = assembly.message()
                del assembly
                return await self._answered(request)
        except (OpError, TimeoutError) as error:
            await _refuse(context, error)

    async def _pull(self, data: bytes, context: Any) -> None:
        number = TICKET.unpack(data)[1] if len(data) == TICKET.size else 0
        kept = self._kept.pop(number, None)
        if kept is None:
            await _refuse(context, errors.NotFoundError(f"There is no answer {number} any more."))
        answer, timer = kept
        timer.cancel()
        try:
            for chunk in chunks(frame(answer), self._chunk):
                await context.write(chunk)  # fails if the connection is silent
        finally:
            answer.sent()

    async def _answered(self, request: Message) -> bytes:
        answer = await self._answer(request)
        pieces = frame(answer)
        if answer.nbytes <= self._chunk:
            data = b"".join(pieces)
            answer.sent()
            return data
        number = secrets.randbits(63)
        timer = asyncio.get_running_loop().call_later(self._timeout, self._drop, number)
        self._kept[number] = answer, timer
        return TICKET.pack(NO_HEADER, number, sum(len(piece) for piece in pieces))

    def _drop(self, number: int) -> None:
        kept = self._kept.pop(number, None)
        if kept is not None:
            kept[1].cancel()
            kept[0].sent()


class _Room:
    """A bound for the bytes of the large requests in progress. One that is larger is served alone.

    Args:
        limit: the bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._turn = asyncio.Lock()  # first come, first served
        self._changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def taken(self, nbytes: int, secs: float) -> AsyncIterator[None]:
        """Hold a number of bytes inside, once there is room for them.

        Raises:
            ResourceExhaustedError: there was none for ``secs`` seconds.
        """
        try:
            async with asyncio.timeout(secs), self._turn:
                while self._used and self._used + nbytes > self._limit:
                    self._changed.clear()
                    await self._changed.wait()
                self._used += nbytes
        except TimeoutError:
            raise errors.ResourceExhaustedError(
                f"A request of {nbytes} bytes waited for {secs:g} s beside others of {self._used}. "
                "Send less at once, or raise rpc_options.max_bytes_in_flight of the server."
            ) from None
        try:
            yield
        finally:
            self._used -= nbytes
            self._changed.set()


async def _refuse(context: Any, error: Exception) -> NoReturn:
    code = getattr(error, "error_code", errors.UNAVAILABLE)
    status = next(one for one in grpc.StatusCode if one.value[0] == code)
    await context.abort(status, str(error))
    raise AssertionError("abort() raises")


async def _deny(_requests: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED,
        "The token is missing or wrong: see rpc_options.token. A server without one takes "
        "connections of processes of the same user on the same machine.",
    )
