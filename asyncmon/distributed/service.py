"""The session service: executes the sessions of other processes, over any transport.

A request is a message whose header is a dict with ``"do"``. Requests that may take long start a *job*,
a run, a load or a snapshot, and get a response within the timeout that they give: the result, or the
calls of functions of the client that the job awaits. ``resume`` polls the job and brings the results of
these functions. So each request has a deadline, and a run may have none.

A session is identified by its number and by the service's incarnation, which is new in each process. A
job has a number given by the client; a repeated request finds the job of the first one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from asyncmon.distributed import request_fields
from asyncmon.distributed.cluster_run import RunRecord
from asyncmon.distributed.error_data import error_of, failure
from asyncmon.distributed.graph_codec import GraphReader
from asyncmon.distributed.service_job import MANY, ServiceJob, current_job, off_loop
from asyncmon.distributed.wire import VERSION, Decoder, Message, encode
from asyncmon.errors import (
    AbortedError,
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.queues.ops import closing_error
from asyncmon.graph.session.backend import Backend, DirectBackend
from asyncmon.protobuf.run_options import RunMetadata, RunOptions
from asyncmon.session_config import SessionConfig
from asyncmon.system.clock import random_bytes
from asyncmon.system.files import in_thread
from asyncmon.system.snapshot import Snapshot


def results_of(backend: Backend, results: list[Any], metadata: RunMetadata | None = None) -> Message:
    """Return the response of a run."""
    content = {"values": results, "step": backend.global_step}
    if metadata is not None:
        content["metadata"] = [list(metadata.nodes), metadata.duration]
    return encode(content)


def take_snapshot(backend: Backend, _decoder: Decoder) -> Callable[[], Awaitable[Message]]:
    """Order a snapshot; return a function that awaits it and makes the response."""
    ordered = backend.snapshot()  # before later requests

    async def take() -> Message:
        snapshot = await ordered
        content = {"values": dict(snapshot), "step": snapshot.step}
        try:
            message = await off_loop(len(snapshot), encode, content)
        except BaseException:
            snapshot.release()
            raise
        message.sent = snapshot.release
        return message

    return take


async def lent_results(backend: Backend, ordered: Awaitable[Snapshot]) -> Message:
    """Return the results of a run that only reads, in the memory of the state until they are sent."""
    snapshot = await ordered
    message = results_of(backend, [value[()] for value in snapshot.values()])
    message.sent = snapshot.release
    return message


Work = Callable[[], Awaitable[Message]]
Kind = Callable[[Backend, Decoder], Work]

logger = logging.getLogger(__name__)

MAX_WAIT = 30.0
"""Seconds for which a request may ask to be answered late."""

_FIRST_SECS = 10.0  # for a new session, until its client attends
_AGAIN_SECS = 0.5  # for one whose connection broke: clients connect again at once

MAX_SESSIONS = 1000
"""That a service keeps; the one that was idle for longest goes."""

_LARGE = 1 << 20  # bytes: a result of that size is not kept for a request that comes twice


class _Served:
    """A session of a client."""

    def __init__(self, backend_of: Callable[[Graph], Backend]) -> None:
        self.reader = GraphReader(self._call)
        self.backend = backend_of(self.reader.graph)
        self.plans: dict[int, Any] = {}
        self.jobs: dict[int, ServiceJob] = {}
        self.answered = 0  # jobs below were answered, and are forgotten
        self.closed = False
        self.attended = 0  # requests of the client that stay pending while it is connected
        self.over = asyncio.Event()  # ends these requests
        self.lost: asyncio.TimerHandle | None = None  # drops the session, unless it is attended

    async def _call(self, number: int, *arrays: Any) -> Any:
        return await current_job.get().call(number, *arrays)

    def drop_jobs(self, error: Exception) -> None:
        for job in tuple(self.jobs.values()):
            job.drop(error)

    async def close(self) -> None:
        self.closed = True
        self.over.set()
        if self.lost is not None:
            self.lost.cancel()
        self.drop_jobs(CancelledError("Session has been closed."))
        self.jobs.clear()
        await self.backend.close()


def _config(fields: Any) -> SessionConfig:
    try:
        config = SessionConfig(**fields)
        config.check()
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"The config of a session is malformed: {error}.") from None
    return config


async def _extend(served: _Served, decoder: Decoder) -> Message:
    """Add operations to the graph of a session."""
    await in_thread(served.reader.add, decoder.content["graph"], decoder)
    return results_of(served.backend, [])


def _load(backend: Backend, decoder: Decoder) -> Work:
    values = decoder.content["values"]

    async def load() -> Message:
        await backend.load(await off_loop(len(values), decoder.decode, values))
        return results_of(backend, [])

    return load


class SessionService:
    """Runs the sessions of clients.

    It alone decides whether a client is alive, see :meth:`_attend`.

    Args:
        backend_of: makes what a new session computes with, of its graph and config.
        part_backend_of: likewise, for a session that is a part of another task's.
    """

    def __init__(
        self,
        backend_of: Callable[[Graph, SessionConfig], Backend],
        part_backend_of: Callable[[Graph, SessionConfig], Backend] | None = None,
    ) -> None:
        self.incarnation = random_bytes(8).hex()
        self._backend_of = backend_of
        self._part_backend_of = part_backend_of or backend_of
        self.run_record = RunRecord()
        self._sessions: dict[int, _Served] = {}
        self._opened = 0
        self._jobs: dict[str, Kind] = {"load": _load, "snapshot": take_snapshot}
        self._methods: dict[str, Callable[[Decoder], Awaitable[Message]]] = {
            "open": self._open,
            "start": self._start,
            "resume": self._resume,
            "cancel": self._cancel,
            "queues": self._queues,
            "attend": self._attend,
            "cluster_run": self._ask_run,
            "close": self._close,
        }

    def add_method(self, name: str, method: Callable[[Decoder], Awaitable[Message]]) -> None:
        """Answer another request too."""
        self._methods[name] = method

    def add_job(self, name: str, job: Kind) -> None:
        """Do another job too."""
        self._jobs[name] = job

    @property
    def num_sessions(self) -> int:
        """How many sessions are open."""
        return len(self._sessions)

    async def answer(self, request: Message) -> Message:
        """Return the response to a request. Errors become responses; a cancellation is raised."""
        try:
            decoder = Decoder(request)
            do = request_fields.check(decoder.content)
            if do not in self._methods:
                raise InvalidArgumentError(f"There is no request {do!r} here.")
            return await self._methods[do](decoder)
        except Exception as error:
            return failure(error)

    def release_clients(self) -> None:
        """Answer the requests that would stay pending: the service is about to be closed."""
        for served in self._sessions.values():
            served.over.set()

    async def close(self) -> None:
        """Close all sessions. A second call does nothing."""
        while self._sessions:
            await self._end_session(next(reversed(self._sessions)))

    async def _open(self, decoder: Decoder) -> Message:
        content = decoder.content
        if content["version"] != VERSION:
            raise FailedPreconditionError(
                f"The client writes version {content['version']!r} of the protocol, this process "
                f"version {VERSION}. Use the same version of asyncmon on both sides."
            )
        config = _config(decoder.decode(content.get("config")))
        backend_of = self._part_backend_of if content.get("part") else self._backend_of
        served = _Served(lambda graph: backend_of(graph, config))
        self._opened += 1
        self._sessions[self._opened] = served
        self._expect(self._opened, served, _FIRST_SECS)
        await self._make_room()
        return encode({"session": self._opened, "incarnation": self.incarnation})

    async def _make_room(self) -> None:
        while len(self._sessions) > MAX_SESSIONS:
            idle = [number for number, served in self._sessions.items() if not served.jobs]
            await self._end_session((idle or list(self._sessions))[0])

    async def _start(self, decoder: Decoder) -> Message:
        served, content = self._served(decoder), decoder.content
        sequence, kind = content["sequence"], content["job"]
        self._forget_below(served, content["answered"])
        job = served.jobs.get(sequence)
        if job is None:
            if sequence < served.answered:
                raise AbortedError(f"Request {sequence} was answered already; it is not done again.")
            job = served.jobs[sequence] = ServiceJob()
            try:
                work = self._work(served, kind, decoder, job)
            except Exception as error:
                job.answer = failure(error)
            else:
                if work is not None:
                    job.start(self._run(served, work, job))
        return await self._wait(sequence, job, content["wait"])

    async def _resume(self, decoder: Decoder) -> Message:
        served, content = self._served(decoder), decoder.content
        sequence = content["sequence"]
        job = served.jobs.get(sequence)
        if job is None:
            raise AbortedError(f"Request {sequence} is not known any more.")
        for call, result in content["results"]:
            error = error_of(result["error"], served.reader.graph) if "error" in result else None
            job.deliver(call, None if error else decoder.decode(result.get("value")), error)
        return await self._wait(sequence, job, content["wait"])

    async def _cancel(self, decoder: Decoder) -> Message:
        served = self._served(decoder)
        job = served.jobs.get(decoder.content["sequence"])
        if job is not None:
            job.drop(CancelledError("The run was cancelled."))
            if job.task is not None:
                await asyncio.wait((job.task,), timeout=MAX_WAIT)
        return encode({"step": served.backend.global_step})  # it may have been too late

    async def _queues(self, decoder: Decoder) -> Message:
        return encode({"queues": await self._served(decoder).backend.queues()})

    async def _close(self, decoder: Decoder) -> Message:
        self._served(decoder)
        await self._end_session(decoder.content["session"])
        return encode({})

    async def _end_session(self, number: int) -> None:
        served = self._sessions.pop(number, None)
        if served is not None:
            try:
                await served.close()
            finally:
                self.run_record.closed(served)

    async def _attend(self, decoder: Decoder) -> Message:
        """Answer at the end of the session only."""
        # The client keeps this request pending. The transport cancels it when the connection ends or is
        # silent for too long. Unless the client attends again at once, its jobs, snapshots and
        # membership are dropped together. The session itself stays for a client that returns.
        served = self._served(decoder)
        served.attended += 1
        if served.lost is not None:
            served.lost.cancel()
        try:
            await served.over.wait()
        finally:
            served.attended -= 1
            if not (served.attended or served.closed):
                self._expect(decoder.content["session"], served, _AGAIN_SECS)
        return encode({})

    def _expect(self, number: int, served: _Served, secs: float) -> None:
        """Drop what belongs to a client unless it attends within some seconds."""
        served.lost = asyncio.get_running_loop().call_later(secs, self._drop, number, served)

    def _drop(self, number: int, served: _Served) -> None:
        logger.info("The client of session %d is gone: its runs are cancelled.", number)
        served.drop_jobs(UnavailableError("The connection of the client had ended."))
        self.run_record.disconnected(served)

    async def _ask_run(self, decoder: Decoder) -> Message:
        served, request = self._served(decoder), decoder.content["request"]
        ask = getattr(served.backend, "ask_run", None)
        if ask is not None:
            return encode(await ask(**request))
        step = partial(getattr, served.backend, "global_step")
        return encode(await self.run_record.answer(step, request, served))

    # Jobs.

    def _served(self, decoder: Decoder) -> _Served:
        content = decoder.content
        number = content["session"]
        served = self._sessions.get(number)
        if content["incarnation"] != self.incarnation or served is None:
            raise AbortedError(
                f"Session {number} of incarnation {content['incarnation']!r} is not here: the process "
                "was started anew since, or has closed it."
            )
        self._sessions[number] = self._sessions.pop(number)  # the last one used
        return served

    def _work(self, served: _Served, kind: str, decoder: Decoder, job: ServiceJob) -> Work | None:
        """Return what a job awaits; None where it is done already."""
        content, backend = decoder.content, served.backend
        if kind in self._jobs:
            return self._jobs[kind](backend, decoder)
        if kind == "extend":
            return partial(_extend, served, decoder)
        if kind not in ("run", "peek"):
            raise InvalidArgumentError(f"There is no job {kind!r}.")
        is_new = content["plan"] not in served.plans
        if is_new and len(served.reader.operations) >= MANY and isinstance(backend, DirectBackend):
            return partial(self._planned, served, kind, decoder, job)
        plan = self._plan(served, content)
        values = [decoder.decode(x) for x in content["fed"]]
        options = decoder.decode(content["options"])
        if len(values) != len(plan.feeds) or not isinstance(options, RunOptions | None):
            raise InvalidArgumentError(
                f"A run of {len(plan.feeds)} feeds got {len(values)}, and options {options!r}."
            )
        fed = [feed.accept(value) for (feed, _), value in zip(plan.feeds, values, strict=True)]
        trace = options is not None and options.trace_level
        peek = kind == "peek"
        if peek and plan.changes:
            raise InvalidArgumentError(
                f"peek() cannot compute these fetches: operation {plan.changes[0]!r} changes the "
                "state. Use run()."
            )
        if "closing_error" in content:  # the context is that of this request
            closing_error.set(error_of(content["closing_error"], served.reader.graph))
        if options is None and isinstance(backend, DirectBackend):
            ordered = backend.reads(plan, _LARGE)
            if ordered is not None:
                return partial(lent_results, backend, ordered)
            results = None if peek else backend.run_inline(plan, fed)
            if results is not None:
                job.answer = results_of(backend, results)
                return None

        async def run() -> Message:
            metadata = RunMetadata() if trace else None
            results = await backend.run(plan, fed, options, metadata, peek=peek)
            return results_of(backend, results, metadata)

        return run

    async def _planned(self, served: _Served, kind: str, decoder: Decoder, job: ServiceJob) -> Message:
        """Do a run whose plan is long in the making."""
        await asyncio.to_thread(self._plan, served, decoder.content)
        work = self._work(served, kind, decoder, job)
        if work is not None:
            return await work()
        assert job.answer is not None, "set where there is nothing to await"
        return job.answer

    def _plan(self, served: _Served, content: dict[str, Any]) -> Any:
        number = content["plan"]
        plan = served.plans.get(number)
        if plan is None:
            operations = served.reader.operations
            try:
                fetched = [
                    operations[i] if k is None else operations[i].outputs[k]
                    for i, k in content["fetches"]
                ]
                fed = [operations[i].outputs[k] for i, k in content["feeds"]]
                done = [operations[i] for i in content["done"]]
            except (KeyError, IndexError) as error:
                raise InvalidArgumentError(f"A run of plan {number} is malformed: {error!r}.") from None
            plan = served.plans[number] = served.backend.prepare(fetched, fed, done)
        return plan

    async def _run(self, served: _Served, work: Work, job: ServiceJob) -> None:
        current_job.set(job)
        try:
            job.finish(await work())
        except asyncio.CancelledError:
            what = "Session has been closed." if served.closed else "The run was cancelled."
            job.finish(failure(CancelledError(what)))
        except Exception as error:
            job.finish(failure(error))

    async def _wait(self, sequence: int, job: ServiceJob, secs: float) -> Message:
        await job.wait(min(secs, MAX_WAIT))
        if job.answer is None:
            if job.task is not None and not job.task.done():
                asked, job.asked = job.asked, {}
                return encode({"pending": [(call, *asked[call]) for call in asked]})
            raise asyncio.CancelledError("The job was cancelled before it began.")
        found = job.answer
        if found.nbytes > _LARGE or found.is_borrowed:
            lost = f"Request {sequence} was done, but its result is gone."
            job.answer = failure(UnavailableError(lost))
        return found

    def _forget_below(self, served: _Served, answered: int) -> None:
        if answered > served.answered:
            served.answered = answered
            for sequence in [number for number in served.jobs if number < answered]:
                served.jobs.pop(sequence).drop(CancelledError("The run was cancelled."))
