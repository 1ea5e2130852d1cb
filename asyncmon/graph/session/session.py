"""The raw session: one running instance of a graph, holding its state. TF1: ``tf.Session``.

A run is a transaction: it computes, which may fail or be cancelled, and then applies its writes,
which may not. Runs that change state take a fair lock in the order of their calls; their awaited inputs
(queues, async functions) arrive before they take it. Short plans are computed on the loop's thread,
long ones in a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from asyncmon.errors import InvalidArgumentError, OpError
from asyncmon.graph.core.build import get_default_graph
from asyncmon.graph.core.default_session import default_session, set_default_session
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.op import Spec
from asyncmon.graph.execution.feeds import feed_tensor, flat_keys, flat_values
from asyncmon.graph.execution.fetches import FetchMap, fetch_key
from asyncmon.graph.session.backend import (
    DirectBackend,
    Prepared,
    QueueSize,
    backend_for,
    reset_target,
    saved_spec,
)
from asyncmon.graph.session.partitions import parted_values, saved_parts, whole_snapshot, whole_spec
from asyncmon.protobuf.graph_def import GraphDef
from asyncmon.protobuf.run_options import RunMetadata, RunOptions
from asyncmon.session_config import SessionConfig
from asyncmon.system.error_text import add_note
from asyncmon.system.snapshot import Snapshot

_NO_FEEDS: Mapping[Any, Any] = {}
_CACHE_LIMIT = 4096  # cached structures of fetches; the cache is cleared beyond


@dataclass(slots=True, eq=False)
class _Call:
    """The prepared form of a pair of fetches and fed keys."""

    plan: Prepared
    rebuild: Callable[[list[Any]], Any]
    nested: bool  # some keys are tuples

    def accept(self, feeds: Mapping[Any, Any]) -> list[Any]:
        """Return the fed values, checked, in the order of the plan's feeds."""
        values = flat_values(feeds) if self.nested else feeds.values()
        return [feed.accept(value) for (feed, _), value in zip(self.plan.feeds, values, strict=True)]


