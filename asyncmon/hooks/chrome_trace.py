"""A traced step in the Chrome trace format, for chrome://tracing and https://ui.perfetto.dev."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncmon.summary.step_stats import NodeTimes

__all__ = ["chrome_trace"]

_PROCESS = 1


def chrome_trace(
    nodes: Sequence[NodeTimes],
    *,
    title: str,
    inputs: Mapping[str, Iterable[str]] | None = None,
    show_memory: bool = False,
) -> str:
    """Return a trace as JSON: a row for each thread, a slice for each operation.

    Args:
        nodes: the operations.
        title: the name of the process in the trace.
        inputs: the names of each operation's inputs, to draw the flow of data; None draws none.
        show_memory: also draw the sum of the bytes made so far.
    """
    threads: dict[str, int] = {}
    events: list[dict[str, Any]] = [_named("process_name", title, tid=0)]
    for node in nodes:
        if node.thread not in threads:
            threads[node.thread] = len(threads)
            events.append(_named("thread_name", node.thread, tid=threads[node.thread]))
    events += [_slice(node, threads[node.thread]) for node in nodes]
    if inputs is not None:
        events += _flows(nodes, threads, inputs)
    if show_memory:
        events += _memory(nodes)
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events})


def _named(what: str, name: str, tid: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": tid, "args": {"name": name}}


def _slice(node: NodeTimes, tid: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "Op",
        "name": node.op,
        "pid": _PROCESS,
        "tid": tid,
        "ts": _micros(node.start),
        "dur": _micros(node.duration),
        "args": {"name": node.name, "op": node.op, "bytes": node.nbytes},
    }


def _flows(
    nodes: Sequence[NodeTimes], threads: Mapping[str, int], inputs: Mapping[str, Iterable[str]]
) -> list[dict[str, Any]]:
    ran = {node.name: node for node in nodes}
    flows: list[dict[str, Any]] = []
    for node in nodes:
        for source in map(ran.get, inputs.get(node.name, ())):
            if source is None:
                continue
            flow = {"cat": "DataFlow", "name": source.name, "id": len(flows) // 2, "pid": _PROCESS}
            begin = {
                "ph": "s",
                "tid": threads[source.thread],
                "ts": _micros(source.start + source.duration),
            }
            end = {"ph": "t", "tid": threads[node.thread], "ts": _micros(node.start)}
            flows += [flow | begin, flow | end]
    return flows


def _memory(nodes: Iterable[NodeTimes]) -> list[dict[str, Any]]:
    total, counters = 0, []
    for node in sorted(nodes, key=lambda node: node.start + node.duration):
        total += node.nbytes
        at = _micros(node.start + node.duration)
        counter = {"ph": "C", "cat": "Memory", "name": "bytes made", "pid": _PROCESS, "ts": at}
        counters.append(counter | {"args": {"bytes": total}})
    return counters


def _micros(secs: float) -> float:
    return round(secs * 1e6, 3)
