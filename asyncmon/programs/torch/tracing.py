"""Traces of torch's operations in the runs that ask for one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch

from asyncmon.protobuf.run_options import NodeStats

traced_run: ContextVar[Any] = ContextVar("asyncmon_torch_trace", default=None)
"""The metadata of the run that is traced, or None."""


@contextlib.contextmanager
def traced(run_metadata: Any) -> Iterator[None]:
    """Let :func:`profiled` fill the nodes of a run's metadata inside ``with``, unless that is None."""
    token = traced_run.set(run_metadata)
    try:
        yield
    finally:
        traced_run.reset(token)


@contextlib.contextmanager
def profiled() -> Iterator[None]:
    """Trace torch's operations inside ``with``, in a run that is traced."""
    metadata = traced_run.get()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        yield
    metadata.nodes[:] = _nodes(profile.events())


def _nodes(events: Any) -> list[NodeStats]:
    events = sorted(events, key=lambda event: event.time_range.end)
    first = min((event.time_range.start for event in events), default=0.0)
    return [
        NodeStats(
            name=event.name,
            op=event.name.rpartition("::")[2],
            start=(event.time_range.start - first) / 1e6,
            duration=event.time_range.elapsed_us() / 1e6,
            thread=f"{event.device_type.name.lower()} {event.thread}",
            nbytes=max(int(event.cpu_memory_usage), 0),
        )
        for event in events
    ]
