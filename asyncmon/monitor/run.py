"""A run, which is what the monitor shows, and the plain data of which it consists.

The members of the data classes are the members of the JSON objects that the API returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from asyncmon.monitor.scalars import Scalars

Kind = Literal["live", "directory"]
Action = Literal["save", "stop", "pause", "resume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One row of the list of runs. Times are seconds since 1970.

    ``state`` of a live run is its session's: ``new``, ``opening``, ``open``, ``closing`` or ``closed``.
    Of a directory it is ``running``, ``silent`` (a session began, did not end, and has not written for
    some minutes), ``stopped``, or ``unknown`` where the event files have no session.
    """

    state: str = "unknown"
    step: int | None = None
    rate: float | None = None
    """Steps a second."""
    eta_secs: float | None = None
    last_step: int | None = None
    stop_reason: str | None = None
    paused: bool = False
    started: float | None = None
    updated: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFacts:
    """A hook, the time that its methods take, and its errors. :meth:`Run.detach` takes the ``id``."""

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
    """A checkpoint. ``kept``: the state file lists it. ``verified``: None where it was not tried."""

    path: str
    step: int | None = None
    saved: float | None = None
    bytes: int | None = None
    kept: bool = False
    verified: bool | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """A task, and the place where it waits."""

    name: str
    waits_for: str | None = None
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFacts:
    """A timer, its interval, and the time until it is due."""

    name: str
    every_secs: float
    next_secs: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """A queue of the graph. ``capacity`` is None where it has no bound."""

    name: str
    size: int
    capacity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagFacts:
    """How late the event loop was, in seconds."""

    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingFacts:
    """A save in flight."""

    path: str
    step: int | None = None
    started: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """All but the scalars, the graph and the log of a run."""

    hooks: tuple[HookFacts, ...] = ()
    checkpoints: tuple[CheckpointFacts, ...] = ()
    tasks: tuple[TaskFacts, ...] = ()
    timers: tuple[TimerFacts, ...] = ()
    loop_lag: LagFacts | None = None
    queues: tuple[QueueFacts, ...] = ()
    saving: SavingFacts | None = None
    recoveries: int = 0


class ActionError(Exception):
    """An action that the run cannot do now. The text is a sentence for the person who asked."""


class Run(Protocol):
    """What the monitor needs of a run. All of it is called in the event loop's thread.

    It may also have ``async def close()``, which is called at the end of the application.
    """

    @property
    def name(self) -> str:
        """The name that is shown; ids in URLs are made of it."""

    @property
    def kind(self) -> Kind:
        """Whether it is a session of this process, or the files that some process writes."""

    @property
    def scalars(self) -> Scalars:
        """All scalars that were read so far."""

    @property
    def poll_secs(self) -> float:
        """Seconds between two calls of :meth:`refresh` while somebody looks."""

    async def refresh(self) -> None:
        """Read what is new. May take long for large files: what was read so far shows meanwhile.

        It is called by one task at a time. Cancelling it loses nothing: the next call goes on.
        """

    def status(self) -> Status:
        """Return the row of the run. Up to ten times a second, so it only looks at memory."""

    async def details(self) -> Details:
        """Return hooks, checkpoints, tasks and the rest."""

    async def graph(self) -> Any:
        """Return the graph as a ``GraphDef``, or None where there is none."""

    async def act(self, action: Action, reason: str | None) -> Mapping[str, Any]:
        """Save now, stop, pause or resume; return what the answer has besides ``ok``.

        Raises:
            ActionError: it cannot be done now, or never with this run.
        """

    async def verify(self) -> tuple[CheckpointFacts, ...]:
        """Read every byte of the checkpoints; later :meth:`details` have the verdicts."""

    async def detach(self, hook: str) -> None:
        """Detach a hook.

        Raises:
            KeyError: there is no hook of this id.
            ActionError: it cannot be detached.
        """
