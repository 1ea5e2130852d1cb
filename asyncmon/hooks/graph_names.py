"""What names stand for, where the current program is a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph import get_global_step
from asyncmon.runtime.program import current_program

if TYPE_CHECKING:
    from asyncmon.graph import Graph

__all__ = ["current_graph", "global_step_name", "named_tensor"]


def current_graph() -> Graph | None:
    """Return the graph whose session is being prepared; None for another kind of program."""
    graph: Graph | None = getattr(current_program(), "graph", None)
    return graph


def global_step_name() -> str:
    """Return what the global step is called in summaries."""
    graph = current_graph()
    step = None if graph is None else get_global_step(graph)
    return "global_step" if step is None else str(step.op.name)


def named_tensor(fetch: Any) -> Any:
    """Return the tensor that a name stands for, and other fetches as they are.

    A name without an index is that of an operation with one output. In other programs than graphs
    names stay names.

    Raises:
        KeyError: the graph has nothing of that name.
        ValueError: the operation has several outputs, or the fetch is of another graph.
    """
    graph = current_graph()
    if graph is None:
        return fetch
    if not isinstance(fetch, str):
        if getattr(fetch, "graph", None) is not graph:
            raise ValueError(
                f"Passed {fetch!r} should have graph attribute that is equal to current graph "
                f"{graph!r}."
            )
        return fetch
    if ":" in fetch:
        return graph.as_graph_element(fetch)
    tensor = graph.as_graph_element(f"{fetch}:0")
    if len(tensor.op.outputs) > 1:
        raise ValueError(
            f"Name {fetch} is ambiguous, as this `Operation` has multiple outputs (at least 2)."
        )
    return tensor
