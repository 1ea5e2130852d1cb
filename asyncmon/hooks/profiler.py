"""Trace steps periodically, into files of the Chrome trace format."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from asyncmon.graph import NodeStats, RunOptions
from asyncmon.hooks.hook_support import log_errors
from asyncmon.hooks.step_schedule import StepSchedule, global_step_of, require_global_step, step_after
from asyncmon.runtime import (
    Coordinator,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.runtime.protocols import ProgramMembers
from asyncmon.summary.shared_writer import SharedWriter
from asyncmon.system.diagnostics import Diagnostics
from asyncmon.system.files import in_thread, write_bytes
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


class ProfilerHook(SessionRunHook):
    """Trace steps periodically. TF1: ``tf.train.ProfilerHook``.

    A traced step is written to a file ``timeline-<step>.json``, for chrome://tracing or
    https://ui.perfetto.dev, and to TensorBoard's graph page as ``step_<step>``. The first run of a
    session is not traced: with ``save_steps=3``, steps 3, 6 and 9 are. Loading an earlier state resets
    the schedule. A step of a program without timed operations is traced as one slice.

    Args:
        save_steps: the interval in global steps.
        save_secs: trace the first run that starts this many seconds after the last trace.
        output_dir: the directory of the files. The first trace makes it.
        show_dataflow: draw the flow of data between operations.
        show_memory: draw the number of allocated bytes.

    Raises:
        ValueError: neither or both of ``save_steps`` and ``save_secs`` are given, or a negative value.

    Example::

        hooks = [ProfilerHook(save_steps=1000, output_dir="profiles")]
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._schedule = StepSchedule(
            self, ProfilerHook, "save_", save_steps, save_secs, at_once=False, both_ways=True
        )
        self._directory = os.path.abspath(output_dir or os.curdir)  # a later chdir changes nothing
        self._show_dataflow = show_dataflow
        self._show_memory = show_memory
        self._output = SharedWriter(self._directory, None)
        self.output_dir = self._output.directory
        self._diagnostics = Diagnostics("The timeline")
        self._args = SessionRunArgs(None, options=RunOptions(trace_level=RunOptions.FULL_TRACE))
        self._is_first = True
        self._began: float | None = None  # the start of the current run if it is traced
        self._coord: Coordinator

    async def begin(self) -> None:
        require_global_step(self)
        self._output.open()

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._coord = coord
        self._is_first = self._schedule.every_secs is not None
        self._schedule.start(global_step_of(self, session))

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        step = global_step_of(self, run_context.session)
        self._schedule.restarts(step)
        traces = not self._is_first and self._schedule.is_due(step + 1)
        self._began = time.perf_counter() if traces else None
        return self._args if traces else None

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write the trace in a background task."""
        step = step_after(run_values)
        if self._is_first or self._began is not None:
            self._is_first = False
            self._schedule.done(step)
        if self._began is None:
            return
        took = time.perf_counter() - self._began
        metadata = run_values.run_metadata
        if self._output.file_writer is not None and metadata.nodes:
            with contextlib.suppress(ValueError):  # traced before a recovery: keep the first trace
                self._output.file_writer.add_run_metadata(metadata, f"step_{step}", step)
        nodes = metadata.nodes or [_whole(step, took)]
        program = run_context.session.graph if self._show_dataflow else None
        self._coord.create_task(self._write, step, nodes, program, name=f"ProfilerHook, step {step}")

    async def cleanup(self, error: BaseException | None) -> None:
        await self._output.close()

    async def _write(self, step: int, nodes: Sequence[NodeStats], program: Any) -> None:
        path = os.path.join(self._directory, f"timeline-{step}.json")
        logger.info("Saving timeline for %d into '%s'.", step, path)
        with log_errors(self, f"the timeline of step {step}"):
            trace = await in_thread(self._trace, step, nodes, program)
            await self._diagnostics.write(path, partial(write_bytes, path, trace.encode()))

    def _trace(self, step: int, nodes: Sequence[NodeStats], program: Any) -> str:
        inputs = _inputs(program)
        return chrome_trace(nodes, title=f"step {step}", inputs=inputs, show_memory=self._show_memory)


def _whole(step: int, secs: float) -> NodeStats:
    name = threading.current_thread().name
    return NodeStats(name=f"step {step}", op="step", start=0.0, duration=secs, thread=name, nbytes=0)


def _inputs(program: Any) -> dict[str, list[str]] | None:
    operations = members_of(ProgramMembers, program).get_operations
    if operations is None:
        return None
    return {op.name: [tensor.op.name for tensor in op.inputs] for op in operations()}


_PROCESS = 1


def chrome_trace(
    nodes: Sequence[NodeStats],
    *,
    title: str,
    inputs: Mapping[str, Iterable[str]] | None = None,
    show_memory: bool = False,
) -> str:
    """Return a trace in the Chrome trace format: a row per thread, a slice per operation.

    An operation that awaits overlaps with other work of its thread, and gets a second row. With
    ``inputs``, the input names of each operation, the flow of data is drawn.
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
    # Slices of a row must be disjoint or nested.
    lanes: dict[str, list[list[float]]] = {}  # by thread: the ends of the open slices of each row
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
