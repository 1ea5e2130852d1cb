"""Statistics of a monitored session: hooks, tasks, timers and queues."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from asyncmon.runtime.coordinated import Coordinated
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.failures import Failures
from asyncmon.runtime.gate import Gate
from asyncmon.runtime.hook import HookMembers
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.observation import Span
from asyncmon.runtime.pipeline_statistics import PipelineStatistics
from asyncmon.runtime.protocols import SessionMembers
from asyncmon.runtime.recoverable import Recoverable
from asyncmon.runtime.saves import Saves
from asyncmon.runtime.session_state import SessionState
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.stop import Stop
from asyncmon.runtime.tasks import Task
from asyncmon.runtime.watch import RunWatch
from asyncmon.system.error_text import where_it_waits
from asyncmon.system.members import members_of
from asyncmon.system.notebook import html_table, progress_bar


class HookStatistics(NamedTuple):
    """A hook, with its unique label in the session."""

    label: str
    hook: Any
    """None once the session is closed, which then keeps no hook."""
    priority: int
    output_dir: str | None
    """The directory of its files, see ``HookMembers.output_dir``."""
    saves: bool
    """Whether these are checkpoints."""
    failures: int
    """The number of its errors in runs, and of errors that ``on_error`` tolerates."""
    last_error: str | None
    """The last of these errors, in words."""


class TaskStatistics(NamedTuple):
    """A background task."""

    name: str
    waits_for: str
    """The innermost line at which it is suspended, and the line of the user's code."""
    done: bool


class TimerStatistics(NamedTuple):
    """A loop over ``coord.every``, in a hook's background for example."""

    name: str
    """The name of its task."""
    every_secs: float
    next_secs: float
    """Seconds until the next tick."""


class QueueStatistics(NamedTuple):
    """A queue of the program, or a channel of the coordinator."""

    name: str
    size: int
    capacity: int | None
    """None: no limit."""


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """The result of ``MonitoredSession.statistics``."""

    state: SessionState
    step: int | None
    """The global step, the last known one of a session that is closed."""
    last_step: int | None
    """The lowest step at which a hook is going to stop the session."""
    paused: bool
    stop: Stop | None
    """What ended the session; while it is open, the stop that was requested, or None."""
    recoveries: int
    """The number of raw sessions that were replaced after a failure."""
    hooks: tuple[HookStatistics, ...]
    """The hooks in their order."""
    tasks: tuple[TaskStatistics, ...]
    timers: tuple[TimerStatistics, ...]
    open_spans: tuple[Span, ...]
    """Saves, restores, recoveries and so on that have not ended, without runs and hooks."""
    last_error: BaseException | None = None
    """The last error that a run has raised, while the session is open."""
    failed_saves: int = 0
    """The number of saves that failed."""
    last_save_error: str | None = None
    """The error of the last save that ended, in words, if it failed."""
    pipelines: tuple[PipelineStatistics, ...] = ()
    """Those of ``sess.produce``, in their order."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        known = "" if self.step is None else f" at step {self.step}"
        known += "" if self.last_step is None else f" of {self.last_step}"
        text = ("paused" if self.paused else self.state.value) + known
        text += f": {self.stop.text}" if self.stop is not None and self.stop.text else ""
        hooks = [(one.label, one.failures or "", one.last_error or "") for one in self.hooks]
        tasks = [(one.name, one.waits_for) for one in self.tasks]
        return (
            progress_bar(self.step or 0, self.last_step, text)
            + html_table(("hook", "failures", "last error"), hooks)
            + (html_table(("task", "waits for"), tasks) if tasks else "")
        )


class Statistics:
    """The statistics of one session. Those of its end stay, and refer to nothing of it."""

    def __init__(
        self,
        gate: Gate,
        hooks: HookSet,
        sessions: Recoverable,
        stops: StopControl,
        watch: RunWatch,
        saves: Saves,
        tasks: Collection[Task],
        pipelines: list[Any],
    ) -> None:
        self._tasks = tasks
        self._pipelines = pipelines
        self._gate = gate
        self._hooks = hooks
        self._sessions = sessions
        self._stops = stops
        self._watch = watch
        self._saves = saves
        self._last: SessionStatistics | None = None  # of a session that is closed

    def now(self) -> SessionStatistics:
        """Return hooks, tasks, timers and so on."""
        if self._last is not None:
            return self._last
        coord, observers = self._sessions.coord, self._hooks.observers
        return SessionStatistics(
            state=self._gate.state,
            step=observers.step,
            last_step=self.last_step(),
            paused=self._gate.paused,
            stop=self._stops.stop,
            recoveries=self._sessions.recoveries,
            hooks=hook_statistics(self._hooks),
            tasks=task_statistics([*self._tasks, *(coord._tasks.running if coord else ())]),
            timers=() if coord is None else timer_statistics(coord),
            open_spans=tuple(observers.open_spans),
            last_error=self._watch.last_error,
            failed_saves=self._saves.failures,
            last_save_error=self._saves.last_error,
            pipelines=tuple(pipeline.statistics() for pipeline in self._pipelines),
        )

    def last_step(self) -> int | None:
        """Return the lowest step at which one of the hooks is going to stop the session."""
        return last_step(self._hooks.hooks) if self._last is None else self._last.last_step

    def release(self) -> None:
        """Keep the present statistics, without the objects that they refer to: it is closed."""
        now = self.now()
        hooks = tuple(one._replace(hook=None) for one in now.hooks)
        self._last = replace(now, hooks=hooks, tasks=(), timers=(), open_spans=(), last_error=None)


def last_step(hooks: tuple[Any, ...]) -> int | None:
    """Return the lowest step at which one of the hooks is going to stop the session."""
    steps = [members_of(HookMembers, hook).stops_at_step for hook in hooks]
    return min((step for step in steps if step is not None), default=None)


def hook_statistics(hooks: HookSet) -> tuple[HookStatistics, ...]:
    """Return the hooks of a session in their order."""
    found = []
    for hook in hooks.hooks:
        label, members = hooks.label(hook), members_of(HookMembers, hook)
        raised, logged = hooks.failures.get(label, Failures()), members._logged or Failures()
        found.append(
            HookStatistics(
                label, hook, members.priority, members.output_dir, members.save_now is not None,
                raised.count + logged.count, logged.last or raised.last,
            )
        )  # fmt: skip
    return tuple(found)


def task_statistics(running: Collection[Task]) -> tuple[TaskStatistics, ...]:
    """Return running tasks by their names."""
    tasks = sorted(running, key=lambda task: task.get_name())
    return tuple(TaskStatistics(t.get_name(), where_it_waits(t), t.done()) for t in tasks)


def timer_statistics(coord: Coordinator) -> tuple[TimerStatistics, ...]:
    """Return the timers of a coordinator by their names, or none after a stop."""
    due = [TimerStatistics(one.name, one.secs, one.left()) for one in coord._timers if one.secs]
    return () if coord._stop.is_set else tuple(sorted(due))


async def queue_statistics(session: Coordinated | None) -> tuple[QueueStatistics, ...]:
    """Return the queues of the session in use and the channels of its coordinator."""
    if session is None:
        return ()
    queues = members_of(SessionMembers, session.raw).queues
    found = [] if queues is None else [QueueStatistics(*one) for one in await queues()]
    counts = [(channel.name, channel.statistics()) for channel in session.coord._channels]
    return (*found, *(QueueStatistics(name, count.size, count.capacity) for name, count in counts))
