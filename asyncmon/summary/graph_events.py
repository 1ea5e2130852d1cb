"""Encode graphs and traced steps for TensorBoard's graph page, and write ``graph.pbtxt``.

:mod:`asyncmon.protobuf.graph_def` describes the interface of a graph.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from asyncmon.protobuf.graph_def import GraphDef, graph_def_of
from asyncmon.protobuf.run_options import NodeStats, RunMetadataProto, step_stats_of
from asyncmon.system.diagnostics import Diagnostics
from asyncmon.system.files import in_thread, system_calls


@runtime_checkable
class GraphLike(Protocol):
    """An object that can be encoded as a graph."""

    def get_operations(self) -> Sequence[Any]:
        """Return the nodes."""


def encode_graph(operations: Iterable[Any]) -> bytes:
    """Return a serialized ``GraphDef`` of these nodes."""
    return graph_def_of(operations).SerializeToString()


def encode_run_metadata(times: Iterable[NodeStats]) -> bytes:
    """Return a serialized ``RunMetadata`` with the ``StepStats`` of these nodes."""
    return RunMetadataProto(step_stats=step_stats_of(times)).SerializeToString()


async def write_graph_text(directory: str, operations: Iterable[Any]) -> None:
    """Write ``graph.pbtxt`` into a directory, which is made if it is missing. A failure is logged."""
    operations = list(operations)  # the graph may grow

    def write() -> None:
        write_graph_file(directory, "graph.pbtxt", str(graph_def_of(operations)).encode())

    path = os.path.join(directory, "graph.pbtxt")
    await Diagnostics("The graph").write(path, lambda: in_thread(write))


def write_graph_file(directory: str, name: str, data: bytes) -> None:
    """Write a file into a directory, which is made if it is missing. Blocking."""
    calls, path = system_calls.get(), Path(directory)
    calls.make_dirs(path)
    calls.put_files(path, {name: data})


async def write_graph(
    graph_or_graph_def: Any, logdir: str | os.PathLike[str], name: str, as_text: bool = True
) -> str:
    """Write a graph to a file, and return its path. TF1: ``tf.train.write_graph``.

    Args:
        graph_or_graph_def: a ``Graph``, encoded with its current nodes, or a ``GraphDef``.
        logdir: the directory; made if it is missing.
        name: the name of the file.
        as_text: write protobuf's text format instead of the binary one.

    Raises:
        TypeError: the argument is no graph.
        OSError: the file cannot be written.
    """
    given = graph_or_graph_def
    if not isinstance(given, GraphDef | GraphLike):
        raise TypeError(f"Expected a Graph or a GraphDef, got {given!r}.")
    operations = [] if isinstance(given, GraphDef) else list(given.get_operations())

    def write() -> None:
        graph_def = given if isinstance(given, GraphDef) else graph_def_of(operations, add_shapes=False)
        data = str(graph_def).encode() if as_text else graph_def.SerializeToString()
        write_graph_file(os.fspath(logdir), name, data)

    await in_thread(write)
    return os.path.join(logdir, name)
