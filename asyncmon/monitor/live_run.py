"""A run that is a monitored session of this process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from asyncmon.hooks.loop_lag import lag_percentiles, loop_lags
from asyncmon.monitor.media import Media
from asyncmon.monitor.run import (
    Action,
    ActionError,
    CheckpointFacts,
    Details,
    HookRow,
    LoopLag,
    Saving,
    Status,
    queues_of,
)
from asyncmon.monitor.run_directory import RunDirectory
from asyncmon.monitor.scalars import Scalars
from asyncmon.runtime import MonitoredSession, SingularMonitoredSession, Span
from asyncmon.runtime.session_state import SessionState
from asyncmon.runtime.session_statistics import HookStatistics
from asyncmon.system import clock
from asyncmon.system.error_text import phrase

logger = logging.getLogger(__name__)

LOOK_SECS = 10.0
"""Seconds after a :meth:`LiveRun.refresh` during which hooks are timed and lag is measured."""

RATE_SECS = 10.0
"""The window of the step rate, in seconds."""

_LAG_SECS = 0.05
_QUEUE_SECS = 2.0  # timeout of a query of the queues in another process


class LiveRun:
    """A monitored session of this process, also before it is opened and after it is closed.

    Its scalars come from the event writers of its hooks' directories. Earlier ones, before the
    first :meth:`refresh`, are read from the directories once, checkpoints whenever they change. Hooks
    are timed and lag is measured from a :meth:`refresh` until :data:`LOOK_SECS` after the last one, so
    that a step without viewers costs nothing.

    Args:
        name: the name that is shown. None: that of the session.
        session: a session of this process; actions require that it belongs to this event loop.

    Example::

        run = LiveRun("digits", session)
        await run.refresh()
        print(run.status().eta_secs)
    """

    kind: Literal["live"] = "live"
    poll_secs = 1.0

    def __init__(self, name: str | None, session: MonitoredSession | SingularMonitoredSession) -> None:
        if not callable(getattr(session, "statistics", None)):
            raise TypeError(
                f"A session, a run, or the path of a log directory is expected, got {session!r}."
            )
        self._name = name
        self.scalars = Scalars()
        self.media = Media()
        self._session = session
        self._directories: dict[str, RunDirectory] = {}  # by their real paths
        self._labels: list[str] = []  # of the hooks whose directories are known
        self._progress: deque[tuple[float, int]] = deque()  # steps at times of the loop's clock
        self._changed: float | None = None  # time of the last change of the step
        self._times = _HookTimes()
        self._lags: deque[float] = deque(maxlen=round(60 / _LAG_SECS))
        self._looked = 0.0
        self._measuring: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The name that is shown."""
        return self._name or self._session.name

    # -- reading

    async def refresh(self) -> None:
        """Time hooks from now on, and read the directories of the hooks."""
        self._look()
        self._find_directories()
        for directory in self._directories.values():
            await directory.refresh()

    def _look(self) -> None:
        self._looked = clock.monotonic()
        if self._measuring is None and self._session.state is not SessionState.CLOSED:
            self._measuring = asyncio.create_task(self._measure(), name=f"monitor, lag, {self.name}")
            self._measuring.add_done_callback(self._measured)

    async def _measure(self) -> None:
        remove = self._session.observe(self._times)
        try:
            async for lag in loop_lags(_LAG_SECS):
                self._lags.append(lag)
                looks = clock.monotonic() < self._looked + LOOK_SECS
                if not looks or self._session.state is SessionState.CLOSED:
                    break
        finally:
            remove()

    def _measured(self, task: asyncio.Task[None]) -> None:
        self._measuring = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("The lag of %r is not measured any more.", self.name, exc_info=error)

    async def close(self) -> None:
        """Stop measuring. The next :meth:`refresh` starts it again."""
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.wait([self._measuring])

    @property
    def observers(self) -> object:
        """The observers of the session, which its log lines are known by."""
        return self._session._hooks.observers

    def directories(self) -> Collection[str]:
        """The real paths of the directories that the hooks of the session write."""
        self._find_directories()
        return self._directories

    def forget(self) -> None:
        """Remove the metrics of the session, as the run leaves its table for good."""
        metrics = sys.modules.get("asyncmon.monitor.metrics")  # it needs an extra
        if metrics is not None:
            metrics.remove_of(self._session)

    def _find_directories(self) -> None:
        hooks = self._session.statistics().hooks
        labels = [one.label for one in hooks]
        if labels == self._labels:
            return
        self._labels = labels
        written = [one.output_dir for one in hooks if one.output_dir is not None and not one.saves]
        checkpoints = [one.output_dir for one in hooks if one.output_dir is not None and one.saves]
        paths = [os.path.realpath(path) for path in (*written, *checkpoints)]
        main = paths[0] if paths else ""
        for path in paths:
            if path not in self._directories:
                prefix = _prefix(path, main) if path in paths[: len(written)] else ""
                self._directories[path] = RunDirectory(
                    path, scalars=self.scalars, media=self.media, prefix=prefix, live=True
                )

    # -- status and details

    def status(self) -> Status:
        session = self._session
        files = [directory.status() for directory in self._directories.values()]
        step = session.global_step
        if step is None:
            step = max((one.step for one in files if one.step is not None), default=None)
        rate, last = self._rate(step), session.last_step
        eta = max(last - step, 0) / rate if rate and last is not None and step is not None else None
        changes = [self._changed, *[one.updated for one in files]]
        found, record = session.statistics(), session.outcome
        error = None if record is None else record.error
        if found.last_error is not None:
            error = phrase(found.last_error)
        elif error is None and found.last_save_error is not None:  # the next save tries again
            error = f"A save failed: {found.last_save_error}"
        return Status(
            state=session.state.value,
            step=step,
            rate=rate,
            eta_secs=eta,
            last_step=last,
            stop_reason=session.stop_reason,
            stop_cause=None if found.stop is None else str(found.stop.cause),
            last_error=error,
            outcome=record.state if record is not None and record.is_final else None,
            metrics=None if record is None else record.metrics,
            paused=session.paused,
            started=session.started,
            updated=max((time for time in changes if time is not None), default=None),
        )

    @property
    def config(self) -> Mapping[str, Any]:
        """The hyperparameters in the event files."""
        found: dict[str, Any] = {}
        for directory in self._directories.values():
            found.update(directory.config)
        return found

    def _is_open(self) -> bool:
        return self._session.state is SessionState.OPEN

    def _rate(self, step: int | None) -> float | None:
        now, progress = clock.monotonic(), self._progress
        if step is None or not self._is_open() or self._session.paused:
            progress.clear()
            return None
        if progress and step != progress[-1][1]:
            self._changed = clock.wall()
            if step < progress[-1][1]:  # a recovery
                progress.clear()
        progress.append((now, step))
        while len(progress) > 2 and progress[1][0] <= now - RATE_SECS:
            progress.popleft()
        secs = now - progress[0][0]
        return (step - progress[0][1]) / secs if secs > 0 else None

    async def details(self) -> Details:
        self._find_directories()
        found = self._session.statistics()
        saves = [span for span in found.open_spans if span.kind == "save"]
        checkpoints = [await directory.details() for directory in self._directories.values()]
        return Details(
            hooks=tuple(self._times.row(one) for one in found.hooks),
            checkpoints=_joined(one.checkpoints for one in checkpoints),
            tasks=found.tasks,
            timers=found.timers,
            loop_lag=LoopLag(**lag_percentiles(self._lags)) if self._lags else None,
            queues=await queues_of(self._session, _QUEUE_SECS),
            pipelines=found.pipelines,
            saving=_saving(saves[0]) if saves else None,
            recoveries=found.recoveries,
        )

    # -- actions

    async def act(self, action: Action, reason: str | None) -> Mapping[str, Any]:
        session = self._session
        if not self._is_open() and (action, session.state) != ("stop", SessionState.OPENING):
            raise ActionError(f"{self.name!r} cannot {action}: the session is {session.state.value}.")
        try:
            if action == "save":
                return {"path": await session.save()}
            if action == "stop":
                session.request_stop(reason or "the monitor requested a stop")
            elif action == "pause":
                session.pause(reason or "the monitor requested a pause")
            else:
                session.resume()
        except Exception as error:
            raise ActionError(f"{self.name!r} cannot {action}: {phrase(error)}") from error
        return {}

    async def verify(self) -> tuple[CheckpointFacts, ...]:
        self._find_directories()
        return _joined([await directory.verify() for directory in self._directories.values()])

    async def detach(self, hook: str) -> None:
        for one in self._session.statistics().hooks:
            if one.label == hook:
                try:
                    await self._session.detach(one.hook)
                except Exception as error:
                    text = f"The hook {hook!r} failed when it was detached: {phrase(error)}"
                    raise ActionError(text) from error
                return
        raise KeyError(hook)


