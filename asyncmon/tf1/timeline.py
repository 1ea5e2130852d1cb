"""TF1: ``tensorflow.python.client.timeline``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph import NodeStats
from asyncmon.hooks.chrome_trace import chrome_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncmon.protobuf.step_stats import StepStats


class Timeline:
    """A traced run for chrome://tracing and https://ui.perfetto.dev. TF1: ``timeline.Timeline``.

    The inputs of the operations of ``graph`` are drawn as the flow of data; None draws none.

    Example::

        await sess.run(op, options=tf.RunOptions(trace_level=3), run_metadata=metadata)
        text = Timeline(metadata.step_stats).generate_chrome_trace_format()
    """

    def __init__(self, step_stats: StepStats, graph: Any = None) -> None:
        self._nodes = list(_nodes(step_stats))
        self._graph = graph

    def generate_chrome_trace_format(
        self, show_dataflow: bool = True, show_memory: bool = False, op_time: str = "schedule"
    ) -> str:
        """Return the trace as JSON. ``op_time`` is without effect: a node has one start and one end."""
        inputs = None
        if show_dataflow and self._graph is not None:
            inputs = {op.name: [x.op.name for x in op.inputs] for op in self._graph.get_operations()}
        return chrome_trace(self._nodes, title="step", inputs=inputs, show_memory=show_memory)


def _nodes(step_stats: StepStats) -> Iterator[NodeStats]:
    for device in step_stats.dev_stats:
        for node in device.node_stats:
            yield NodeStats(
                name=node.node_name,
                op=node.timeline_label.partition(" = ")[2] or node.node_name,
                start=node.all_start_micros / 1e6,
                duration=node.all_end_rel_micros / 1e6,
                thread=device.thread_names.get(node.thread_id, str(node.thread_id)),
                nbytes=sum(memory.total_bytes for memory in node.memory),
            )
