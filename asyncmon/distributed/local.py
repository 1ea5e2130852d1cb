"""The target ``"local"``: a session in a child process of its own, started at the first use.

The child ends with this process in every case, and with the session. If it ends earlier, pending calls
raise ``AbortedError`` at once; a monitored session recovers from that in a new child. The child ignores
signals. Its log records are handled here, and it inherits stdout and stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import socket
import sys
from math import inf

from asyncmon.distributed.local_stream import CALL, LOG, READY, Inbox, Outbox, Stream
from asyncmon.distributed.remote_backend import RemoteBackend
from asyncmon.distributed.wire import Message
from asyncmon.errors import (
    AbortedError,
    CancelledError,
    FailedPreconditionError,
    NotFoundError,
    OpError,
    ResourceExhaustedError,
    UnavailableError,
)
from asyncmon.graph.core.graph import Graph
from asyncmon.session_config import SessionConfig
from asyncmon.system.cancellation import completed, outlast
from asyncmon.system.children import how_it_ended, start
from asyncmon.system.portable import SharedMemory, give_socket

logger = logging.getLogger(__name__)

_CHILD = "asyncmon.distributed.local_child"
_START_SECS = 60.0  # for the imports of the child, on a busy machine
_END_SECS = 0.4  # until the child is killed: it has nothing left to do


def backend(target: str, graph: Graph, config: SessionConfig) -> RemoteBackend:
    """Return the backend of a session in a child process.

    Raises:
        NotFoundError: the target has an address, which it must not have.
    """
    if target != "local":
        raise NotFoundError(f"The target of a session in a child process is 'local', got {target!r}.")
    secs = config.rpc_options.timeout_secs
    return RemoteBackend(target, graph, config, LocalChannel(), secs, writes_files=True)


class LocalChannel:
    """The channel to a child process, which the first call starts. See :class:`.Channel`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._starting: asyncio.Task[None] | None = None
        self.stream: Stream | None = None
        self.process: asyncio.subprocess.Process | None = None
        self._memory: list[SharedMemory] = []
        self._ready: asyncio.Future[None]
        self._ending: asyncio.Task[None] | None = None
        self._calls: dict[int, asyncio.Future[Message]] = {}
        self._numbers = itertools.count(1)
        self._why: tuple[type[OpError], str] | None = None  # the error of all calls

    async def call(self, request: Message, timeout: float) -> Message:
        """Return the response to a request.

        Raises:
            AbortedError: the child has ended.
            UnavailableError: no response in time.
            ResourceExhaustedError: no memory for the request.
            RuntimeError: the child belongs to another event loop.
        """
        loop = asyncio.get_running_loop()
        if self._starting is None:
            self._loop = loop
            self._starting = loop.create_task(self._start(), name="start of asyncmon child")
        elif loop is not self._loop:
            raise RuntimeError(
                "This session belongs to another event loop, in which its child process was started. "
                "Make a session in each loop."
            )
        if not self._starting.done():
            await asyncio.shield(self._starting)
        self._starting.result()
        self._check()
        assert self.stream is not None, "made by the start"
        number, future = next(self._numbers), loop.create_future()
        self._calls[number] = future
        timer = None
        try:
            await self.stream.send(CALL, number, request)
            if timeout < inf:
                timer = loop.call_later(timeout, self._late, future, timeout, loop.time() + timeout)
            self._check()
            answer: Message = await future
            return answer
        except OSError as error:
            raise ResourceExhaustedError(
                f"There is no shared memory for {request.nbytes:,} bytes: {error}."
            ) from error
        finally:
            del self._calls[number]
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        """End the child within seconds, and wait for it. Pending calls fail."""
        self._why = self._why or (CancelledError, "Session has been closed.")
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await outlast(self._starting)
        await self._ended()

    def _check(self) -> None:
        if self._why is not None:
            kind, text = self._why
            raise kind(text)

    def _late(self, future: asyncio.Future[Message], secs: float, due: float) -> None:
        if future.done():
            return
        if self._loop.time() - due > max(0.5, secs / 4):  # this process was suspended or blocked
            self._loop.call_later(secs, self._late, future, secs, self._loop.time() + secs)
            return
        assert self.process is not None, "it was started before the call"
        future.set_exception(
            UnavailableError(
                f"Process {self.process.pid} of the session has not answered for {secs:g} s."
            )
        )

    # The child.

    async def _start(self) -> None:
        if not sys.executable:
            raise FailedPreconditionError(
                "There is no Python to start a child process with: sys.executable is empty. Use the "
                "target ''."
            )
        self._ready = self._loop.create_future()
        self._memory = [SharedMemory(), SharedMemory()]
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = await self._spawned(theirs)
            except BaseException:
                ours.close()
                raise
        there, here = self._memory
        self.stream = stream = Stream(Outbox(there), Inbox(here), self._received, self._lost)
        await self._loop.create_connection(lambda: stream, sock=ours)
        try:
            async with asyncio.timeout(_START_SECS):
                await self._ready
        except TimeoutError:
            raise UnavailableError(
                f"Process {self.process.pid} of the session has not started for {_START_SECS:g} s."
            ) from None

    async def _spawned(self, end: socket.socket) -> asyncio.subprocess.Process:
        memory = [memory.descriptor for memory in self._memory]
        process = await start(_CHILD, descriptors=(end.fileno(), *memory))
        given = {
            "socket": give_socket(end, process.pid),
            "memory": [memory.described() for memory in self._memory],
            "level": logging.getLogger("asyncmon").getEffectiveLevel(),
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(given).encode() + b"\n")
        return process

    def _received(self, kind: int, number: int, message: Message) -> None:
        if kind == CALL:
            future = self._calls.get(number)
            if future is not None and not future.done():
                future.set_result(message)
        elif kind == LOG:
            name, level, text = json.loads(message.header)
            log = logging.getLogger(name)
            if log.isEnabledFor(level):
                log.handle(log.makeRecord(name, level, "", 0, text, (), None))
        elif kind == READY and not self._ready.done():
            self._ready.set_result(None)

    def _lost(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._end(), name="end of asyncmon child")

    async def _ended(self) -> None:
        """Wait for the end of the child, shielded from cancellation."""
        if self.process is None:
            self._free()
            return
        self._lost()
        assert self._ending is not None
        await completed(self._ending)

    async def _end(self) -> None:
        """End the child by closing its input."""
        process = self.process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECS):
                status = await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            status = await process.wait()
        if self._why is None:
            text = f"Process {process.pid} of the session {how_it_ended(status)}."
            self._why = AbortedError, text
            logger.warning("%s", self._why[1])
        kind, text = self._why
        if not self._ready.done():
            self._ready.set_exception(kind(text))
        for future in self._calls.values():
            if not future.done():
                future.set_exception(kind(text))
        self._free()

    def _free(self) -> None:
        if self.stream is not None:
            self.stream.close()
        for memory in self._memory:
            memory.close()
