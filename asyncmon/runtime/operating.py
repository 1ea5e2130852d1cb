"""Operating a monitored session: pauses, saves at once, observers and statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.hook import HookMembers
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.lifecycle import Lifecycle, SessionState
from asyncmon.runtime.observation import Observer, Span
from asyncmon.runtime.protocols import SessionMembers, step_of
from asyncmon.system.error_text import where_it_waits
from asyncmon.system.members import members_of


class HookStatistics(NamedTuple):
    """A hook, with a label that no other hook of the session gets."""

    label: str
    hook: Any
    failures: int
    """How often it has raised an error around runs, or one that ``on_error`` tolerates."""
    last_error: BaseException | None


class TaskStatistics(NamedTuple):
    """A background task."""

    name: str
    waits_for: str
    """The innermost line at which it is suspended, and the user's line that led there."""
    done: bool


class TimerStatistics(NamedTuple):
    """A loop over ``coord.every``, of a hook's background for example."""

    name: str
    """Of the task that made it."""
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
    """What ``MonitoredSession.statistics`` returns."""

    state: SessionState
    step: int | None
    """The global step, the last known one of a session that is closed."""
    last_step: int | None
    """The lowest step at which a hook is going to stop the session."""
    paused: bool
    stop_reason: str | None
    recoveries: int
    """How often a new raw session replaced one that failed."""
    hooks: tuple[HookStatistics, ...]
    """The hooks in their order."""
    tasks: tuple[TaskStatistics, ...]
    timers: tuple[TimerStatistics, ...]
    under_way: tuple[Span, ...]
    """Saves, restores, recoveries and so on that have not ended; runs and hooks are left out."""


class OperatedSession:
    """The part of a monitored session that serves those who operate it."""

    _life: Lifecycle

    def pause(self, reason: str | None = None) -> None:
        """Let all runs that have not begun wait until :meth:`resume`, a stop or the close.

        The run that is under way completes. Timers go on, saves by time for example.

        Raises:
            RuntimeError: the session is not open, or is to stop.
        """
        self._life.pause(reason)

    def resume(self) -> None:
        """End a pause, if there is one."""
        self._life.resume()

    @property
    def paused(self) -> bool:
        """Whether the next run would wait for :meth:`resume`."""
        return self._life.paused

    async def save(self) -> str:
        """Save a checkpoint now, and return its prefix once it is committed.

        The first hook with ``async def save_now(session)`` saves, usually the ``CheckpointSaverHook``.
        Listeners are called and the hook's schedule goes on from here. A step that is saved already is
        not saved again. Cancelled, the save goes on. An error of it is also one of the hook.

        Raises:
            RuntimeError: the session is not open or has no such hook, saves are vetoed, by a NaN for
                example, or this is called from inside of a run.
        """
        return await self._life.save()

    @property
    def state(self) -> SessionState:
        """Where the session is in its life."""
        return self._life.state

    @property
    def started(self) -> float | None:
        """When the session was started, in seconds since 1970, or None."""
        return self._life.started

    @property
    def last_step(self) -> int | None:
        """The lowest step at which a hook is going to stop the session, or None."""
        return _last_step(self._life.hooks.hooks)

    def statistics(self) -> SessionStatistics:
        """Return hooks, tasks, timers, saves under way and so on, in any state of the session."""
        life = self._life
        hooks, coord = life.hooks, life.coord
        return SessionStatistics(
            state=self.state,
            step=step_of(life.raw),
            last_step=self.last_step,
            paused=life.paused,
            stop_reason=life.end_reason or life.stops.reason,
            recoveries=life.sessions.recoveries,
            hooks=_hooks(hooks),
            tasks=() if coord is None else _tasks(coord),
            timers=() if coord is None else _timers(coord),
            under_way=tuple(life.observers.under_way),
        )

    async def queues(self) -> tuple[QueueStatistics, ...]:
        """Return the queues of the program's session, and the channels of its coordinator.

        A queue of a graph is there once a run has used it. Where another process runs the session, this
        asks it, and raises an ``OpError`` where no answer comes. Without a session there is none.
        """
        current = self._life.sessions.current
        if current is None:
            return ()
        ask = members_of(SessionMembers, current.raw).queues
        found = [] if ask is None else [QueueStatistics(*one) for one in await ask()]
        return (*found, *_channels(current.coord))

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call an observer at the begin and the end of each :class:`Span`, also after a recovery.

        Steps cost nothing where there is none. An observer that raises is logged and removed.

        Args:
            observer: has ``began(span)`` and ``ended(span)``, see :class:`Observer`.

        Returns:
            A function that removes it. It still gets the ends of the spans that have begun.

        Raises:
            TypeError: it lacks one of the methods.
        """
        return self._life.observers.add(observer)


def _last_step(hooks: tuple[Any, ...]) -> int | None:
    """Return the lowest step at which one of the hooks is going to stop the session."""
    steps = [members_of(HookMembers, hook).stops_at_step for hook in hooks]
    return min((step for step in steps if step is not None), default=None)


def _hooks(hooks: HookSet) -> tuple[HookStatistics, ...]:
    found = []
    for hook in hooks.hooks:
        label = hooks.label(hook)
        raised, last = hooks.failures.get(label, (0, None))
        logged, last_logged = members_of(HookMembers, hook)._logged_errors
        found.append(HookStatistics(label, hook, raised + logged, last_logged or last))
    return tuple(found)


def _tasks(coord: Coordinator) -> tuple[TaskStatistics, ...]:
    tasks = sorted(coord._tasks.running, key=lambda task: task.get_name())
    return tuple(TaskStatistics(t.get_name(), where_it_waits(t), t.done()) for t in tasks)


def _timers(coord: Coordinator) -> tuple[TimerStatistics, ...]:
    due = [TimerStatistics(one.name, one.secs, one.left()) for one in coord._timers if one.secs]
    return () if coord._stop.is_set else tuple(sorted(due))


def _channels(coord: Coordinator) -> tuple[QueueStatistics, ...]:
    counts = [(channel.name, channel.statistics()) for channel in coord._channels]
    return tuple(QueueStatistics(name, count.size, count.capacity) for name, count in counts)