@dataclass(slots=True)
class _Times:
    calls: int = 0
    total_secs: float = 0.0


class _HookTimes:
    """Observes the time that ``before_run`` and ``after_run`` take, by hook, and counts runs."""

    def __init__(self) -> None:
        self._runs = 0
        self._times: dict[str, _Times] = {}

    def began(self, span: Span) -> None:
        """Do nothing: spans are counted when they end."""

    def ended(self, span: Span) -> None:
        if span.kind == "run":
            self._runs += 1
        elif span.attributes.get("method") in ("before_run", "after_run"):
            assert span.ended is not None, "it has ended"
            times = self._times.setdefault(span.attributes["hook"], _Times())
            times.calls += 1
            times.total_secs += span.ended - span.started

    def row(self, one: HookStatistics) -> HookRow:
        """Return the row of a hook."""
        times = self._times.get(one.label) or _Times()
        return HookRow(
            id=one.label,
            name=one.label,
            calls=times.calls,
            secs_per_step=times.total_secs / self._runs if self._runs else None,
            total_secs=times.total_secs,
            failures=one.failures,
            last_error=one.last_error,
            priority=one.priority,
        )


def _saving(span: Span) -> Saving:
    started = clock.wall() - (clock.monotonic() - span.started)
    return Saving(path=span.name, step=span.attributes["step"], started=started)


def _prefix(path: str, main: str) -> str:
    """Return the prefix of a directory's tags, relative to the main directory of the run."""
    if path == main:
        return ""
    below = os.path.relpath(path, main)
    return (os.path.basename(path) if below.startswith(os.pardir) else below.replace(os.sep, "/")) + "/"


def _joined(rows: Iterable[tuple[CheckpointFacts, ...]]) -> tuple[CheckpointFacts, ...]:
    found = itertools.chain.from_iterable(rows)
    return tuple(sorted(found, key=lambda row: (row.saved or 0.0, row.step or 0), reverse=True))
