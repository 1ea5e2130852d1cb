"""The protocol of a run, and its plain data.

The fields of the data classes are the members of the JSON objects that the API returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from asyncmon.errors import OpError
from asyncmon.monitor.media import Media
from asyncmon.monitor.scalars import Scalars
from asyncmon.runtime.pipeline_statistics import PipelineStatistics
from asyncmon.runtime.session_statistics import QueueStatistics, TaskStatistics, TimerStatistics

Kind = Literal["live", "directory"]
Action = Literal["save", "stop", "pause", "resume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One row of the list of runs. Times are seconds since 1970.

    ``state`` of a live run is its session's: ``new``, ``opening``, ``open``, ``closing`` or ``closed``.
    Of a directory it is ``running`` or ``stopped`` by its run record, see
    :class:`~asyncmon.runtime.RunRecord`. Without a record it is that of the event files, which may also
    be ``silent`` (a session began, did not end, and has not written for some minutes), or ``unknown``.
    """

    state: str = "unknown"
    step: int | None = None
    rate: float | None = None
    """Steps a second."""
    eta_secs: float | None = None
    last_step: int | None = None
    stop_reason: str | None = None
    stop_cause: str | None = None
    """What asked for the stop, or ended it: see ``asyncmon.runtime.stop.Cause``."""
    last_error: str | None = None
    """The last error that a run of an open session has raised; or the error that ended the run."""
    outcome: str | None = None
    """Of a run that has ended, the state of its record, such as ``completed`` or ``lost``."""
    paused: bool = False
    started: float | None = None
    updated: float | None = None
    metrics: Mapping[str, float | str] | None = None
    """The metrics of the last evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRow:
    """A hook, the time spent in its methods, and its errors. :meth:`Run.detach` takes the ``id``."""

    id: str
    name: str
    calls: int = 0
    secs_per_step: float | None = None
    total_secs: float = 0.0
    failures: int = 0
    last_error: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """A checkpoint. ``kept``: the state file lists it. ``verified``: None if not verified yet."""

    path: str
    step: int | None = None
    saved: float | None = None
    bytes: int | None = None
    kept: bool = False
    verified: bool | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLag:
    """How late the event loop was, in seconds."""

    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A save in flight."""

    path: str
    step: int | None = None
    started: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The details of a run: everything except scalars, media and log."""

    hooks: tuple[HookRow, ...] = ()
    checkpoints: tuple[CheckpointFacts, ...] = ()
    tasks: tuple[TaskStatistics, ...] = ()
    timers: tuple[TimerStatistics, ...] = ()
    loop_lag: LoopLag | None = None
    queues: tuple[QueueStatistics, ...] = ()
    pipelines: tuple[PipelineStatistics, ...] = ()
    saving: Saving | None = None
    recoveries: int = 0


async def queues_of(session: Any, secs: float) -> tuple[QueueStatistics, ...]:
    """Return the queues of a session; none if it is lost, of another loop, or slower than ``secs``."""
    try:
        async with asyncio.timeout(secs):
            found: tuple[QueueStatistics, ...] = await session.queues()
            return found
    except (TimeoutError, OpError, RuntimeError):
        return ()


class ActionError(Exception):
    """An action that the run cannot perform now. The message is shown to the user."""


class Run(Protocol):
    """The interface between the monitor and a run. All members are used on the event loop's thread.

    A run may also have ``async def close()``, which is called when the application ends, ``forget()``,
    which is called when it is removed from the table, and ``directories()``, which returns the real
    paths of the directories that it shows. These have no row of their own.
    """

    @property
    def name(self) -> str:
        """The displayed name; the id in URLs is derived from it."""

    @property
    def kind(self) -> Kind:
        """Whether the run is a session of this process or a directory."""

    @property
    def scalars(self) -> Scalars:
        """All scalars read so far."""

    @property
    def media(self) -> Media:
        """The histograms, images and texts read so far."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The hyperparameters, as plain values by name."""

    @property
    def poll_secs(self) -> float:
        """Seconds between two calls of :meth:`refresh` while there are viewers."""

    async def refresh(self) -> None:
        """Read new data. Large files may take long; data read so far is visible in the meantime.

        Called by one task at a time. A cancelled call loses nothing: the next one continues.
        """

    def status(self) -> Status:
        """Return the row of the run. Called up to ten times a second: must not read files."""

    async def details(self) -> Details:
        """Return hooks, checkpoints, tasks and the rest."""

    async def act(self, action: Action, reason: str | None) -> Mapping[str, Any]:
        """Save, stop, pause or resume; return the members of the response besides ``ok``.

        Raises:
            ActionError: this run cannot perform the action, now or ever.
        """

    async def verify(self) -> tuple[CheckpointFacts, ...]:
        """Verify all checkpoints; later :meth:`details` include the verdicts."""

    async def detach(self, hook: str) -> None:
        """Detach a hook.

        Raises:
            KeyError: there is no hook of this id.
            ActionError: it cannot be detached.
        """
