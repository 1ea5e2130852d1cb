"""The network of a simulation: messages with delays, losses, repetitions and partitions."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from asyncmon.distributed.transport import Answer
from asyncmon.distributed.wire import Message, frame, unframe
from asyncmon.errors import UnavailableError, UnknownError
from asyncmon.session_config import RPCOptions
from tests.simulation.loop import SimulationLoop, simulated
from tests.simulation.process import Process

KEEPALIVE_SECS = 5.0
"""After which a connection that carries nothing is ended by both sides."""


@dataclass
class Link:
    """The behaviour of the connections of a network; times in seconds, rates per message.

    Attributes:
        delay: the least and the largest usual delay.
        slow: the rate of messages that take up to ``slow_secs``.
        slow_secs: the largest delay of a slow message.
        lost: the rate of lost messages. Their sender notices it by its timeout.
        repeated: the rate of requests that arrive twice.
        broken: the rate of messages at which a connection breaks. All of its calls fail, executed or
            not.
    """

    delay: tuple[float, float] = (0.0002, 0.002)
    slow: float = 0.0
    slow_secs: float = 1.0
    lost: float = 0.0
    repeated: float = 0.0
    broken: float = 0.0


class Network:
    """The listeners and the connections of all processes.

    Args:
        loop: the loop of the simulation.
        note: adds a line to the log.
    """

    def __init__(self, loop: SimulationLoop, note: Callable[[str], None]) -> None:
        self.loop = loop
        self.link = Link()
        self.note = note
        self.sent = 0
        self.digest = 0
        self.listeners: dict[str, SimulatedListener] = {}
        self.off: dict[str, str] = {}  # addresses of machines without power, by their processes
        self._cuts: list[tuple[frozenset[str], frozenset[str]]] = []
        self._ports = 40_000

    def cut(self, some: frozenset[str], others: frozenset[str]) -> Callable[[], None]:
        """Lose all messages between two sets of processes; return a function that ends it."""
        pair = (some, others)
        self._cuts.append(pair)
        self.loop.call_later(KEEPALIVE_SECS, self._end_silent, context=Context())
        return lambda: self._cuts.remove(pair)

    def _end_silent(self) -> None:
        """End the connections that are cut, as the pings of both sides have no answer."""
        for listener in tuple(self.listeners.values()):
            listener.end_silent(lambda one, other: self.is_cut(one, other))

    def suspended(self, process: Process) -> None:
        """End the connections of a process that is still suspended after some seconds."""

        def is_silent(one: str, other: str) -> bool:
            return not process.is_running and process.name in (one, other)

        def end() -> None:
            for listener in tuple(self.listeners.values()):
                listener.end_silent(is_silent)

        self.loop.call_later(KEEPALIVE_SECS, end, context=Context())

    def end_of(self, process: Process, *, silent: bool) -> None:
        """Close the ports and connections of a process that ended.

        A machine without power refuses nothing, and its connections stay open for the others.
        """
        for name, listener in tuple(self.listeners.items()):
            if listener.process is process:
                del self.listeners[name]
                if silent:
                    self.off[name] = process.name
                else:
                    listener.reset()
            elif not silent:
                listener.disconnect(process)
            else:
                gone = partial(listener.disconnect, process)
                self.loop.call_later(KEEPALIVE_SECS, gone, context=Context())

    def start_of(self, process: Process) -> None:
        """Let a machine refuse connections again."""
        self.off = {name: one for name, one in self.off.items() if one != process.name}

    def is_cut(self, one: str, other: str) -> bool:
        """Return whether messages between two processes are lost now."""
        return any(
            (one in some and other in others) or (other in some and one in others)
            for some, others in self._cuts
        )

    def bind(self, listener: SimulatedListener, host: str, port: int) -> int:
        """Register a listener, and return its port."""
        if not port:
            self._ports += 1
            port = self._ports
        name = f"{host}:{port}"
        if name in self.listeners:
            raise UnknownError(f"Could not start a server: {name} is in use by another process.")
        self.listeners[name] = listener
        return port

    def unbind(self, listener: SimulatedListener) -> None:
        """Free the port of a listener."""
        for name in [name for name, one in self.listeners.items() if one is listener]:
            del self.listeners[name]

    def chance(self, rate: float) -> bool:
        """Return true at this rate. A rate of 0 draws no number."""
        return rate > 0 and self.loop.random.random() < rate

    def delay(self) -> float:
        """Return the delay of a message."""
        self.sent += 1
        if self.chance(self.link.slow):
            return self.loop.random.uniform(0, self.link.slow_secs)
        return self.loop.random.uniform(*self.link.delay)


class SimulatedTransport:
    """See :class:`asyncmon.distributed.transport.Transport`."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    def listen(self, host: str, address: str, answer: Answer, options: RPCOptions) -> SimulatedListener:
        """Return a listener at a port of the process."""
        return SimulatedListener(self._network, self._process, host, address, answer)

    def connect(self, address: str, options: RPCOptions) -> SimulatedChannel:
        """Return a channel of the process."""
        return SimulatedChannel(self._network, self._process, address)


