"""Trace a run by torch's profiler, for the metadata of the run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch

from asyncmon.protobuf.run_options import NodeStats

_metadata: ContextVar[Any] = ContextVar("asyncmon_torch_trace", default=None)


@contextlib.contextmanager
def into(run_metadata: Any) -> Iterator[None]:
    """Let :func:`profiled` blocks inside ``with`` fill the nodes of a run's metadata, unless None."""
    token = _metadata.set(run_metadata)
    try:
        yield
    finally:
        _metadata.reset(token)


def wanted() -> bool:
    """Return whether this run is traced."""
    return _metadata.get() is not None


@contextlib.contextmanager
def profiled() -> Iterator[None]:
    """Trace torch's operations inside ``with``, where the run is traced."""
    metadata = _metadata.get()
    if metadata is None:
        yield
        return
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
