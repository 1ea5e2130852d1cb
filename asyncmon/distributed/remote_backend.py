"""The backend of a session that is run by another process. TF1: ``GrpcSession``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from asyncmon.distributed.error_data import error_data, error_of
from asyncmon.distributed.graph_codec import graph_data
from asyncmon.distributed.held_snapshots import held_snapshot
from asyncmon.distributed.remote_run import RemoteRun
from asyncmon.distributed.service_job import off_loop
from asyncmon.distributed.targets import start_server_of
from asyncmon.distributed.wire import VERSION, Decoder, Encoder, Message
from asyncmon.errors import AbortedError, CancelledError, OpError, UnavailableError
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.execution.feeds import Feed
from asyncmon.graph.ops.py_func import called
from asyncmon.graph.queues.ops import closing_error
from asyncmon.graph.session.backend import QueueSize
from asyncmon.protobuf.run_options import RunMetadata, RunOptions
from asyncmon.session_config import SessionConfig
from asyncmon.system.cancellation import outlast
from asyncmon.system.clock import monotonic
from asyncmon.system.snapshot import Snapshot

logger = logging.getLogger(__name__)

_CALLED_SECS = 0.1  # between two polls of a job while functions of this process run for it
_OWN_PROCESS_SECS = 0.3  # to close the session of a child process, which is ended afterwards
_ATTEND_PAUSE_SECS = 0.1  # after a failure of the request that stays pending
# The jobs whose response has the global step. Other responses may be older than that of a run.
_CHANGE = ("run", "load")


class Channel(Protocol):
    """A connection to a service."""

    async def call(self, request: Message, timeout: float) -> Message:
        """Return the response to a request. A timeout of ``inf``: wait as long as the connection lasts.

        Raises:
            UnavailableError: no response within ``timeout`` seconds, or no server. The request may have
                been executed or not.
        """

    async def close(self) -> None:
        """Close the connection. Pending calls fail. A second call does nothing."""


@contextlib.contextmanager
def lost_with(session: Any) -> Iterator[None]:
    """Raise ``AbortedError`` for a snapshot whose session is closed before it is saved."""
    try:
        yield
    except (RuntimeError, CancelledError) as error:
        if not session.closed:
            raise
        raise AbortedError("The session was closed before its snapshot was saved.") from error


@dataclass(slots=True, eq=False)
class _Plan:
    """The fetches and feeds of a run, by number. See :class:`.session.backend.Prepared`."""

    number: int
    fetches: list[list[Any]]
    feeds: list[tuple[Feed, list[int]]]
    done: list[int]
    changes: tuple[str, ...] = ()
    known: bool = False  # to the other side


class RemoteBackend:
    """See the module. The first request opens it.

    Cancelling a run cancels it on the server, whose state is then that before the run or after it. An
    error of a run is raised in the same class, with the operation of this graph.

    Args:
        target: the target of the session, for messages.
        graph: the graph.
        config: the config for the server's side.
        channel: the connection to the service; closed with the backend.
        timeout_secs: a later response is an ``UnavailableError``.
        is_part: execute everything on that server, ignoring the devices of the graph.
        writes_files: whether the other process writes the files of a save, because it has the same
            file system and the jobs of :class:`.held_snapshots.HeldSnapshots`.
    """

    def __init__(
        self,
        target: str,
        graph: Graph,
        config: SessionConfig,
        channel: Channel,
        timeout_secs: float,
        *,
        is_part: bool = False,
        writes_files: bool = False,
    ) -> None:
        self.closed = False
        self.shares_state = not (writes_files or config.isolate_session_state)
        self.global_step: int | None = None
        self.cluster_run = RemoteRun(self.ask_run, graph) if self.shares_state else None
        self._target = target
        self._graph = graph
        self._config = config
        self.channel = channel
        self._timeout = timeout_secs
        self._is_part = is_part
        self._writes_files = writes_files
        #   operations  | the service has them | _sending brings them | made since
        #               0                _version         graph.version, at its start
        #   jobs        | answered: the service forgets them | some are answered |
        #               1                       min(_under_way)            _sequence
        #   _unsent     of the last snapshot: later jobs follow it, so it has the state of its order
        self._unsent: asyncio.Future[None] | None = None
        self._functions: list[Operation] = []  # that call functions, by number
        self._session: dict[str, Any] = {}  # its number and the service's incarnation
        self._version = 0
        self._sending: asyncio.Task[None] | None = None
        self._attending: asyncio.Task[None] | None = None
        self._plans = 0
        self._sequence = 0
        self._under_way: set[int] = set()
        self._is_silent = False  # the last request had no response

    def check_open(self) -> None:
        """Raise RuntimeError once it is closed."""
        if self.closed:
            raise RuntimeError("Attempted to use a closed Session.")

    def prepare(
        self,
        fetches: Sequence[Tensor | Operation],
        fed: Sequence[Tensor],
        done: Sequence[Operation] = (),
    ) -> _Plan:
        """Number a set of fetches and fed tensors."""
        self._plans += 1
        return _Plan(
            self._plans,
            [[x.op.id, x.value_index if isinstance(x, Tensor) else None] for x in fetches],
            [(Feed(x), [x.op.id, x.value_index]) for x in fed],
            [op.id for op in done],
        )

    async def run(
        self,
        plan: _Plan,
        fed: Sequence[Any],
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
        *,
        peek: bool = False,
    ) -> list[Any]:
        """Run a plan on the server."""
        encoder = Encoder()
        request: dict[str, Any] = {
            "job": "peek" if peek else "run",
            "plan": plan.number,
            "fed": [encoder.encode(value) for value in fed],
            "options": encoder.encode(options),
        }
        if not plan.known:
            request["fetches"] = plan.fetches
            request["feeds"] = [place for _, place in plan.feeds]
            request["done"] = plan.done
        if (closing := closing_error.get()) is not None:
            request["closing_error"] = error_data(closing)
        answer = await self.job(request, encoder)
        plan.known = True
        if metadata is not None and "metadata" in answer:
            metadata.nodes[:], metadata.duration = answer["metadata"]
        values: list[Any] = answer["values"]
        return values

    async def repeat(self, plan: _Plan, until: Callable[[], bool]) -> None:
        """Run a plan until that is true."""
        while not until():
            await self.run(plan, ())

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set variables on the server."""
        encoder = Encoder()
        data = await off_loop(len(values), encoder.encode, dict(values))
        await self.job({"job": "load", "values": data}, encoder)

    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a snapshot, which is transferred."""
        return asyncio.ensure_future(self._snapshot(self._ordered("snapshot")))

    def snapshot_to_write(self) -> Awaitable[Snapshot]:
        """Order a snapshot for a save; it is held by the other process if that writes the files."""
        if not self._writes_files:
            return self.snapshot()
        return asyncio.ensure_future(held_snapshot(self._save_job, self._ordered("hold")))

    async def ask(self, do: str, **content: Any) -> dict[str, Any]:
        """Send a request that is no job, with plain data, and return plain data."""
        self.check_open()
        await self._send_graph()
        return await self._ask(Encoder().plain({"do": do, **content, **self._session}))

    async def ask_run(self, **request: Any) -> dict[str, Any]:
        """Send a request to the record of the run: see :class:`.cluster_run.RunRecord`."""
        if "wait" in request:  # else the answer of a server that waits is late
            request["wait"] = min(request["wait"], self.wait_secs)
        return await self.ask("cluster_run", request=request)

    async def reset(self, containers: Sequence[str], *, is_part: bool = False) -> None:
        """Clear the state of the server; unless ``is_part``, also of the other tasks of its cluster."""
        await self._ask(
            Encoder().plain({"do": "reset", "containers": list(containers), "part": is_part})
        )

    async def queues(self) -> list[QueueSize]:
        """Return the sizes of the queues on the server."""
        answer = await self.ask("queues")
        return [(name, size, capacity) for name, size, capacity in answer["queues"]]

    def inside(self, task: asyncio.Task[Any] | None) -> bool:
        """Return False: functions of a graph are called in the process of their server."""
        return False

    def computing(self) -> tuple[int, ...]:
        """Return no threads: another process computes."""
        return ()

    def abandon(self) -> None:
        """Do nothing: runs that are cancelled return at once."""

    def pending_operations(self) -> list[str]:
        """Return nothing: pending operations are known on the server only."""
        return []

    async def close(self) -> None:
        """Close the session on the server, if reachable, and the connection."""
        if self.closed:
            return
        self.closed = True
        if self._sending is not None:
            self._sending.cancel()
        try:
            if self._session:
                request = Encoder().plain({"do": "close", **self._session})
                secs = min(self._timeout, 1.0) if self._is_silent else self._timeout
                if self._writes_files:  # a process of our own, which then ends
                    secs = min(secs, _OWN_PROCESS_SECS)
                await self.channel.call(request, secs)
                # The server answers it: gRPC logs a cancelled request. One of another loop has ended.
                if self._attending is not None and not self._attending.done():
                    await asyncio.wait([self._attending], timeout=_ATTEND_PAUSE_SECS)
        except OpError as error:
            logger.debug("The session at %s could not be closed: %s", self._target, error)
        finally:
            if self._attending is not None:
                self._attending.cancel()
            await self.channel.close()

    # Requests.

    def _ordered(self, kind: str) -> asyncio.Task[dict[str, Any]]:
        """Start a job, which is sent before later jobs."""
        self.check_open()
        sent = self._unsent = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self._save_job({"job": kind}, Encoder(), sent))
        task.add_done_callback(lambda _task: sent.cancel())  # in case it failed before
        return task

    async def _snapshot(self, answered: Awaitable[dict[str, Any]]) -> Snapshot:
        answer = await answered
        return Snapshot(answer["values"], answer["step"])

    async def _save_job(
        self, request: dict[str, Any], encoder: Encoder, sent: asyncio.Future[None] | None = None
    ) -> dict[str, Any]:
        """Execute a job of a snapshot, which is lost if the session is closed during it."""
        with lost_with(self):
            return await self.job(request, encoder, sent)

    async def job(
        self, request: dict[str, Any], encoder: Encoder, sent: asyncio.Future[None] | None = None
    ) -> dict[str, Any]:
        """Start a job, wait for its end, and return the response.

        Args:
            request: plain data, with the kind of the ``"job"``.
            encoder: has the buffers.
            sent: completed when the job is sent; other jobs wait for that of the last snapshot.
        """
        if request["job"] != "extend":
            self.check_open()
            if sent is None and self._unsent is not None and not self._unsent.done():
                await asyncio.wait((self._unsent,))
            await self._send_graph()
        self._sequence += 1
        sequence = self._sequence
        self._under_way.add(sequence)
        request.update(
            self._session,
            do="start",
            sequence=sequence,
            answered=min(self._under_way),
            wait=self.wait_secs,
        )
        if sent is not None:  # at the first await below
            sent.set_result(None)
        try:
            answer = await self._ask(encoder.plain(request))
            if "pending" in answer:
                answer = await self._resumed(sequence, answer)
        except asyncio.CancelledError:
            await self._cancel(sequence)
            raise
        finally:
            self._under_way.discard(sequence)
        if answer["step"] is not None and request["job"] in _CHANGE:
            self.global_step = answer["step"]
        return answer

    @property
    def wait_secs(self) -> float:
        """The maximum time in seconds before the server responds."""
        return self._timeout / 3

    async def _resumed(self, sequence: int, answer: dict[str, Any]) -> dict[str, Any]:
        """Call the functions that a job requests, and poll for its end."""
        calls: dict[asyncio.Task[Any], int] = {}
        try:
            while "pending" in answer:
                for call, number, arrays in answer["pending"]:
                    calls[asyncio.create_task(called(self._functions[number], arrays))] = call
                if calls:
                    await asyncio.wait(calls, timeout=_CALLED_SECS, return_when=asyncio.FIRST_COMPLETED)
                encoder = Encoder()
                done = [task for task in calls if task.done()]
                results = [[calls.pop(task), _outcome(task, encoder)] for task in done]
                request = {
                    "do": "resume", "sequence": sequence, "results": results,
                    "wait": 0.0 if calls else self.wait_secs, **self._session,
                }  # fmt: skip
                answer = await self._ask(encoder.plain(request))
        finally:
            for task in calls:
                task.cancel()
            if calls:
                await asyncio.wait(calls)
        return answer

    async def _attend(self, **session: Any) -> None:
        """Keep a request pending: where it ends the server learns that this process is gone."""
        request = Encoder().plain({"do": "attend", **session})
        while not self.closed:
            try:
                await self._ask(request, inf)
            except UnavailableError:
                await asyncio.sleep(_ATTEND_PAUSE_SECS)
            except OpError as error:  # the session is gone: the next request reports it
                logger.debug("%s: %s", self._target, error)
                return

    async def _ask(self, request: Message, timeout: float | None = None) -> dict[str, Any]:
        """Return the response to a request, which is repeated once if the connection broke."""
        begun = monotonic()
        timeout = self._timeout if timeout is None else timeout
        try:
            answer = await self.channel.call(request, timeout)
        except UnavailableError:
            if self.closed:
                raise CancelledError("Session has been closed.") from None
            if monotonic() - begun > self._timeout / 4:
                self._is_silent = True
                raise
            answer = await self.channel.call(request, timeout)  # the server executes it only once
        self._is_silent = False
        count = len(answer.header) >> 4  # the description of an array takes 16 bytes
        content: dict[str, Any] = await off_loop(count, lambda: Decoder(answer).value())
        if "error" in content:
            error = error_of(content["error"], self._graph)
            if self.closed and isinstance(error, AbortedError):  # already closed on the server
                error = CancelledError("Session has been closed.")
            raise error
        return content

    async def _cancel(self, sequence: int) -> None:
        """Notify the server, in bounded time and shielded from cancellation."""
        if self.closed:
            return
        request = Encoder().plain({"do": "cancel", "sequence": sequence, **self._session})
        with contextlib.suppress(OpError):  # a server drops the jobs of a client that it has lost
            answered = asyncio.ensure_future(self.channel.call(request, self._timeout))
            await outlast(answered)
            step = Decoder(answered.result()).value().get("step")
            self.global_step = self.global_step if step is None else step

    async def _send_graph(self) -> None:
        """Open the session on the server, or send new operations of the graph, if necessary."""
        while self._version != self._graph.version or not self._session:
            if self._sending is None or self._sending.done():
                self._sending = asyncio.create_task(self._send_operations())
                self._sending.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._sending)  # one cancelled run does not cancel it for others

    async def _send_operations(self) -> None:
        start_server_of(self._target)
        if not self._session:
            config = self._config.engine_options()
            request = {"do": "open", "version": VERSION, "config": config, "part": self._is_part}
            answer = await self._ask(Encoder().plain(request))
            self._session = {"session": answer["session"], "incarnation": answer["incarnation"]}
            self._attending = asyncio.create_task(self._attend(**self._session))
        version, encoder = self._graph.version, Encoder()
        data = await asyncio.to_thread(graph_data, self._graph, self._version, self._functions, encoder)
        try:
            await self.job({"job": "extend", "graph": data}, encoder)
        except OpError:
            if not self._version:  # the next attempt opens another session
                close, self._session = Encoder().plain({"do": "close", **self._session}), {}
                with contextlib.suppress(OpError):  # likewise
                    await self.channel.call(close, self._timeout)
            raise
        self._version = version


def _outcome(task: asyncio.Task[Any], encoder: Encoder) -> dict[str, Any]:
    error = task.exception()
    return {"value": encoder.encode(task.result())} if error is None else {"error": error_data(error)}
