"""The backend of a session whose graph is on several tasks of a cluster. TF1: a master's partitions.

Variables and their updates are on the tasks of their devices; other operations run on the session's own
task. A run is a transaction on each task: it pulls from all servers at once, computes, and pushes to
all at once. A run that fails or is cancelled in between may be applied on some servers only. A snapshot
is likewise of one version on each task, and of different ones on several if others train too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from asyncmon.distributed.cluster_run import RunRecord
from asyncmon.distributed.fingerprint import tasks_of
from asyncmon.distributed.partition import Part, Partition, partition
from asyncmon.distributed.placement import OWN, Placement
from asyncmon.distributed.remote_backend import RemoteBackend, lost_with
from asyncmon.distributed.remote_run import RemoteRun
from asyncmon.errors import DeadlineExceededError
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.execution.feeds import Feed
from asyncmon.graph.session.backend import Backend, QueueSize
from asyncmon.graph.variables.global_step import step_counter
from asyncmon.protobuf.run_options import RunMetadata, RunOptions
from asyncmon.system.cancellation import completed, outlast
from asyncmon.system.clock import monotonic
from asyncmon.system.snapshot import Snapshot


@dataclass(slots=True, eq=False)
class _Plan:
    """See :class:`~asyncmon.graph.session.backend.Prepared`.

    Attributes:
        own: the plan of the session's own task, if that executes everything.
        parts: else the partition of the run.
    """

    feeds: Sequence[tuple[Feed, Any]]
    changes: Sequence[str]
    own: Any = None
    parts: Partition | None = None


class PartitionedBackend:
    """See the module.

    Args:
        graph: the graph.
        own: the backend of the session's own task; closed with this one.
        record: the record of the run on the own task's server.
        placement: of the graph's operations.
        connect: makes the backend of another place at its first use.
        shares_state: whether other sessions change the same variables.
    """

    def __init__(
        self,
        graph: Graph,
        own: Backend,
        record: RunRecord,
        placement: Placement,
        connect: Callable[[str], RemoteBackend],
        *,
        shares_state: bool = True,
    ) -> None:
        self.shares_state = shares_state
        self.closed = False
        self._graph = graph
        self._own = own
        self._record = record
        self.cluster_run = RemoteRun(self.ask_run, graph) if shares_state else None
        self._placement = placement
        self._connect = connect
        self._others: dict[str, RemoteBackend] = {}

    @property
    def global_step(self) -> int | None:
        """The committed global step; that of the last response if another task holds it."""
        found: int | None = self._part_at(self._step_place()).global_step
        return found

    async def ask_run(self, **request: Any) -> dict[str, Any]:
        """Send a request to the record of the run, which is at the task with the global step."""
        request.setdefault("task", self._placement.own_task)
        given = request.get("fingerprint")
        if isinstance(given, dict):
            given["cluster"] = tasks_of(self._placement.cluster)
        place = self._step_place()
        if place != OWN:
            answer: dict[str, Any] = await self._part_at(place).ask_run(**request)
            return answer
        self._own.check_open()
        return await self._record.answer(lambda: self._own.global_step, request, self)

    def _step_place(self) -> str:
        step = step_counter(self._graph)
        return OWN if step is None else self._placement.place(step.op)

    def check_open(self) -> None:
        """Raise RuntimeError once it is closed."""
        self._own.check_open()

    def prepare(
        self,
        fetches: Sequence[Tensor | Operation],
        fed: Sequence[Tensor],
        done: Sequence[Operation] = (),
    ) -> _Plan:
        """Partition a run, and prepare each part."""
        found = partition(fetches, fed, self._placement)
        parts = list(chain(*found.stages))
        if all(part.place == OWN for part in parts):
            plan = self._own.prepare(fetches, fed, done)
            return _Plan(plan.feeds, plan.changes, own=plan)
        for part in parts:
            part.plan = self._part_at(part.place).prepare(part.fetches, part.feeds, part.done)
        return _Plan([(Feed(tensor), None) for tensor in fed], found.changes, parts=found)

    async def run(
        self,
        plan: _Plan,
        fed: Sequence[Any],
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
        *,
        peek: bool = False,
    ) -> list[Any]:
        """Run stage after stage, the parts of each concurrently."""
        if plan.own is not None:
            return await self._own.run(plan.own, fed, options, metadata, peek=peek)
        cut = plan.parts
        assert cut is not None, "a plan is the own task's or has parts"
        started, traces = monotonic(), []
        values = {feed.tensor: value for (feed, _), value in zip(plan.feeds, fed, strict=True)}
        results: dict[Part, list[Any]] = {}
        for parts in cut.stages:
            left = _left(options, started)
            calls = []
            for part in parts:
                given = [values[tensor] for tensor in part.feeds]
                trace = None if metadata is None else RunMetadata()
                traces.append(trace)
                calls.append(self._part_at(part.place).run(part.plan, given, left, trace, peek=peek))
            for part, found in zip(parts, await _all(calls), strict=True):
                results[part] = found
                values.update(
                    (element, value)
                    for element, value in zip(part.fetches, found, strict=True)
                    if isinstance(element, Tensor) and element not in values
                )
        if metadata is not None:
            metadata.nodes[:] = [node for trace in traces if trace for node in trace.nodes]
            metadata.duration = monotonic() - started
        return [_value(source, results, fed) for source in cut.sources]

    async def repeat(self, plan: _Plan, until: Callable[[], bool]) -> None:
        """Run until that is true."""
        if plan.own is not None:
            await self._own.repeat(plan.own, until)
            return
        while not until():
            await self.run(plan, ())

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set variables on their tasks. Atomic on each task."""
        shares: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            shares.setdefault(self._place_of(name), {})[name] = value
        await _all([self._part_at(place).load(share) for place, share in shares.items()])

    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a snapshot on each task: of one version there, before later runs of this session."""
        self.check_open()
        places = {self._placement.place(v.op) for v in self._graph.get_collection("variables")}
        ordered = {place: self._part_at(place).snapshot() for place in sorted(places - {OWN})}
        return asyncio.ensure_future(self._snapshot(ordered))

    async def queues(self) -> list[QueueSize]:
        """Return the sizes of the queues of the own task and of the other tasks used so far."""
        parts = (self._own, *self._others.values())
        return list(chain.from_iterable(await _all([part.queues() for part in parts])))

    def pending_operations(self) -> list[str]:
        """Return the names of operations that runs of the own task await."""
        return self._own.pending_operations()

    def computing(self) -> tuple[int, ...]:
        """Return the threads of this process that compute runs, by their idents."""
        return self._own.computing()

    def abandon(self) -> None:
        """Let runs return at once that a thread of this process computes."""
        self._own.abandon()

    def inside(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether the caller is part of a function of a run of the own task."""
        return self._own.inside(task)

    async def close(self) -> None:
        """Close all backends. An error is raised after all of them are closed."""
        self.closed = True
        self._record.closed(self)
        parts = (*self._others.values(), self._own)
        ended = asyncio.gather(*[part.close() for part in parts], return_exceptions=True)
        for error in await completed(ended):
            if error is not None:
                raise error

    def _part_at(self, place: str) -> Any:
        if place == OWN:
            return self._own
        if place not in self._others:
            self._others[place] = self._connect(place)
        return self._others[place]

    def _place_of(self, name: str) -> str:
        known = name in self._graph._operations  # the state of the generators is an entry too
        return self._placement.variable_place(name) if known else OWN

    async def _snapshot(self, ordered: Mapping[str, Awaitable[Snapshot]]) -> Snapshot:
        with lost_with(self):
            found = await _all(list(ordered.values()))
            own = await self._own.snapshot()
        values: dict[str, Any] = dict(own)
        for place, snapshot in zip(ordered, found, strict=True):
            values.update((n, x) for n, x in snapshot.items() if self._place_of(n) == place)
        step = step_counter(self._graph)
        counted = None if step is None else values.get(step.op.name)
        return Snapshot(values, None if counted is None else counted.item(), own.release)


