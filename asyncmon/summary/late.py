"""What is heavy to encode is encoded late, in the writer's thread: the fields of an ``Event``."""

from __future__ import annotations

from typing import Any

from asyncmon.summary.entries import SUMMARY_FIELD
from asyncmon.summary.events import TaggedRunMetadata
from asyncmon.summary.graph_def import GraphLike, encode_graph, encode_meta_graph
from asyncmon.summary.step_stats import encode_run_metadata
from asyncmon.summary.values import histogram_summary, image_summary
from asyncmon.summary.wire import delimited

__all__ = [
    "GRAPH",
    "META_GRAPH",
    "graph_field",
    "histogram_field",
    "images_field",
    "meta_graph_field",
    "operations_of",
    "run_field",
]

GRAPH, META_GRAPH = 4, 9
"""Field numbers of ``Event``."""

_RUN_METADATA = 8


def operations_of(graph: Any) -> list[Any]:
    """Return the operations that a graph has now. TypeError if it is none."""
    if not isinstance(graph, GraphLike):
        raise TypeError(
            "The passed graph must be an instance of `Graph` or the deprecated `GraphDef` (bytes), "
            f"not {type(graph).__name__}."
        )
    return list(graph.get_operations())


def graph_field(tags: object, operations: list[Any]) -> bytes:
    """Encode a graph."""
    return delimited(GRAPH, encode_graph(operations))


def meta_graph_field(tags: object, operations: list[Any]) -> bytes:
    """Encode a graph as a meta graph."""
    return delimited(META_GRAPH, encode_meta_graph(encode_graph(operations)))


def run_field(tags: object, run: tuple[str, Any]) -> bytes:
    """Encode a traced step: its tag, and its nodes or the bytes of its ``RunMetadata``."""
    tag, nodes = run
    data = nodes if isinstance(nodes, bytes) else encode_run_metadata(nodes)
    event = TaggedRunMetadata(tag=tag, run_metadata=data)
    return delimited(_RUN_METADATA, event.SerializeToString())


def histogram_field(tag: str, values: Any) -> bytes | None:
    """Encode a histogram; None where it is left out."""
    summary = histogram_summary(tag, values)
    return None if summary is None else delimited(SUMMARY_FIELD, summary)


def images_field(tag: str, images: tuple[Any, int]) -> bytes:
    """Encode a batch of images, and how many of them at most."""
    return delimited(SUMMARY_FIELD, image_summary(tag, *images))