class Session:
    """Runs a graph and holds the values of its variables. TF1: ``tf.Session``.

    Inside ``async with`` it is the default session, and its graph the default graph; leaving it closes
    the session. ``await close()`` does the same by hand. A cancelled run leaves the state before
    it or after it. It serves one running event loop at a time.

    Args:
        target: "" for this process, "local" for a process of its own, "grpc://host:port" for a
            :class:`~asyncmon.Server`.
        graph: the graph, by default the default graph.
        config: how to use the machine.

    Raises:
        NotFoundError: a target of another form.
        TypeError: something that is not a graph.

    Example::

        async with Session() as sess:
            await sess.run(global_variables_initializer())
            value = await sess.run(loss, feed_dict={x: batch})
    """

    def __init__(
        self, target: str = "", graph: Graph | None = None, config: SessionConfig | None = None
    ) -> None:
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a Graph, got {graph!r}.")
        if config is not None and not isinstance(config, SessionConfig):
            raise TypeError(f"config must be a SessionConfig, got {config!r}.")
        self._graph = get_default_graph() if graph is None else graph
        if config is None:
            config = SessionConfig()
        else:
            config.check()
            config.report_unused()
        self.backend = backend_for(target, self._graph, config)
        self.transactional = not target
        """Whether a run that failed has changed nothing. A server may be gone with its state."""
        """Executes the runs, see :mod:`.backend`."""
        self._run_inline: Callable[[Any, Sequence[Any]], list[Any] | None] | None = None
        if isinstance(self.backend, DirectBackend):
            self._run_inline = self.backend.run_inline
        self._calls: dict[Hashable, _Call] = {}
        self._plans: dict[Hashable, Prepared] = {}
        self._default: AbstractContextManager[Graph] | None = None
        self._default_before: Any = None

    @property
    def graph(self) -> Graph:
        """The graph this session runs."""
        return self._graph

    @property
    def graph_def(self) -> GraphDef:
        """The graph as data. TF1: same name. See :meth:`Graph.as_graph_def`."""
        return self._graph.as_graph_def()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self.backend.closed

    @property
    def global_step(self) -> int | None:
        """The committed global step; None if the graph has none or it is not initialised.

        For a remote session, that of the last response.
        """
        return self.backend.global_step

    @property
    def shares_state(self) -> bool:
        """Whether other sessions change its variables too, as sessions of a server do."""
        return bool(getattr(self.backend, "shares_state", False))

    @property
    def cluster_run(self) -> Any:
        """The run of the cluster that this session takes part in, or None. For hooks."""
        return getattr(self.backend, "cluster_run", None)

    async def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """Compute fetches and commit their writes. TF1: same name.

        A variable that is fetched itself, as the object, its name or ``value()``, is read after the
        run's writes. Computed values, also ``identity(v)`` and ``v.read_value()``, use the state
        before them, unless a data or control dependency orders it after a write.

        Args:
            fetches: a tensor, operation, variable or name, or nested lists, tuples, dicts, namedtuples,
                dataclasses or attrs classes of these.
            feed_dict: tensors, or their names, to values; tuples of them to tuples of values.
            options: a timeout, tracing.
            run_metadata: filled when ``options.trace_level`` asks for it.

        Returns:
            Values in the structure of ``fetches``; None for operations. The caller owns the arrays.

        Raises:
            RuntimeError: the session is closed, or another running event loop uses it.
            TypeError, ValueError: fetches or feeds that do not fit the graph.
            InvalidArgumentError: a placeholder is not fed, or an op refuses its inputs.
            FailedPreconditionError: a variable that is read is not initialised.
            DeadlineExceededError: ``options.timeout_in_ms`` passed.
        """
        feeds = _NO_FEEDS if feed_dict is None else feed_dict
        try:
            call = self._calls.get((fetch_key(fetches), *feeds)) or self._prepare(fetches, feeds)
            fed = call.accept(feeds) if feeds else []
            return call.rebuild(await self.backend.run(call.plan, fed, options, run_metadata))
        except OpError as error:
            self._locate(error)
            raise
        except TypeError:
            _check_feeds(feeds)  # a list of arrays has no hash
            raise

    def run_nowait(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> tuple[Any] | None:
        """Run at once if that takes no wait, and return the result of :meth:`run` in a tuple.

        None: nothing was done, as the run would suspend the caller or take long, or as :meth:`run` was
        overridden or replaced. Call :meth:`run`.
        """
        if self._run_inline is None or type(self).run is not _RUN or "run" in self.__dict__:
            return None
        feeds = _NO_FEEDS if feed_dict is None else feed_dict
        try:
            call = self._calls.get((fetch_key(fetches), *feeds)) or self._prepare(fetches, feeds)
            results = self._run_inline(call.plan, call.accept(feeds) if feeds else [])
            return None if results is None else (call.rebuild(results),)
        except OpError as error:
            self._locate(error)
            raise
        except TypeError:
            _check_feeds(feeds)
            raise

    def make_callable(
        self, fetches: Any, feed_list: Sequence[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Awaitable[Any]]:
        """Return a function that runs these fetches; its arguments are fed. TF1: same name.

        Args:
            fetches: as for :meth:`run`, to which the errors belong too.
            feed_list: the tensors to which the function's arguments are fed, in order.
            accept_options: without effect: the function always takes ``options`` and ``run_metadata``.

        Example::

            step = sess.make_callable([train_op, loss], [x])
            _, value = await step(batch)
        """
        feeds = list(feed_list or ())
        self._prepare(fetches, dict.fromkeys(feeds))

        def run(
            *values: Any, options: RunOptions | None = None, run_metadata: RunMetadata | None = None
        ) -> Awaitable[Any]:
            if len(values) != len(feeds):
                raise TypeError(
                    f"The callable takes {len(feeds)} values, for {feeds!r}; got {len(values)}."
                )
            return self.run(fetches, dict(zip(feeds, values, strict=True)), options, run_metadata)

        return run

    def as_default(self) -> AbstractContextManager[Self]:
        """Make it the default session inside ``with``, for this task only. TF1: same name.

        As in TF1 the default graph stays, and the end of the block does not close the session.
        """
        return default_session(self)

    async def repeat(self, fetches: Any, until: Callable[[], bool]) -> None:
        """Run fetches in a loop, dropping the results.

        It is faster than calls of :meth:`run` if runs do not wait. Queue runners use it.

        Args:
            fetches: as for :meth:`run`.
            until: called before each run; true ends the loop. It must be fast and must not fail.

        Raises:
            Exception: the error of a run, as :meth:`run` raises it.
        """
        try:
            call = self._calls.get((fetch_key(fetches),)) or self._prepare(fetches, _NO_FEEDS)
            await self.backend.repeat(call.plan, until)
        except OpError as error:
            self._locate(error)
            raise

    async def peek(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Compute fetches that change nothing on one version of the state, without waiting for a step.

        Args:
            fetches: as for :meth:`run`. Random numbers are those of the next step.
            feed_dict: as for :meth:`run`.

        Raises:
            InvalidArgumentError: a fetch would change the state; the error names the operation.
        """
        feeds = _NO_FEEDS if feed_dict is None else feed_dict
        try:
            call = self._calls.get((fetch_key(fetches), *feeds)) or self._prepare(fetches, feeds)
            plan = call.plan
            if plan.changes:
                raise InvalidArgumentError(
                    f"peek() cannot compute {fetches!r}: operation {plan.changes[0]!r} changes the "
                    "state. Use run()."
                )
            return call.rebuild(await self.backend.run(plan, call.accept(feeds), peek=True))
        except OpError as error:
            self._locate(error)
            raise

    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a snapshot of global variables, by name, and of the generator's state.

        A variable in parts has one entry, a :class:`~asyncmon.system.snapshot.ShardedArray`.

        It is ordered at the call: taken at once, or right after the current commit. Nothing is copied;
        while the snapshot is alive, a write to one of its arrays goes to a copy.

        Raises:
            RuntimeError: the session is closed.
        """
        return self._whole(self.backend.snapshot())

    def _whole(self, ordered: Awaitable[Snapshot]) -> Awaitable[Snapshot]:
        parts = saved_parts(self._graph)
        return asyncio.ensure_future(whole_snapshot(ordered, parts)) if parts else ordered

    def snapshot_to_write(self) -> Awaitable[Snapshot]:
        """Order a snapshot as :meth:`snapshot` does, for a save.

        Large arrays of a session in a child process stay there, and the child writes them.
        """
        backend = self.backend
        return self._whole(getattr(backend, "snapshot_to_write", backend.snapshot)())

    def state_spec(self) -> dict[str, Spec]:
        """Return dtype and shape of all saved entries, by name, initialised or not.

        A saver compares a checkpoint with them before loading.
        """
        return whole_spec(saved_spec(self._graph), saved_parts(self._graph))

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set variables by name, all or none. The value of a variable in parts is whole.

        Args:
            values: names to arrays, which are copied.

        Raises:
            InvalidArgumentError: a name is not that of a variable, or a shape or dtype differs; the
                error lists all of them.
            RuntimeError: the session is closed.
            CancelledError: the session was closed during the call; nothing has changed.
        """
        parts = saved_parts(self._graph)
        await self.backend.load(parted_values(values, parts) if parts else values)

    def check_fetches(self, fetches: Any) -> None:
        """Raise what :meth:`run` would for fetches that do not fit the graph."""
        FetchMap(self._graph, fetches)

    async def queues(self) -> list[QueueSize]:
        """Return the name, the number of elements and the capacity (None: no limit) of each queue.

        A queue exists after its first use by a run. In a cluster, only queues visible to this session.
        """
        self.backend.check_open()
        return sorted(await self.backend.queues(), key=lambda queue: queue[0])

    def pending_operations(self) -> list[str]:
        """Return the names of the operations that current runs await: dequeues, async functions."""
        return self.backend.pending_operations()

    def computing(self) -> tuple[int, ...]:
        """Return the threads that compute runs at the moment, by their idents."""
        return self.backend.computing()

    def abandon(self) -> None:
        """Let runs return at once that a thread computes. They commit nothing, and no run follows.

        For a stop that cannot wait for a ``py_func`` that hangs.
        """
        self.backend.abandon()

    def inside(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether the caller is part of an async function of a run that a task awaits.

        With None, whether it is part of the run that changes the state, which other runs wait for.
        """
        return self.backend.inside(task)

    async def close(self) -> None:
        """Release all resources. Current runs end with ``CancelledError``; a second call does nothing.

        Waits for the current node of a worker. Closes even when it is cancelled.

        Raises:
            RuntimeError: called by a function of one of its own runs, which would wait for itself; or
                another running event loop uses the session.
        """
        await self.backend.close()
        self._calls.clear()
        self._plans.clear()

    @staticmethod
    async def reset(
        target: str, containers: Sequence[str] | None = None, config: SessionConfig | None = None
    ) -> None:
        """Clear the state of a server, and of the other tasks of its cluster. TF1: same name, sync.

        Variables lose their values, dtypes and shapes, and shared queues their elements. All sessions
        of these servers end: their runs raise ``AbortedError``, from which monitored sessions recover.

        Args:
            target: the server, as for a session.
            containers: the names of the containers to clear, see :meth:`Graph.container`;
                ``"localhost"`` is the default one. None or none clears all.
            config: the options of the connection.

        Raises:
            InvalidArgumentError: sessions of this target share no state.
            UnavailableError: a task cannot be reached. The others are cleared.
            NotFoundError: a target of another form.
        """
        if isinstance(containers, str):
            raise TypeError(f"containers must be a list of names, not the string {containers!r}.")
        await reset_target(target, list(containers or ()), config or SessionConfig())

    def __enter__(self) -> NoReturn:
        raise TypeError("A Session is awaited: write `async with`, or `with session.as_default()`.")

    def __exit__(self, *_exc_info: object) -> None:
        """Never reached; ``with`` looks it up first."""

    async def __aenter__(self) -> Self:
        self._default = self._graph.as_default()
        self._default.__enter__()
        self._default_before = set_default_session(self)
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        if self._default is not None:
            set_default_session(self._default_before)
            self._default.__exit__(*exc_info)
        await self.close()

    def _locate(self, error: OpError) -> None:
        """Add the inputs of the node that failed, its line in the user's code, and the step."""
        op = error.op
        if op is not None and not error._is_located:
            error._is_located = True
            inputs = ", ".join(repr(tensor.name) for tensor in op.inputs[:8])
            line = "" if op.created_at is None else f", created at {op.created_at}"
            step = "" if self.global_step is None else f". The run began at step {self.global_step}"
            add_note(error, f"asyncmon: {op.type}({inputs}) of {op.name!r}{line}{step}.")

    def _prepare(self, fetches: Any, feeds: Mapping[Any, Any]) -> _Call:
        """Find or prepare the plan of new fetches."""
        self.backend.check_open()
        _check_feeds(feeds)
        fetched = FetchMap(self._graph, fetches)
        fed = [feed_tensor(self._graph, key) for key in flat_keys(feeds)]
        if len(set(fed)) != len(fed):
            raise InvalidArgumentError(f"A tensor is fed twice, under two keys: {list(feeds)!r}.")
        key = (*fetched.elements, None, *fed)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self.backend.prepare(fetched.elements, fed)
        if len(self._calls) >= _CACHE_LIMIT:
            self._calls.clear()
        call = _Call(plan, fetched.rebuild, nested=any(isinstance(key, tuple) for key in feeds))
        self._calls[(fetch_key(fetches), *feeds)] = call
        return call


_RUN = Session.run


def _check_feeds(feeds: Any) -> None:
    if not isinstance(feeds, Mapping):
        raise TypeError(f"feed_dict must map tensors to values, got {feeds!r}.") from None