def _value(source: tuple[Part, int] | int | None, results: dict[Part, list[Any]], fed: Any) -> Any:
    match source:
        case None:
            return None
        case int():
            return fed[source]
        case part, position:
            return results[part][position]


def _left(options: RunOptions | None, started: float) -> RunOptions | None:
    """Return options with the remaining time."""
    if options is None or not options.timeout_in_ms:
        return options
    left = options.timeout_in_ms - int((monotonic() - started) * 1000)
    if left <= 0:
        raise DeadlineExceededError(f"The run took longer than {options.timeout_in_ms} ms.")
    return replace(options, timeout_in_ms=left)


async def _all(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    """Await all concurrently. The first error cancels the others, and is raised."""
    if len(calls) == 1:
        return [await calls[0]]
    tasks = [asyncio.ensure_future(call) for call in calls]
    failed: BaseException | None = None
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError as error:
        failed = error
    else:
        errors = [task.exception() for task in tasks if task.done() and not task.cancelled()]
        failed = next((error for error in errors if error is not None), None)
    if failed is not None:
        for task in tasks:
            task.cancel()
    rest = asyncio.gather(*tasks, return_exceptions=True)
    cancelled = await outlast(rest)  # a cancellation is raised once all have ended
    try:
        if failed is not None or cancelled is not None:
            raise cancelled or failed or asyncio.CancelledError
        return [task.result() for task in tasks]
    finally:
        del failed, cancelled  # their tracebacks refer to this frame
