"""Write a traced step in the Chrome trace format, for chrome://tracing and ui.perfetto.dev."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asyncmon.protobuf.run_options import NodeStats

_PROCESS = 1


def chrome_trace(
    nodes: Sequence[NodeStats],
    *,
    title: str,
    inputs: Mapping[str, Iterable[str]] | None = None,
    show_memory: bool = False,
) -> str:
    """Return a trace as JSON: a row for each thread, a slice for each operation.

    An operation that awaits overlaps with other work of its thread; it gets a second row.

    Args:
        nodes: the operations.
        title: the name of the process in the trace.
        inputs: the names of each operation's inputs, to draw the flow of data; None draws none.
        show_memory: also draw the sum of the bytes made so far.
    """
    rows = _rows(nodes)
    names = list(dict.fromkeys(rows))
    events: list[dict[str, Any]] = [_named("process_name", title, tid=0)]
    events += [_named("thread_name", name, tid) for tid, name in enumerate(names)]
    tids = [names.index(row) for row in rows]
    events += map(_slice, nodes, tids)
    if inputs is not None:
        events += _flows(nodes, tids, inputs)
    if show_memory:
        events += _memory(nodes)
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events})


def _rows(nodes: Sequence[NodeStats]) -> list[str]:
    """Return the row of each node, so that slices of a row are disjoint or nested."""
    lanes: dict[str, list[list[float]]] = {}  # of each thread, the ends of the open slices
    rows = [node.thread for node in nodes]
    for i in sorted(range(len(nodes)), key=lambda i: (nodes[i].start, -nodes[i].duration)):
        node = nodes[i]
        open_lanes = lanes.setdefault(node.thread, [])
        lane = next((k for k, ends in enumerate(open_lanes) if _fits(ends, node)), len(open_lanes))
        if lane == len(open_lanes):
            open_lanes.append([])
        open_lanes[lane].append(node.start + node.duration)
        if lane:
            rows[i] = f"{node.thread} ({lane + 1})"
    return rows


def _fits(ends: list[float], node: NodeStats) -> bool:
    while ends and ends[-1] <= node.start:
        ends.pop()
    return not ends or node.start + node.duration <= ends[-1]


def _named(event: str, name: str, tid: int) -> dict[str, Any]:
    return {"ph": "M", "name": event, "pid": _PROCESS, "tid": tid, "args": {"name": name}}


def _slice(node: NodeStats, tid: int) -> dict[str, Any]:
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
    nodes: Sequence[NodeStats], tids: Sequence[int], inputs: Mapping[str, Iterable[str]]
) -> list[dict[str, Any]]:
    ran = {node.name: (node, tid) for node, tid in zip(nodes, tids, strict=True)}
    flows: list[dict[str, Any]] = []
    for node, tid in zip(nodes, tids, strict=True):
        for source, source_tid in [ran[name] for name in inputs.get(node.name, ()) if name in ran]:
            flow = {"cat": "DataFlow", "name": source.name, "id": len(flows) // 2, "pid": _PROCESS}
            begin = {"ph": "s", "tid": source_tid, "ts": _micros(source.start + source.duration)}
            end = {"ph": "t", "tid": tid, "ts": _micros(node.start)}
            flows += [flow | begin, flow | end]
    return flows


def _memory(nodes: Iterable[NodeStats]) -> list[dict[str, Any]]:
    total, counters = 0, []
    for node in sorted(nodes, key=lambda node: node.start + node.duration):
        total += node.nbytes
        at = _micros(node.start + node.duration)
        counter = {"ph": "C", "cat": "Memory", "name": "bytes made", "pid": _PROCESS, "ts": at}
        counters.append(counter | {"args": {"bytes": total}})
    return counters


def _micros(secs: float) -> float:
    return round(secs * 1e6, 3)
