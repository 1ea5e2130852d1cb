"""A running torch program: its objects, and its steps one after another."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from asyncmon.errors import AbortedError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from asyncmon.programs.named_fetches import GLOBAL_STEP, OptionalFetch, leaves
from asyncmon.programs.stepped_session import SteppedSession
from asyncmon.programs.steps import Step
from asyncmon.programs.torch.changes import Changes, Mark, random_states, set_random_states
from asyncmon.programs.torch.copies import copied, detached, evaluation_copies, wait_for
from asyncmon.programs.torch.loading import Loading, own_pieces
from asyncmon.programs.torch.peek_copy import PeekCopy
from asyncmon.programs.torch.sharded_snapshot import Pieces, take_pieces
from asyncmon.programs.torch.sharding import Shard, is_sharded
from asyncmon.programs.torch.state import (
    RANDOM,
    RANK,
    Objects,
    as_tensor,
    entries_of,
    flat_state,
    host_value,
    owner_of,
)
from asyncmon.programs.torch.threads import thread_budget
from asyncmon.programs.torch.tracing import profiled, traced, traced_run
from asyncmon.session_config import SessionConfig
from asyncmon.system import clock
from asyncmon.system.cost import CostModel
from asyncmon.system.snapshot import HeldArray, Snapshot

T = TypeVar("T")

_UNKNOWN = float(1 << 18)  # a first run goes to a worker: it may take long


class _Before(NamedTuple):
    """The moment before a run, and the state then, where an unknown fetch may make it fail."""

    mark: Mark
    state: tuple[dict[str, Any], list[Any]] | None = None


class TorchSession(SteppedSession):
    """A running :class:`TorchProgram`; its ``create_session`` makes it.

    Args:
        program: whose objects and steps it has.
        config: see :meth:`TorchProgram.create_session`.
    """

    _on_host = staticmethod(host_value)

    def __init__(self, program: Any, config: SessionConfig) -> None:
        super().__init__(program, config)
        owner = None if program._owner is None else program._owner()
        self._source: TorchSession | None = owner
        self._objects: Mapping[str, Any] = program.state if owner is None else {}
        if owner is None:
            program._owner = weakref.ref(self)
        self._costs: dict[tuple[Any, ...], CostModel] = {}
        self._changes = Changes(self._objects)
        # Names that runs of these steps have given: a run with others may fail after the steps.
        self._known: dict[tuple[str, ...], set[str]] = {}
        self._touched = False
        self.is_sharded = any(is_sharded(tensor) for tensor in entries_of(self._objects)[0].values())
        """Whether the state is in pieces on several ranks."""
        self._given: dict[str, Any] = {}  # values loaded before the other ranks have joined
        self._config = config
        # A save of this step may copy them when the next element is read already, which draws, too.
        self._random_after_step: dict[str, torch.Tensor] | None = None
        self._commits = 0  # changes of the state: steps, and loads
        self._peeks: tuple[PeekCopy, TorchSession] | None = None
        count = config.intra_op_parallelism_threads
        self._give_back = weakref.finalize(self, thread_budget.take(count)) if count else None

    # -- steps

    async def _run_timed(self, fetches: Any, feeds: Any, options: Any, run_metadata: Any) -> Any:
        traces = run_metadata is not None and bool(getattr(options, "trace_level", 0))
        with traced(run_metadata if traces else None):
            return await super()._run_timed(fetches, feeds, options, run_metadata)

    async def _execute(self, fetches: Any, steps: list[Step], feeds: Any, *, read_only: bool) -> Any:
        await self._prepare()
        if self._source is not None and not read_only:
            raise FailedPreconditionError(
                "Another session of this program is open, and trains: this one evaluates, and cannot "
                f"run {[one.name for one in steps if not one.read_only]}. Close the other one first."
            )
        key = tuple([step.name for step in steps])  # faster than of a generator
        if not any(step.is_async for step in steps):
            work = partial(self._run_all, fetches, steps, feeds)
            result = await self._offload(work, self._cost(key))
            if self._peeks is not None:
                await self._refresh_peeks()
            return result
        # By the fetches, too: the first run with one that is unknown copies the state, in the worker.
        names = fetches if type(fetches) is str else tuple(leaves(fetches))
        begin, end = self._cost(key, names, "begin"), self._cost(key, names, "end")
        changes = await self._offload(partial(self._begin, fetches, steps), begin)
        results: dict[str, Any] = {}
        try:
            for step in steps:
                result = step(self._objects, feeds)
                waits = step.waits(result)
                results[step.name] = detached(await self._hold(result) if waits else result)
        except BaseException as error:
            self._failed(steps, changes, error)
            raise
        result = await self._offload(partial(self._end, fetches, steps, results, changes), end)
        if self._peeks is not None:
            await self._refresh_peeks()
        return result

    def _cost(self, *key: Any) -> CostModel:
        return self._costs.get(key) or self._costs.setdefault(key, CostModel(_UNKNOWN))

    def _run_all(self, fetches: Any, steps: list[Step], feeds: Any) -> Any:
        thread_budget.follow()
        if traced_run.get() is None:  # a context that does nothing takes 2 us
            return self._run_steps(fetches, steps, feeds)
        with profiled():
            return self._run_steps(fetches, steps, feeds)

    def _run_steps(self, fetches: Any, steps: list[Step], feeds: Any) -> Any:
        changes = self._begin(fetches, steps)
        results: dict[str, Any] = {}
        try:
            for step in steps:
                if step.read_only:
                    with torch.no_grad():
                        result = step(self._objects, feeds)
                else:
                    result = step(self._objects, feeds)
                if step.waits(result):
                    raise TypeError(f"The step {step.name!r} returned {result!r}: make it async def.")
                results[step.name] = detached(result)
        except BaseException as error:
            self._failed(steps, changes, error)
            raise
        return self._end(fetches, steps, results, changes)

    def abandon(self) -> None:
        """Let the run of a step return that computes in a thread, which may still change the state."""
        super().abandon()
        if self._workers.abandoned:
            self._broken = _torn(["a step that still computes in its thread"], list(self._objects))

    def _begin(self, fetches: Any, steps: Sequence[Step]) -> _Before | None:
        if not steps:
            return None
        if all(step.read_only for step in steps):
            return _Before(self._changes.mark())
        self._touched = True
        key = tuple([step.name for step in steps])
        if (known := self._known.get(key)) is None:
            known = self._known[key] = {GLOBAL_STEP, *key}
        if type(fetches) is str and fetches in known:
            return _Before(self._changes.mark())
        names = {fetches} if type(fetches) is str else set(leaves(fetches))
        names = {name for name in names if not isinstance(name, OptionalFetch)}
        unknown = [one for one in names - known if one not in self._steps and self._tensor(one) is None]
        known |= names.difference(unknown)
        return _Before(self._changes.mark(), copied(self._objects) if unknown else None)

    def _end(
        self, fetches: Any, steps: Sequence[Step], results: dict[str, Any], before: _Before | None
    ) -> Any:
        mark = None if before is None else before.mark
        if steps and all(step.read_only for step in steps):
            changed = self._changes.since(mark)
            self._changes.restore_random(mark)
            if changed:
                names = [step.name for step in steps]
                self._broken = _torn(names, changed)
                raise TypeError(
                    f"The steps {names} are read_only, and changed {changed}. Declare them without "
                    "read_only, or put the module into eval mode."
                )
        elif steps:
            self._step += 1
            self._commits += 1
            self._random_after_step = self._changes.random_states()
        try:
            fetched = self._fetched(fetches, results, self._objects, self._step)
        except NotFoundError:
            if before is not None and before.state is not None:
                values, events = before.state
                wait_for(events)
                self._set(values | {GLOBAL_STEP: self._step - 1})
            raise
        if before is not None and before.state is not None:
            self._known[tuple(results)] |= set(leaves(fetches))
        return fetched

    def _failed(self, steps: Sequence[Step], before: _Before | None, error: BaseException) -> None:
        mark = None if before is None else before.mark
        # The tensors are listed at each save, as that takes milliseconds for a large model. One that is
        # newer may be of an earlier step: the state is taken for torn.
        changed = self._changes.since(mark) + ([] if mark is None else self._changes.replaced())
        self._changes.restore_random(mark)
        if changed:
            self._broken = _torn([step.name for step in steps], changed)
            self._broken.__cause__ = error

    def _entry(self, name: str, state: Mapping[str, Any]) -> Any:
        if isinstance(self._objects.get(name), torch.nn.Module):
            tensors = flat_state(name, self._objects[name]).tensors.items()
            return {key.removeprefix(f"{name}/"): host_value(tensor) for key, tensor in tensors}
        return host_value(self._tensor(name))

    def _tensor(self, name: str) -> torch.Tensor | None:
        obj = name.partition("/")[0]
        return flat_state(obj, self._objects[obj]).tensors.get(name) if obj in self._objects else None

    async def _initialize(self) -> None:
        """Set the initial state, which is kept on the host from now on."""
        program = self._program
        if self._source is not None:
            return
        if program._initial is None:
            if program._touched or self._touched:
                raise FailedPreconditionError(
                    "The state at the start was not kept: it is kept where it is initialised before "
                    "the first step. Make the program anew."
                )
            values, events = await self._offload(partial(copied, self._objects))
            await self._offload(partial(wait_for, events))
            program._initial = values
        else:
            await self._offload(partial(self._set, dict(program._initial)))
        self._step, self._broken, self._given = 0, None, {}

    # -- peeks

    async def peek(self, fetches: Any, feed_dict: Mapping[str, Any] | None = None) -> Any:
        """Return entries of the state and results of read-only steps, of one version of the state.

        Read-only steps get a copy of the modules and tensors, which neither waits for a step that
        trains nor delays one. It has the state after the last complete step, or, where copying takes
        more than 5 % of the time between two steps, after one that ended so much earlier. The first
        peek waits for the step that is running, to make the copy, and so do peeks of sharded states and
        of entries alone that are in no such copy, and now and then one of many that follow each other
        without a pause. Without a peek for a minute the copy is dropped.

        Raises:
            InvalidArgumentError: a step among the fetches may change the state.
            RuntimeError: the session is closed, or a step calls this that it would wait for.
        """
        self._check_open()
        if self._source is not None or self.is_sharded or not self._is_copied(fetches):
            return await super().peek(fetches, feed_dict)
        await self._prepare()
        copy, session = self._peeks or await self._make_peeks()
        copy.last_peek = clock.monotonic()
        if copy.was_missed:  # peeks follow each other so closely that no step finds it free
            async with session._lock, self._between_steps():
                await self._update(copy, session)
        elif copy.commits != self._commits and self._lock.try_lock():
            try:
                await self._refresh_peeks(now=True)
            finally:
                self._lock.release()
        commits, random = self._commits, None if self._lock.held else random_states(self._objects)
        try:
            return await session.peek(fetches, feed_dict)
        finally:
            if random is not None and not self._lock.held and commits == self._commits:
                set_random_states(random)  # no step has drawn since

    def _is_copied(self, fetches: Any) -> bool:
        """Return whether a peek takes read-only steps, or entries of which there is a copy already."""
        names = [name for name in leaves(fetches) if isinstance(name, str)]
        steps = [self._steps[name] for name in names if name in self._steps]
        if steps:
            return all(step.read_only for step in steps)
        copied = () if self._peeks is None else self._peeks[0].copied
        return bool(names) and all(name == GLOBAL_STEP or owner_of(name) in copied for name in names)

    async def _make_peeks(self) -> tuple[PeekCopy, TorchSession]:
        self._check_not_inside("peek")
        async with self._between_steps():
            if self._peeks is None:
                await self._prepare()
                copy = await self._offload(partial(PeekCopy, self._objects))
                copy.commits = self._commits
                session = TorchSession(self._program, self._config)
                session._objects, session._step = Objects(copy.objects), self._step
                changes = {name: copy.objects[name] for name in copy.copied}
                session._changes = Changes(changes, copies=True)
                self._peeks = copy, session
        return self._peeks

    async def _refresh_peeks(self, *, now: bool = False) -> None:
        """Bring the copy up to date that peeks read, unless one reads it. Holds the lock."""
        assert self._peeks is not None, "checked by the caller"
        copy, session = self._peeks
        if copy.is_idle and not session._lock.held:
            self._peeks = None
            await session.close()
        elif now or copy.is_due(self._commits):
            copy.was_missed = not session._lock.try_lock()
            if copy.was_missed:
                return
            try:
                await self._update(copy, session)
            finally:
                session._lock.release()

    async def _update(self, copy: PeekCopy, session: TorchSession) -> None:
        await self._offload(partial(copy.update, self._commits))
        session._step = self._step

    # -- state

    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a copy of the state, on the host; steps that begin later wait until it is taken.

        A snapshot of a sharded state is whole, and ordered on the chief. Before the first step, while
        other ranks have not joined, they are of type :class:`.HeldArray`.

        Raises:
            FailedPreconditionError: the state is sharded, and this is not rank 0.
        """
        if self.is_sharded:
            return asyncio.ensure_future(_pulled(self.snapshot_to_write()))
        self._check_open()
        return asyncio.ensure_future(self._snapshot(self._lock.ask()))

    def snapshot_to_write(self) -> Awaitable[Snapshot]:
        """Order a snapshot with the generators of all ranks, for a saver.

        Of a sharded state each rank keeps its pieces, and writes them.
        """
        self._check_open()
        ranks = self._program._ranks
        if self.is_sharded and ranks is None:
            raise FailedPreconditionError(
                "The state is sharded over ranks: snapshots of it are taken in a "
                "MonitoredTrainingSession, whose ranks run the same steps."
            )
        if ranks is not None and ranks.takes_part(self) and self._source is None:
            ordered: Awaitable[Snapshot] = ranks.snapshot(self)
            return ordered
        return asyncio.ensure_future(self._snapshot(self._lock.ask()))

    async def _snapshot(self, place: asyncio.Future[None]) -> Snapshot:
        async with self._between_steps(place):
            await self._prepare()
            values, events = await self._offload(partial(copied, self._objects, self._source is None))
            self._changes.list_tensors()
            values |= {name: one.numpy() for name, one in (self._random_after_step or {}).items()}
            step = self._step
        if events:
            await self._workers.call(partial(wait_for, events), CostModel(), True, step=False)
        for name, value in values.items():
            if isinstance(value, Shard):
                values[name] = HeldArray(name, value.dtype, value.shape)
        return Snapshot(values | {GLOBAL_STEP: np.asarray(step, np.int64)}, step)

    async def take_pieces(self, group: Any, own_states: Mapping[str, Any]) -> Pieces | None:
        """Copy this rank's pieces between two steps. See :func:`.take_pieces`."""
        async with self._between_steps():
            await self._prepare()
            beside = own_states, self._random_states()
            return await self._offload(partial(take_pieces, self._objects, self._step, group, *beside))

    async def random_states(self) -> dict[str, torch.Tensor]:
        """Return the states of this rank's default generators after the last step."""
        async with self._between_steps():
            return self._random_states()

    def _random_states(self) -> dict[str, torch.Tensor]:
        return self._random_after_step or random_states(self._objects)

    def own_pieces(self) -> Callable[[str, Any], Any]:
        """Return what copies this rank's pieces of whole entries. See :func:`.own_pieces`."""
        return own_pieces(self._objects)

    def owns(self, entry: str) -> bool:
        """Return whether an entry is of one of the objects. The state of an optimizer is made later."""
        return owner_of(entry) in self._objects or entry.startswith(RANK)

    def take_given(self) -> dict[str, Any]:
        """Return and drop the values for the other ranks that were loaded before they joined."""
        given, self._given = self._given, {}
        return given

    async def _load(self, values: dict[str, Any]) -> None:
        await self._prepare(loads=True)
        await self._offload(partial(self._set, dict(values)))
        self._broken = None
        if self._program._ranks is not None and not self._program._ranks.joined:
            whose = "" if self.is_sharded else RANK
            self._given |= {name: one for name, one in values.items() if name.startswith(whose)}

    def _set(self, values: dict[str, Any]) -> None:
        problems: list[str] = []
        step = self._pop_step(values, problems)
        random = {name: values.pop(name) for name in list(values) if name.startswith(RANDOM)}
        values = {name: value for name, value in values.items() if not name.startswith(RANK)}
        if problems:
            raise InvalidArgumentError(f"Nothing was loaded: {problems[0]}.")
        begins = not self._touched and not self._program._touched
        loading = Loading(self._objects, values, self._program.optimizers, begins=begins)
        self._touched = True
        try:
            loading.apply()
        except BaseException as error:
            self._broken = _torn(["load"], list(self._objects))
            self._broken.__cause__ = error
            raise InvalidArgumentError(f"The state could not be loaded: {error}") from error
        if self._source is None:
            set_random_states({name: as_tensor(value) for name, value in random.items()})
        self._step, self._random_after_step = step, None
        self._commits += 1

    async def close(self) -> None:
        """Refuse further use, and wait for a step in the worker. A second call does nothing."""
        self._check_not_inside("close")
        program = self._program
        self._changes.close()
        program._touched = program._touched or (self._touched and self._source is None)
        if program._owner is not None and program._owner() is self:
            program._owner = None
        try:
            await super().close()
        finally:
            if self._give_back is not None:
                self._give_back()
            if self._peeks is not None:
                await self._peeks[1].close()

    # -- inside

    async def _prepare(self, *, loads: bool = False) -> None:
        """Raise what broke the state, and make the copies of a session that evaluates."""
        if self._broken is not None and not loads:
            raise self._broken
        source = self._source
        if source is not None and not self._objects:
            async with source._lock:
                objects = await self._offload(partial(evaluation_copies, source._objects))
                self._objects, self._step = Objects(objects), source._step
                self._changes = Changes(objects, copies=True)

    async def _offload(self, work: Callable[[], T], cost: CostModel | None = None) -> T:
        """Call a function inline where it is short by its measured average, or else in the worker."""
        thread = True if cost is None or traced_run.get() is not None else None
        return await self._workers.call(work, cost or CostModel(), thread)


async def _pulled(ordered: Awaitable[Snapshot]) -> Snapshot:
    snapshot = await ordered
    if snapshot.holder is None:
        return snapshot
    with snapshot:
        return await snapshot.holder.pull()


def _torn(names: list[str], changed: list[str]) -> AbortedError:
    return AbortedError(
        f"The state is torn: {names} failed after changing {changed[:5]}. Restore a checkpoint; a "
        "monitored session does so at its next run."
    )
