"""A ``Graph`` as a program. The only file of the runtime that imports the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

from asyncmon.checkpoint import Saver
from asyncmon.checkpoint.variable_selection import names_of
from asyncmon.graph.core.build import add_to_collection as add_to_collection
from asyncmon.graph.core.build import get_collection as get_collection
from asyncmon.graph.core.build import get_default_graph
from asyncmon.graph.core.default_session import get_default_session as get_default_session
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.keys import GraphKeys as GraphKeys
from asyncmon.graph.core.walk import ancestors
from asyncmon.graph.execution.feeds import feed_tensor
from asyncmon.graph.execution.fetches import FetchMap
from asyncmon.graph.ops.basic import group
from asyncmon.graph.queues.ops import closing_error as closing_error
from asyncmon.graph.session.session import Session as GraphSession
from asyncmon.graph.variables.global_step import step_counter
from asyncmon.graph.variables.variable import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)
from asyncmon.runtime.protocols import Session
from asyncmon.summary import merge_all

SAVED_MODEL_INITIALIZERS = "saved_model_initializers"

_COVERED = (
    GraphKeys.GLOBAL_VARIABLES,
    GraphKeys.LOCAL_VARIABLES,
    GraphKeys.SUMMARIES,
    GraphKeys.TABLE_INITIALIZERS,
    SAVED_MODEL_INITIALIZERS,
)


class GraphProgram:
    """The adapter between a graph and the runtime; see :class:`~asyncmon.runtime.Program`.

    The default of a role is kept in a collection of the graph, so that all programs of one graph have
    the same.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.finalize = graph.finalize
        self.unfinalize = graph.unfinalize
        self.as_default = graph.as_default

    @property
    def finalized(self) -> bool:
        """Whether nothing can be added to the graph any more."""
        return self.graph.finalized

    def create_session(self, target: str = "", config: Any = None) -> Session:
        """Return a raw session of the graph."""
        return GraphSession(target, self.graph, config)

    def init_op(self) -> Any:
        """Return the operation that initialises global variables and saved models."""
        more = self.graph.get_collection(SAVED_MODEL_INITIALIZERS)
        return self._get(
            "init_op", GraphKeys.INIT_OP, lambda: group(global_variables_initializer(), *more)
        )

    def local_init_op(self) -> Any:
        """Return the operation that initialises local variables and tables."""
        return self._get("local_init_op", GraphKeys.LOCAL_INIT_OP, default_local_init_op)

    def ready_op(self) -> Any:
        """Return the names of the variables that have no value."""
        return self._get("ready_op", GraphKeys.READY_OP, report_uninitialized_variables)

    def ready_for_local_init_op(self) -> Any:
        """Return the names of the global variables that have no value."""
        return self._get(
            "ready_for_local_init_op",
            GraphKeys.READY_FOR_LOCAL_INIT_OP,
            lambda: report_uninitialized_variables(global_variables()),
        )

    def summary_op(self) -> Any:
        """Return the merge of all summaries, or None where the graph has none."""
        return self._get("summary_op", GraphKeys.SUMMARY_OP, merge_all)

    def saver(self) -> Any:
        """Return the saver of the collection SAVERS, or a new one for all global variables.

        Raises:
            RuntimeError: there is more than one.
        """
        saver = saver_of(self.graph)
        if saver is None:
            saver = Saver(allow_empty=True)
            self.graph.add_to_collection(GraphKeys.SAVERS, saver)
        return saver

    def start_producers(self, session: Session, coord: Any) -> list[asyncio.Task[Any]]:
        """Start the queue runners of the graph for a session."""
        runners = self.graph.get_collection(GraphKeys.QUEUE_RUNNERS)
        return [task for runner in runners for task in runner.create_tasks(session, coord, start=True)]

    def global_step(self) -> Any:
        """Return the integer that counts steps, or None."""
        return step_counter(self.graph)

    def has_global_step(self) -> bool:
        """Return whether the graph has a global step."""
        return self.global_step() is not None

    def canonical_feed(self, key: Any) -> Hashable:
        """Return the tensor of a key, which is a tensor, a name or a tuple of these."""
        if isinstance(key, tuple):
            return tuple(map(self.canonical_feed, key))
        return feed_tensor(self.graph, key)

    def _get(self, arg_name: str, collection_key: str, make: Callable[[], Any]) -> Any:
        graph = self.graph
        made: dict[str, tuple[Any, list[int]]] = graph.extras.setdefault("scaffold_defaults", {})
        covered = [len(graph.get_collection(key)) for key in _COVERED]
        item, then = made.get(collection_key, (None, covered))
        if then != covered and not graph.finalized and graph.get_collection(collection_key) == [item]:
            graph.get_collection_ref(collection_key).clear()  # made before the graph was complete
        with graph.as_default():
            found = get_or_default(arg_name, collection_key, make, graph)
        if found is not item:
            made[collection_key] = (found, covered)
        return found


def saver_of(graph: Graph) -> Any:
    """Return the saver of the collection SAVERS, or None.

    Raises:
        RuntimeError: there is more than one.
    """
    savers = graph.get_collection(GraphKeys.SAVERS)
    if len(savers) > 1:
        raise RuntimeError(
            "More than one item in collection savers. Please indicate which one to use by passing it "
            "to the constructor."
        )
    return savers[0] if savers else None


def graph_program(program: Any) -> GraphProgram | None:
    """Return the program of a graph, or of the default graph for None; None for another object."""
    graph = get_default_graph() if program is None else program
    return GraphProgram(graph) if isinstance(graph, Graph) else None


def is_needed(op: Any, fetches: Any) -> bool:
    """Return whether fetches need an operation. False for a fetch that the graph lacks."""
    try:
        wanted = FetchMap(op.graph, fetches).elements
    except (TypeError, ValueError, AttributeError):
        return False
    return op in ancestors([one.op for one in wanted])


def get_or_default(
    arg_name: str,
    collection_key: str,
    default_constructor: Callable[[], Any],
    graph: Graph | None = None,
) -> Any:
    """Return the item of a collection, or make one and add it to the collection.

    Raises:
        RuntimeError: the collection has more than one item; or one has to be made and the graph is
            finalized.
    """
    graph = graph or get_default_graph()
    items = graph.get_collection(collection_key)
    if len(items) > 1:
        raise RuntimeError(
            f'More than one item in the collection "{collection_key}". Please indicate which one to '
            f"use by passing it to the Scaffold constructor as:  Scaffold({arg_name}=item to use)"
        )
    if items:
        return items[0]
    made = default_constructor()
    if made is not None:
        graph.add_to_collection(collection_key, made)
    return made


def default_local_init_op() -> Any:
    """Return the operation that initialises local variables and tables of the default graph."""
    tables = get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS)
    return group(local_variables_initializer(), *tables)


def variables_under_construction() -> list[str] | None:
    """Return the names of the default graph's variables; None if the graph is empty."""
    if not get_default_graph().get_operations():
        return None
    return names_of(dict.fromkeys(global_variables()))
