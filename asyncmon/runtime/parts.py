"""The parts of a monitored session, and how they refer to each other."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from threading import get_ident
from typing import Any, Literal, NamedTuple

from asyncmon.checkpoint.stateful import StatefulObjects
from asyncmon.runtime.call_description import describe_call
from asyncmon.runtime.closing import Closing
from asyncmon.runtime.data_parts import DataParts
from asyncmon.runtime.frontiers import Frontiers
from asyncmon.runtime.gate import Gate
from asyncmon.runtime.hook_check import check_hooks
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.job_link import current_job
from asyncmon.runtime.observation import Observers
from asyncmon.runtime.open_sources import OpenSources
from asyncmon.runtime.opening import Opening
from asyncmon.runtime.program import peek_with_step
from asyncmon.runtime.protocols import CreatorMembers, SessionMembers
from asyncmon.runtime.record_keeper import RecordKeeper
from asyncmon.runtime.recoverable import Recoverable
from asyncmon.runtime.recovery import Recovery
from asyncmon.runtime.run_names import name_for
from asyncmon.runtime.saves import Saves
from asyncmon.runtime.session_statistics import Statistics
from asyncmon.runtime.session_tasks import SessionTasks
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.watch import RunWatch
from asyncmon.system.cancellation import current_task
from asyncmon.system.members import members_of


class Parts(NamedTuple):
    """What a session consists of. All but the raw session and its layers live as long as it does."""

    hooks: HookSet
    stops: StopControl
    gate: Gate
    """The state of the session, the run lock and pauses."""
    stateful: StatefulObjects
    opening: Opening
    sessions: Recoverable
    """The raw session in use, with its layers."""
    frontiers: Frontiers
    watch: RunWatch
    closing: Closing
    statistics: Statistics


def session_parts(
    creator: Any,
    hooks: Iterable[Any] | None,
    grace: float,
    recovery: Recovery | None,
    signals: Literal["auto"] | None,
    interrupt: bool,
    step_secs: float | None = None,
    name: str | None = None,
) -> Parts:
    """Return the parts of a new session. Arguments are those of ``MonitoredSession``."""
    recovery = Recovery() if recovery is None else recovery
    checked, job = check_hooks(hooks), current_job.get()
    if job is not None:
        checked, signals = (*checked, *job.hooks()), None
    found, stateful = HookSet(checked), StatefulObjects()
    observers = found.observers
    observers.name = name_for(name, found.hooks)
    stops = StopControl(grace, getattr(recovery, "errors", ()), interrupt, step_secs)
    stops.scopes.current.owner = observers
    stops.shutdown.is_counted = job is None
    stops.describe = partial(describe_call, stops.scopes, found)
    gate, sources = Gate(stops), OpenSources(stops)
    saves = Saves(observers, stops.scopes, stateful)
    opening = Opening(creator, found, stops, gate, stateful, saves, recovery, signals)
    sessions = Recoverable(opening.create, recovery, stops, gate.lock, observers, stateful)
    observers.runs_here = partial(_runs_here, gate, observers)
    tasks = SessionTasks(sessions, stops, observers)
    of_data = DataParts(
        stateful, sessions, stops, sources, found.can_save, saves.on_committed, tasks, peek_with_step
    )
    frontiers = Frontiers(of_data)
    sessions.on_open, opening.add_channel = frontiers.reopened, frontiers.add_channel
    watch = RunWatch(stops, sessions.progress, stops.describe)
    is_chief = members_of(CreatorMembers, creator).is_chief
    observers.record = record = RecordKeeper(observers, gate, stops, saves)
    record.job = None if job is None else dict(job.record)
    closing = Closing(
        gate, found, sessions, stops, saves, sources, opening.undo, is_chief, record, tasks
    )
    closing.on_close += [watch.end, record.changed, frontiers.stop]
    stops.shutdown.unsaved, stops.save_secs = closing.unsaved, saves.secs
    statistics = Statistics(
        gate, found, sessions, stops, watch, saves, tasks.running, frontiers.pipelines
    )
    closing.on_release += [  # the statistics first: they are those of the end
        one.release
        for one in (statistics, observers, found, saves, sessions, stops, opening, frontiers)
    ]
    return Parts(found, stops, gate, stateful, opening, sessions, frontiers, watch, closing, statistics)


def _runs_here(gate: Gate, observers: Observers) -> bool:
    """Return whether the calling task holds the run lock, or the calling thread computes a step."""
    if (task := current_task()) is not None:
        return gate.lock.holder is task
    computing = members_of(SessionMembers, observers.raw).computing
    return computing is not None and get_ident() in computing()
