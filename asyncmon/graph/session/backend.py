"""The backend of a session: this process, or the one that its target names. TF1: a session factory.

A :class:`~asyncmon.graph.Session` handles the graph, structures of fetches and checks of feeds; its
backend executes the runs. :class:`DirectBackend` serves the target ``""``. Others are registered for
the scheme of their targets, ``"grpc"`` of ``"grpc://host:port"``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from asyncmon.errors import CancelledError, InvalidArgumentError, NotFoundError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import Spec
from asyncmon.graph.core.shape import as_shape
from asyncmon.graph.execution.analysis import needed_ops
from asyncmon.graph.execution.compiler import compile_plan
from asyncmon.graph.execution.executor import Executor
from asyncmon.graph.execution.feeds import Feed
from asyncmon.graph.execution.plan import Plan
from asyncmon.graph.execution.state import RANDOM_STATE, Pin, StateStore, checked_values
from asyncmon.graph.queues.core import QueueCore
from asyncmon.graph.variables.global_step import step_counter
from asyncmon.protobuf.run_options import RunMetadata, RunOptions
from asyncmon.session_config import SessionConfig
from asyncmon.system.clock import random_seed
from asyncmon.system.snapshot import Snapshot

QueueSize = tuple[str, int, int | None]
"""The name of a queue, its number of elements, and its capacity; None for no limit."""


class Prepared(Protocol):
    """The prepared form of a set of fetches and fed tensors.

    Attributes:
        feeds: checks of the fed values, in order, each with data of the backend.
        changes: the names of operations that change the session.
    """

    @property
    def feeds(self) -> Sequence[tuple[Feed, Any]]: ...
    @property
    def changes(self) -> Sequence[str]: ...


class Backend(Protocol):
    """The interface of a backend. The methods are those of a session, called in one event loop."""

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""

    @property
    def global_step(self) -> int | None:
        """The committed global step, as far as it is known here; None if there is none."""

    def check_open(self) -> None:
        """Raise RuntimeError once it is closed, or the error that prevents runs."""

    def prepare(
        self,
        fetches: Sequence[Tensor | Operation],
        fed: Sequence[Tensor],
        done: Sequence[Operation] = (),
    ) -> Any:
        """Return the :class:`Prepared` form of a run, without computing or sending a value.

        ``done`` are control dependencies that another plan executes.
        """

    async def run(
        self,
        plan: Any,
        fed: Sequence[Any],
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
        *,
        peek: bool = False,
    ) -> list[Any]:
        """Run once, and return a value for each fetch, None for operations."""

    async def repeat(self, plan: Any, until: Callable[[], bool]) -> None:
        """Run until a condition is true; it is checked before each run."""

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set variables by op name, all or none."""

    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a snapshot of the saved state."""

    async def queues(self) -> list[QueueSize]:
        """Return the sizes of the queues."""

    def pending_operations(self) -> list[str]:
        """Return the names of the operations that current runs await."""

    def computing(self) -> tuple[int, ...]:
        """Return the threads of this process that compute runs, by their idents."""
        return ()

    def abandon(self) -> None:
        """Let runs return at once that a thread of this process computes, and make no further ones."""

    def inside(self, task: asyncio.Task[Any] | None) -> bool:
        """See :meth:`asyncmon.graph.Session.inside`."""
        return False

    async def close(self) -> None:
        """Release all resources. A second call does nothing."""


class _OwnResources(dict[Any, Any]):
    """The queues and readers of one session; those with a shared name belong to the executor.

    The key of a shared one is a tuple.
    """

    def __init__(self, executor: Executor) -> None:
        self._shared = executor.resources

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._shared

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, tuple):
            self._shared[key] = value
        else:
            super().__setitem__(key, value)

    def __missing__(self, key: Any) -> Any:
        return self._shared[key]


class DirectBackend:
    """The backend in this process. Runs go to its executor; :meth:`prepare` is thread-safe.

    Args:
        graph: the graph.
        executor: the executor with the state; several graphs may share one.
        shares: whether sessions share the executor. Each then has its own queues and readers, except
            those with a ``shared_name``, and its :meth:`close` leaves the executor open.
        timeout_in_ms: the timeout of runs without options, with a shared executor.
        check: called with the operations of each new plan.
    """

    def __init__(
        self,
        graph: Graph,
        executor: Executor,
        *,
        shares: bool = False,
        timeout_in_ms: int = 0,
        check: Callable[[Operation], object] | None = None,
    ) -> None:
        self.graph = graph
        self.executor = executor
        self.store = executor.store
        self.run, self.run_inline, self.repeat = executor.run, executor.run_inline, executor.repeat
        self.check_open, self.pending_operations = executor.check_open, executor.pending_operations
        self.computing, self.abandon = executor.computing, executor.abandon
        self.inside = executor.inside
        self._saved: list[Any] = []  # the saved variables, and their slots
        self._slots: dict[str, int] = {}
        self._step_slot: tuple[int, int] | None = None  # the graph's version and the slot, 0 for none
        self._own: _OwnResources | None = None
        self._closed = False
        self._check = check
        self.shares_state = shares
        if shares:
            self._own = _OwnResources(executor)
            self.check_open, self.repeat = self._check_shared, self._repeat_shared
            if timeout_in_ms:
                self._timeout = RunOptions(timeout_in_ms=timeout_in_ms)
                self.run, self.run_inline = self._run_shared, self._no_inline

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed or self.executor.closed

    @property
    def global_step(self) -> int | None:
        """The committed global step; None if the graph has none or it is not initialised."""
        known = self._step_slot
        if known is None or known[0] != self.graph.version:
            slot = 0
            # None, too, if it has another dtype or shape in the state: only runs that use it fail.
            with contextlib.suppress(InvalidArgumentError):
                slot = self._counter_slot() or 0
            known = self._step_slot = (self.graph.version, slot)
        value = self.store.values[known[1]] if known[1] else None
        return None if value is None else value.item()

    def prepare(
        self,
        fetches: Sequence[Tensor | Operation],
        fed: Sequence[Tensor],
        done: Sequence[Operation] = (),
    ) -> Plan:
        """Compile a plan."""
        if self._check is not None:
            for op in needed_ops(fetches, frozenset(fed)):
                self._check(op)
        plan = compile_plan(self.store, fetches, fed, done=done)
        plan.resources = self._own
        return plan

    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a snapshot: taken at once, or right after the commit that is being applied."""
        self.check_open()
        store = self.store
        saved = self.graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
        if saved != self._saved:
            self._slots = {variable.op.name: store.slot(variable.op) for variable in saved}
            self._saved = saved
        slots = {**self._slots, RANDOM_STATE: 0} if self.graph.random_ops else self._slots
        return store.pinned(partial(_snapshot, store, slots, self._counter_slot()))

    def _counter_slot(self) -> int | None:
        counter = step_counter(self.graph)
        is_variable = counter is not None and counter.op.type == "VariableV2"
        return self.store.slot(counter.op) if is_variable else None

    def reads(self, plan: Plan, least: int) -> Awaitable[Snapshot] | None:
        """Order the fetches of a plan, see :func:`order_reads`."""
        self.check_open()
        return order_reads(self.store, plan, least)

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set variables by op name."""
        self.check_open()
        await self.executor.load(lambda: checked_values(self.store, self.graph, values))

    async def queues(self) -> list[QueueSize]:
        """Return the sizes of the queues used so far."""
        held = {**self.executor.resources, **(self._own or {})}.values()
        queues = [one for one in held if isinstance(one, QueueCore)]
        return [(one.spec.shared_name or one.spec.name, one.size(), one.capacity) for one in queues]

    async def close(self) -> None:
        """End all runs and threads; of an executor that is shared, the runs of this session."""
        error = CancelledError("Session has been closed.")
        if self._own is None:
            await self.executor.close(error)
        else:
            self._closed = True
            await self.executor.close(error, self._own)

    # An executor that is shared.

    def _check_shared(self) -> None:
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
        self.executor.check_open()

    async def _repeat_shared(self, plan: Plan, until: Callable[[], bool]) -> None:
        def ends() -> bool:
            self._check_shared()
            return until()

        await self.executor.repeat(plan, ends)

    async def _run_shared(
        self, plan: Plan, fed: Sequence[Any], options: RunOptions | None = None, *args: Any, **kw: Any
    ) -> list[Any]:
        return await self.executor.run(plan, fed, options or self._timeout, *args, **kw)

    def _no_inline(self, plan: Plan, fed: Sequence[Any]) -> None:
        """Return None: a run with a timeout is not executed at once."""


Reset = Callable[[str, Sequence[str], SessionConfig], Awaitable[None]]

_factories: dict[str, Any] = {}
_resets: dict[str, Reset] = {}


def register_session_factory(
    scheme: str, factory: Callable[[str, Graph, SessionConfig], Backend], reset: Reset | None = None
) -> None:
    """Register a factory of backends for targets ``scheme`` or ``scheme://...``.

    ``reset`` clears the state that sessions of a target share; None: they share none.
    """
    _factories[scheme] = factory
    if reset is not None:
        _resets[scheme] = reset


def backend_for(target: str, graph: Graph, config: SessionConfig) -> Backend:
    """Return the backend of a new session.

    Raises:
        NotFoundError: no factory is registered for the target.
    """
    if not target:
        return DirectBackend(graph, Executor(StateStore(random_seed()), config))
    backend: Backend = _factories[_scheme(target)](target, graph, config)
    return backend


async def reset_target(target: str, containers: Sequence[str], config: SessionConfig) -> None:
    """Clear the state that sessions of a target share, see :meth:`asyncmon.graph.Session.reset`."""
    reset = _resets.get(_scheme(target)) if target else None
    if reset is None:
        raise InvalidArgumentError(
            f"Session.reset() clears the state of a server; each session of target {target!r} has a "
            "state of its own, which ends with it."
        )
    await reset(target, containers, config)


def _scheme(target: str) -> str:
    scheme = target.partition("://")[0]
    if scheme not in _factories:
        known = ", ".join(repr(scheme) for scheme in ("", *_factories))
        raise NotFoundError(
            f"No session factory registered for target {target!r}; there are those for {known}. "
            "A target is the address of a server. Give a directory by its name: checkpoint_dir=..."
        )
    return scheme


def order_reads(store: StateStore, plan: Plan, least: int) -> Awaitable[Snapshot] | None:
    """Order the fetches of a plan by position, without copies, if all of them are variables.

    None for other plans, and for values of fewer than ``least`` bytes.
    """
    if plan.code or plan.waits or plan.changes:
        return None
    slots = {read.register: read.slot for read in plan.reads}
    fetched = [None if fetch is None else slots.get(fetch.register) for fetch in plan.fetches]
    if None in fetched:
        return None
    values = [store.values[slot] for slot in slots.values()]
    if any(value is None for value in values) or sum(value.nbytes for value in values) < least:
        return None

    def taken(pin: Pin) -> Snapshot:
        found = {str(i): pin.values[slot] for i, slot in enumerate(fetched) if slot is not None}
        return Snapshot(found, None, partial(store.unpin, pin))

    return store.pinned(taken, slots.values())


def saved_spec(graph: Graph) -> dict[str, Spec]:
    """Return dtype and shape of all entries of a snapshot, initialised or not, by name."""
    spec: dict[str, Spec] = {}
    for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES):
        attrs = variable.op.attrs
        spec[variable.op.name] = Spec(attrs["dtype"], as_shape(attrs["shape"]))
    if graph.random_ops:
        spec[RANDOM_STATE] = Spec(dtypes.uint64, (None,))
    return spec


def _snapshot(store: StateStore, slots: Mapping[str, int], step: int | None, pin: Pin) -> Snapshot:
    found = {name: pin.values.get(slot) for name, slot in slots.items()}  # a slot may be new
    values = {name: value for name, value in found.items() if value is not None}
    count = None if step is None else pin.values.get(step)
    return Snapshot(values, None if count is None else count.item(), partial(store.unpin, pin))