class _Call:
    """A request of a channel on its way, and its answer."""

    def __init__(self, channel: SimulatedChannel, data: bytes, *, is_endless: bool) -> None:
        self.channel = channel
        self.is_endless = is_endless
        self.data = data
        self.answer: asyncio.Future[bytes] = channel.network.loop.create_future()
        self.listener: SimulatedListener | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def cancel(self) -> None:
        if self.listener is not None:
            self.listener.cancel(self)

    def fail(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(UnavailableError(reason))
            self.answer.exception()  # retrieved: its waiter may have timed out

    def succeed(self, data: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(data)


class SimulatedChannel:
    """See :class:`.remote_backend.Channel`. Requests arrive in their order, as on one connection."""

    def __init__(self, network: Network, process: Process, address: str) -> None:
        self.network = network
        self.process = process
        self.address = address
        self._calls: dict[_Call, None] = {}
        self._last = [0.0, 0.0]  # arrivals of the last request, and of the last response
        self._closed = False
        self._context = copy_context()

    async def call(self, request: Message, timeout: float) -> Message:
        """Return the response to a request."""
        if self._closed:
            raise UnavailableError(f"The connection to {self.address} was closed.")
        call = _Call(self, b"".join(frame(request)), is_endless=timeout == inf)
        self._calls[call] = None
        self._send(call)
        try:
            async with asyncio.timeout(None if call.is_endless else timeout):
                data = await call.answer
        except TimeoutError:
            raise UnavailableError(f"{self.address} did not respond for {timeout:g} s.") from None
        finally:
            self._calls.pop(call, None)
            if call.answer.cancelled():  # the caller was, or its time is over: so is the request
                self._later(0, call.cancel)
        return unframe(bytearray(data))

    async def close(self) -> None:
        """Fail the pending calls, and take no more."""
        self._closed = True
        self.fail(f"The connection to {self.address} was closed.")

    def fail(self, reason: str) -> None:
        """Fail the pending calls. Later ones use a new connection."""
        self._last = [0.0, 0.0]
        for call in self._calls:
            call.fail(reason)
            if call.is_endless:
                self._later(0, call.cancel)
        self._calls.clear()

    def answered(self, call: _Call, data: bytes) -> None:
        """Send the response of a call. Called by the server."""
        listener = call.listener
        assert listener is not None, "the call has arrived"
        if self._is_lost(listener.process.name):
            return
        self._later(1, lambda: self._process_soon(call.succeed, data))

    def refused(self, call: _Call, reason: str) -> None:
        """Fail a call from the other side."""
        self._later(1, lambda: self._process_soon(call.fail, f"{self.address}: {reason}"))

    def _send(self, call: _Call) -> None:
        network = self.network
        listener = network.listeners.get(self.address)
        there = self.address if listener is None else listener.process.name  # to whom it is sent
        if self._is_lost(there):
            if call.is_endless:
                silent = partial(self._process_soon, call.fail, f"{self.address}: silent.")
                network.loop.call_later(KEEPALIVE_SECS, silent, context=Context())
            return
        self._later(0, lambda: self._arrived(call))
        if network.chance(network.link.repeated):
            self._later(0, lambda: self._arrived(call))

    def _is_lost(self, there: str) -> bool:
        """Return whether a message is lost. It may break the connection."""
        network = self.network
        if network.is_cut(self.process.name, there) or network.chance(network.link.lost):
            return True
        if network.chance(network.link.broken):
            network.note(f"the connection of {self.process.name} to {there} breaks")
            self._process_soon(self.fail, f"{self.address}: the connection broke.")
            return network.loop.random.random() < 0.5  # else the server receives it
        return False

    def _later(self, way: int, do: Callable[[], object]) -> None:
        """Do something when a message arrives, in the order of a connection."""
        loop, network = self.network.loop, self.network
        at = self._last[way] = max(self._last[way], loop.time() + network.delay())
        text = f"{network.digest} {at!r} {way} {self.process.name} {self.address}"
        network.digest = zlib.crc32(text.encode())
        loop.call_at(at, do, context=Context())

    def _arrived(self, call: _Call) -> None:
        listener = self.network.listeners.get(self.address)
        if listener is not None:
            listener.receive(call)
        elif self.address not in self.network.off:
            self.refused(call, "connection refused.")

    def _process_soon(self, do: Callable[..., object], *args: Any) -> None:
        self.network.loop.call_soon(do, *args, context=self.process.context)


class SimulatedListener:
    """See :class:`asyncmon.distributed.transport.Listener`."""

    def __init__(
        self, network: Network, process: Process, host: str, address: str, answer: Answer
    ) -> None:
        self._network = network
        self.process = process
        self._answer = answer
        self._calls: dict[asyncio.Task[None], _Call] = {}
        self._waiting: list[_Call] = []  # that arrived before start()
        self._started = False
        self._stopped = False
        self._context = copy_context()
        self.port = network.bind(self, host, int(address.rpartition(":")[2]))

    async def start(self) -> None:
        """Start serving."""
        self._started = True
        for call in self._waiting:
            self._take(call)
        self._waiting.clear()

    async def stop(self, grace: float | None) -> None:
        """Stop serving; cancel the requests after the grace period."""
        self.take_no_more()
        if self._calls and grace:
            await asyncio.wait(self._calls, timeout=grace)
        for task in tuple(self._calls):
            task.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    def take_no_more(self) -> None:
        """Free the port."""
        self._stopped = True
        self._network.unbind(self)

    def abandon(self) -> None:
        """Do nothing."""

    def receive(self, call: _Call) -> None:
        """Execute a request that has arrived, when the process runs."""
        call.listener = self
        self._network.loop.call_soon(self._take, call, context=self._context)

    def cancel(self, call: _Call) -> None:
        """Cancel the execution of a request."""
        for task in call.tasks:
            self._network.loop.call_soon(task.cancel, context=self._context)

    def disconnect(self, process: Process) -> None:
        """Cancel the requests of a process that has ended."""
        for call in tuple(self._calls.values()):
            if call.channel.process is process:
                self.cancel(call)

    def end_silent(self, is_silent: Callable[[str, str], bool]) -> None:
        """End the calls without a timeout whose connection carries nothing."""
        for call in tuple(self._calls.values()):
            if call.is_endless and is_silent(call.channel.process.name, self.process.name):
                self.cancel(call)
                soon = call.channel._process_soon
                soon(call.fail, f"{call.channel.address}: the connection is silent.")

    def reset(self) -> None:
        """Fail all requests, as the process is dead."""
        for call in (*self._calls.values(), *self._waiting):
            call.channel.refused(call, "connection reset.")

    def _take(self, call: _Call) -> None:
        if call.is_endless and call.answer.done():
            return  # its connection has ended
        if self._stopped:
            call.channel.refused(call, "connection reset.")
        elif not self._started:
            self._waiting.append(call)
        else:
            task = asyncio.get_running_loop().create_task(self._serve(call))
            self._calls[task] = call
            call.tasks.append(task)
            task.add_done_callback(self._calls.pop)

    async def _serve(self, call: _Call) -> None:
        try:
            answer = await self._answer(unframe(bytearray(call.data)))
        except asyncio.CancelledError:
            call.channel.refused(call, "the request was cancelled.")
            raise
        try:
            data = b"".join(frame(answer))
        finally:
            answer.sent()
        call.channel.answered(call, data)


def current_process() -> Process:
    """Return the simulated process of the current task.

    RuntimeError if the caller is not part of a simulation.
    """
    process = simulated.get()
    if not isinstance(process, Process):
        raise RuntimeError("This function is for programs of simulate().")
    return process
