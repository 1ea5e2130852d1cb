"""Pipelines: the results of an async function for each element of a source, each consumed once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from asyncmon.checkpoint.packing import own_containers
from asyncmon.runtime.channel import Channel
from asyncmon.runtime.commits import Commits
from asyncmon.runtime.data_iterator import DataIterator
from asyncmon.runtime.data_parts import DataParts
from asyncmon.runtime.frontier import Frontier
from asyncmon.runtime.frontier_batch import Batch
from asyncmon.runtime.pipeline_statistics import PipelineStatistics
from asyncmon.runtime.pipelines.batches import Batches, Items
from asyncmon.runtime.pipelines.item import Item
from asyncmon.runtime.pipelines.lease import Lease
from asyncmon.runtime.pipelines.options import Options
from asyncmon.runtime.pipelines.policy import Versions
from asyncmon.runtime.pipelines.source import ReadOnce, source_of
from asyncmon.runtime.pipelines.work import Work
from asyncmon.runtime.pipelines.workers import Workers
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.runtime.tasks import Task
from asyncmon.system import clock
from asyncmon.system.fair_lock import FairLock

if TYPE_CHECKING:
    from asyncmon.runtime.pipelines.app import LeaseApp

logger = logging.getLogger(__name__)


class Pipeline:
    """Results of a function for each element of a source, made beside the steps that consume them.

    Made by ``sess.produce``, which has its options. ``async for batch in pipeline.batches(16)`` gives
    lists of :class:`Item`, ``async for item in pipeline`` single ones. Workers start with the first
    request; the end of the data ends the iteration, and so does a stop, which cancels all calls.
    """

    #   source --_read--> _work.entries --_take--> _out: with the body
    #   frontier:         pending                  held                  then consumed
    #
    #   The frontier decides which elements a checkpoint has. Results and elements are added here:
    #   _kept             saved results, from a move back until _read gives their elements again
    #   _retained         the elements of a source that is read once, which cannot give them again,
    #                     until a checkpoint without them is committed

    def __init__(
        self,
        parts: DataParts,
        should_stop: Callable[[], bool],
        source: Any,
        fn: Any,
        options: Options,
        weights: Any,
    ) -> None:
        self._source = source_of(source)
        self._reads_once = isinstance(self._source, ReadOnce)
        self._is_live = isinstance(source, Channel)  # its end is that of a coordinator
        self.reads: Any = self._source.items if self._reads_once else self._source
        self.frontier = frontier = Frontier(
            self._source, parts.recoveries.step_of_data, parts.recoveries,
            reads_ahead=True, rewinds=not self._reads_once,
        )  # fmt: skip
        frontier.returned = self._returned
        self._parts = parts
        self._should_stop = should_stop
        self._options = options
        self._versions = versions = Versions(parts.recoveries, weights, parts.peek_with_step)
        self._work = work = Work(options, versions, self._drop)
        self._workers = Workers(fn, work, versions, parts, self._call_ended, self._stop_with)
        self.name = self._workers.name
        """The name in checkpoints, after ``pipelines/``."""
        self._commits = Commits(parts.on_committed, parts.stops.event)
        self._total: int | None = None  # the number of elements, once the data has ended
        self._out: dict[int, Item] = {}
        self._kept: dict[int, tuple[int, Any]] = {}
        self._retained: dict[int, Any] = {}
        self._error: BaseException | None = None  # to be raised in the body
        self._begun_at: float | None = None
        self._reader: Task | None = None
        self._room = asyncio.Event()
        self._taking = FairLock()
        self._arrival: asyncio.Future[None] | None = None
        self._changes = 0

    def __repr__(self) -> str:
        work = self._work
        counts = f"{len(work.leases)} in calls, {work.finished} ready"
        return f"<Pipeline {self.name!r}: {self.frontier.cursor} read, {counts}>"

    # -- the learner

    def batches(self, size: int, *, drop_remainder: bool = False) -> Batches:
        """Return an async iterator of lists of ``size`` finished items.

        A batch counts as consumed when a run commits a step that its task began after it got the
        batch; further steps with it change nothing. An element whose batch is not consumed belongs to
        the next checkpoint, and is given again by a resumed session.

        Args:
            size: the number of elements, at most ``depth``; a group is one element.
            drop_remainder: whether the last elements are left out if they are fewer.

        Raises:
            ValueError: such a batch would never fill.
        """
        if type(size) is not int or not 1 <= size <= self._options.depth:
            raise ValueError(
                f"batches({size!r}): a batch has 1 to depth={self._options.depth} elements, else it "
                "would never fill. Pass a larger depth to produce()."
            )
        take = partial(self._take, size=size, drop_remainder=drop_remainder)
        return Batches(self.frontier.ask, take)

    def __aiter__(self) -> AsyncIterator[Item]:
        return Items(self.batches(1))

    def __iter__(self) -> NoReturn:
        raise TypeError("A pipeline is awaited: write `async for`, not `for`.")

    async def _take(self, task: Task | None, *, size: int, drop_remainder: bool) -> list[Item]:
        async with self._taking:
            frontier, work = self.frontier, self._work
            ahead, is_own = frontier.ahead_of(task), asyncio.current_task() is task
            self._forget_consumed()
            work.size = size
            work.learn()
            started = clock.monotonic()
            try:
                while True:
                    if self._should_stop():
                        self._parts.stops.raise_pending()
                        raise StopAsyncIteration
                    self._raise_error()
                    # The body makes the runs of earlier batches before the run of this one.
                    runners = frontier.runs_before(task, ahead)
                    at = self._versions.now + work.stride * len(runners)
                    work.asked_at = at if is_own else max(at, work.next_at)
                    self._begin()
                    if self._parts.stateful.copying:  # the body may write to the results
                        await self._parts.stateful.wait_copied()
                        continue
                    is_last = self._reads_no_more() and work.is_finished
                    batch = work.take(size, work.asked_at, is_last and not drop_remainder)
                    if batch is not None:
                        break
                    if is_last and work.is_finished and not (work.entries and not drop_remainder):
                        if await self._parts.recoveries.has_outlasted_run(task):
                            continue
                        work.drop_rest()
                        self._workers.rest()
                        raise StopAsyncIteration
                    self._workers.fill()
                    await self._wait(runners)
            finally:
                work.asked_at = None
                work.counts.learner_secs += clock.monotonic() - started
            frontier.give([item.ordinal for item in batch], task, ahead)
            for item in batch:
                self._out[item.ordinal] = item
                if item.error is not None:
                    item._call = self._workers.call_again
            self._changed()
            return batch

    async def _wait(self, runners: list[Task]) -> None:
        self._arrival = asyncio.get_running_loop().create_future()
        for runner in runners:  # its run may be waited for, and it may end without one
            runner.add_done_callback(self._wake)
        try:
            with CallScope(self._parts.stops.scopes, "data"):
                await self._arrival
        except StopAsyncIteration:
            pass  # a stop
        finally:
            self._arrival = None
            for runner in runners:
                runner.remove_done_callback(self._wake)

    def _wake(self, _: object = None) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            self._workers.has_failed = False
            self._parts.tasks.raised(error)
            raise error

    def _forget_consumed(self) -> None:
        if self._out:
            held = self.frontier.held()
            self._out = {number: item for number, item in self._out.items() if number in held}
        if self._retained and not self._parts.saves():
            needed = self.frontier.outstanding()
            self._retained = {n: one for n, one in self._retained.items() if n in needed}

    def _call_ended(self) -> None:
        self._changes += self._options.keep is not None
        if self._arrival is not None:
            work = self._work
            if work.finished >= work.size or self._total is not None:
                self._wake()

    def _stop_with(self, error: BaseException, what: str) -> None:
        """Stop the session with an error, and raise it in the body."""
        self._workers.has_failed = True
        self._error = self._parts.tasks.report(error, what, "call")
        self._wake()

    def _returned(self, batch: Batch) -> None:
        for number in batch.elements:
            self._work.add_finished(self._out.pop(number))
        self._work.counts.delivered -= len(batch.elements)
        self._work.sort()

    def _drop(self, number: int) -> None:
        self.frontier.pending.pop(number)
        self._changes += 1
        self._room.set()

    def run_ended(self) -> None:
        """Follow a run of the session, which may have committed a step."""
        if self._versions.have_changed():
            self._changed()
            self._wake()

    def reopened(self) -> None:
        """Continue after a recovery."""
        self._versions.wake()
        self._changed()
        self._wake()

    # -- the source

    def _begin(self) -> None:
        """Start the reader and the workers, if they are not running."""
        if self._begun_at is None:
            self._begun_at = clock.monotonic()
            self._workers.begin(self)
        if (self._reader is None or self._reader.done()) and not self._reads_no_more():
            self._reader = self._parts.tasks.start(self._read, name=f"reader of {self.name}")
        self._workers.fill()

    def _reads_no_more(self) -> bool:
        return self._total is not None and self.frontier.cursor >= self._total

    async def _read(self) -> None:
        frontier, work, parts = self.frontier, self._work, self._parts
        items = DataIterator(self._source, self._should_stop, parts.stops, parts.sources, frontier)
        try:
            while not self._reads_no_more():
                if len(work.entries) >= self._options.depth:
                    self._room.clear()
                    await self._room.wait()
                    continue
                try:
                    element = await anext(items)
                except StopAsyncIteration:
                    if not self._should_stop():
                        self._end_of_data()
                    return
                self._enter(frontier.newest, element)
        except Exception as error:
            self._stop_with(error, "the data")
        finally:
            await items.aclose()

    def _end_of_data(self) -> None:
        frontier = self.frontier
        if frontier.to_read_again:
            raise ValueError(
                f"The data of {self.name!r} ended after {frontier.cursor} elements, before the "
                "position in the checkpoint: it is other data."
            )
        self._total = frontier.cursor
        self._changes += 1
        self._wake()

    def _enter(self, number: int, element: Any) -> None:
        if self._reads_once:
            self._retained[number] = element
            self._changes += 1
        item = Item(number, element, self._options.group)
        kept = self._kept.pop(number, None)
        if kept is None:
            self._work.enter(item)
            self._workers.fill()
        else:
            item.version, item.value = kept
            item._missing = 0
            self._work.counts.kept += 1
            self._work.add_finished(item)
            self._wake()

    # -- calls

    def _changed(self) -> None:
        """Use room and permits that are free now."""
        self._room.set()
        if self._begun_at is not None and not self._should_stop():
            self._begin()

    async def lease(self) -> Lease | None:
        """Wait for a call to make, by a worker outside of the loop. None: the session stops.

        The worker ends the lease by :meth:`complete`, :meth:`fail` or :meth:`release`. ``workers``
        bounds the open leases, those of calls in this loop included. Cancelling this loses no call.
        Calls begin with the first request of the learner.
        """
        return await self._workers.lease()

    def complete(self, lease: Lease, value: Any) -> bool:
        """End a lease with the result of its call.

        Returns:
            Whether it was wanted. A late duplicate is not: the element was made again or dropped, or
            a recovery has moved the data back.
        """
        return self._workers.complete(lease, value)

    def fail(self, lease: Lease, error: Exception) -> bool:
        """End a lease with an error: ``retries`` and ``on_error`` decide. Returns likewise."""
        return self._workers.fail(lease, error)

    def release(self, lease: Lease) -> bool:
        """Give a lease back: its worker has ended, and another one makes the call. Returns likewise."""
        return self._workers.release(lease)

    def app(self, *, token: str, lease_secs: float = 60.0) -> LeaseApp:
        """Return an ASGI application from which HTTP workers lease calls. See docs/pipeline_workers.md.

        It may be mounted anywhere, in the event loop of the session, and has no lifespan.

        Args:
            token: the secret that each request sends, 16 characters or more.
            lease_secs: a lease that is not renewed for that time is released.

        Raises:
            ValueError: the token is too short, or the time is not positive.
        """
        from asyncmon.runtime.pipelines.app import LeaseApp  # at its first use: it imports hashlib

        return LeaseApp(self, token, lease_secs, keeps_results=self._options.keep == "results")

    def stop(self) -> None:
        """Make no more calls: the session stops, or closes."""
        self._workers.stop()

    def close(self) -> None:
        """End all waits: the session is closed."""
        self.stop()
        self._workers.close()
        self._commits.close()

    # -- the state

    @property
    def revision(self) -> int:
        """See ``StatefulMembers.revision``."""
        return self._changes + self.frontier.revision

    async def wait_commit(self) -> None:
        """Wait for the commit of a checkpoint that has the present state of the pipeline.

        Then an element of a source that is read once, and with ``keep="results"`` a result, survives a
        kill. A service acknowledges an element after this.

        Raises:
            CancelledError: the session was closed before (``am.errors.CancelledError``); or it stops,
                and this is in a task of its coordinator, which is joined before the last save.
        """
        await self._commits.wait()

    def state_dict(self) -> dict[str, Any]:
        """Return the position, the outstanding elements and, if they are kept, results and elements."""
        return self.later_state()()

    def later_state(self) -> Callable[[], dict[str, Any]]:
        """See ``StatefulMembers.later_state``. No result is delivered before the copies are made."""
        frontier = self.frontier
        total = None if self._is_live else self._total
        state = {**frontier.state_dict(), "total": total}
        outstanding = frontier.outstanding()
        self._commits.captured(state["step"], state["taken"], outstanding)
        if self._options.keep == "results":
            items = [item for item in self._work.entries.values() if not item._missing]
            results = {i.ordinal: (i.version, i.value) for i in items if i.error is None}
            results |= {
                number: (item.version, own_containers(item.value))
                for number, item in self._out.items()
                if number in outstanding and item.error is None
            }
            results |= self._kept
            state["results"] = {str(n): [version, value] for n, (version, value) in results.items()}
            state["group"] = self._options.group
        if self._reads_once:
            elements = {str(n): own_containers(self._retained[n]) for n in sorted(outstanding)}
            state["elements"] = elements  # calls have them
            self._retained = self._commits.still_needed(self._retained)
        return lambda: state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Move to a saved position, unless a recovery has lost no step: then calls continue."""
        frontier, moves = self.frontier, self.frontier.moves
        if self._reads_once and state["taken"] and "elements" not in state:
            raise ValueError(
                f"The checkpoint has the position of {state['source']}, which can be read again. Pass "
                f"that source, and not one of the type {type(self.reads).__qualname__}, which is read "
                "once."
            )
        frontier.load_state_dict(state)
        if frontier.moves == moves:
            return
        self._commits.moved_back()
        self._total = state.get("total")
        held, step = frontier.held(), state["step"] or 0
        self._out = {number: item for number, item in self._out.items() if number in held}
        for item in self._out.values():
            item.version = min(item.version or 0, step)
        self._work.clear()
        self._versions.forget()
        is_alike = state.get("group") == self._options.group  # else the results are made again
        self._kept = {
            int(number): (min(version, step), value)
            for number, (version, value) in state.get("results", {}).items()
            if is_alike and int(number) not in held
        }
        if self._reads_once:
            self._enter_again({int(n): element for n, element in state.get("elements", {}).items()})
        self._room.set()

    def _enter_again(self, saved: dict[int, Any]) -> None:
        """Enter the outstanding elements of a source that is read once."""
        self._retained = elements = saved | self._retained
        lost = [number for number in self.frontier.pending if number not in elements]
        if lost:
            logger.warning(
                "Recovery of %s: %d elements of steps that were lost are not used again: their source "
                "can be read only once, and no saver keeps them.", self.name, len(lost),
            )  # fmt: skip
            for number in lost:
                del self.frontier.pending[number]
        for number in sorted(self.frontier.pending):
            self._enter(number, elements[number])

    def restart(self, step: int | None) -> None:
        """Set the first position if it belongs to this step, that of a state initialised again."""
        if (state := self.frontier.first_state(step)) is not None:
            self.load_state_dict(state)

    def statistics(self) -> PipelineStatistics:
        """Return the counts so far. Safe at any time, also when the session is closed."""
        work, frontier, counts = self._work, self.frontier, self._work.counts
        outstanding = frontier.outstanding()
        now = clock.monotonic()
        elapsed = 0.0 if self._begun_at is None else now - self._begun_at
        busy = counts.busy_secs + sum(now - started for started in work.leases.values())
        running = {lease.item for lease in work.leases}
        return PipelineStatistics(
            name=self.name,
            version=self._versions.now,
            read=frontier.taken,
            queued=len({item for item, _ in work.queue} - running),
            running=len(work.leases),
            ready=work.finished,
            held=len(outstanding.intersection(self._out)),
            consumed=frontier.taken - len(outstanding) - frontier.to_read_again,
            made=counts.made,
            again=counts.again,
            dropped=counts.dropped,
            stale=counts.stale,
            failures=counts.failures,
            lost=counts.lost,
            ages=dict(counts.ages),
            learner_wait_secs=counts.learner_secs,
            workers_wait_secs=max(0.0, self._options.workers * elapsed - busy),
            ended=self._total is not None,
        )
