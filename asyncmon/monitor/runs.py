"""The table of runs: their ids, their rows, and the tasks that read them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from asyncmon.monitor import media
from asyncmon.monitor.encoding import members
from asyncmon.monitor.log_directory import LogDirectory
from asyncmon.monitor.quota import Quota
from asyncmon.monitor.run import Run
from asyncmon.monitor.run_directory import RunDirectory
from asyncmon.system import clock

logger = logging.getLogger(__name__)

_EARLY_SECS = 0.02  # a run due within this time is read now, not at the next tick


@dataclass(slots=True, eq=False)
class Entry:
    """A run in the table, and the task that reads it.

    ``name`` is that of the run, with a number appended if another run has the same name.
    """

    id: str
    name: str
    run: Run
    source: LogDirectory | None = None  # None: added by name
    reading: asyncio.Task[None] | None = None
    due: float = 0.0
    fails: bool = False

    def row(self) -> dict[str, Any]:
        """Return the row of the run for the API."""
        facts = members(self.run.status())
        return {"id": self.id, "name": self.name, "kind": self.run.kind, **facts}


class Runs:
    """The runs of a monitor, added and removed at any time. ``app.state.runs``.

    Args:
        runs: a session, a run, the path of a log directory, or several: a list of them, or a mapping
            of names to them.

    Example::

        app = am.monitor.create_app([])
        app.state.runs.add("digits", session)
    """

    def __init__(self, runs: Any) -> None:
        self.changes = 0
        """The number of additions and removals."""
        self._entries: dict[str, Entry] = {}
        self.quota = Quota()
        self._media_quota = Quota(media.MOST_BYTES_IN_ALL_RUNS)
        self._directories: list[LogDirectory] = []
        self._hidden: set[str] = set()  # the paths of runs that were removed
        self._scan_due = 0.0
        self._fails = False
        self._scanning: asyncio.Task[None] | None = None
        if isinstance(runs, Mapping):
            for name, run in runs.items():
                self.add(name, run)
        elif isinstance(runs, list | tuple):
            for run in runs:
                self.add(None, run)
        else:
            self.add(None, runs)

    def add(self, name: str | None, run: Any) -> str:
        """Add a session, opened or not, a run, or the path of a log directory; return its id.

        A closed session stays in the table until :meth:`remove`, or until another one is added under
        its name, as by a service that opens a session in each lifespan: the new one takes its place
        and its id. A log directory has no id, only the runs in it have: the result is the empty string.

        Raises:
            TypeError: ``run`` is none of these.
        """
        if isinstance(run, str | os.PathLike):
            self._directories.append(LogDirectory(run, name))
            self._scan_due = 0.0
            return ""
        new = _as_run(name, run)
        for entry in self:
            closed = entry.run.kind == "live" and entry.run.status().state == "closed"
            if closed and entry.run.name == new.name:
                self._drop(entry)
                new.scalars.broken = True  # viewers load its points again
                break
        self._scan_due = 0.0  # its directories have no rows of their own any more
        return self._insert(new, None)

    def remove(self, name: str) -> None:
        """Remove the run of this id or name from the table. Its training is not affected.

        The run of a directory does not come back while the monitor runs. Its files stay. The metrics of
        a session leave their registry, unless another session adds to them.

        Raises:
            KeyError: there is none.
        """
        for entry in list(self._entries.values()):
            if name in (entry.id, entry.name, entry.run.name):
                self._drop(entry)
                if isinstance(entry.run, RunDirectory):
                    self._hidden.add(entry.run.path)
                forget = getattr(entry.run, "forget", None)
                if forget is not None:
                    forget()
                return
        raise KeyError(f"There is no run {name!r}; there are: {sorted(self._entries)}.")

    def _insert(self, run: Run, source: LogDirectory | None) -> str:
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", run.name).strip("-")[:80] or "run"
        given = _unused(slug, "{}-{}", self._entries)
        name = _unused(run.name, "{} ({})", [entry.name for entry in self])
        self._entries[given] = Entry(given, name, run, source)
        run.scalars.join(self.quota)
        run.media.join(self._media_quota)
        self.changes += 1
        return given

    def _drop(self, entry: Entry) -> None:
        del self._entries[entry.id]
        entry.run.scalars.leave()
        entry.run.media.leave()
        self.changes += 1
        if entry.reading is not None:
            entry.reading.cancel()

    def __getitem__(self, run_id: str) -> Entry:
        return self._entries[run_id]

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def id_of(self, observers: Any) -> str | None:
        """Return the id of the session with these observers; None if it is not in the table."""
        found = (e.id for e in self if getattr(e.run, "observers", None) is observers)
        return None if observers is None else next(found, None)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all runs."""
        return [entry.row() for entry in self]

    def start_reading(self, entries: Iterable[Entry]) -> list[asyncio.Task[None]]:
        """Start reading the runs that are due; return the reading tasks."""
        now = clock.monotonic() + _EARLY_SECS
        tasks = []
        if self._directories and self._scanning is None and now >= self._scan_due:
            self._scanning = asyncio.create_task(self._scan(), name="monitor, log directories")
        if self._scanning is not None:
            tasks.append(self._scanning)
        for entry in entries:
            if entry.reading is None and now >= entry.due:
                name = f"monitor, {entry.run.name}"
                entry.reading = asyncio.create_task(self._read(entry), name=name)
            if entry.reading is not None:
                tasks.append(entry.reading)
        return tasks

    async def read(self, secs: float, entry: Entry | None = None) -> None:
        """Read one run or all; after ``secs`` return, while slower reads continue."""
        for _ in range(2):  # the first pass scans for runs, the second one reads them
            scanning = self._directories and clock.monotonic() >= self._scan_due
            tasks = self.start_reading(self if entry is None else [entry])
            if tasks:
                await asyncio.wait(tasks, timeout=secs)
            if not scanning or entry is not None:
                return

    async def _read(self, entry: Entry) -> None:
        entry.due = clock.monotonic() + entry.run.poll_secs
        try:
            await entry.run.refresh()
            entry.fails = False
        except Exception:
            if not entry.fails:
                logger.exception("The monitor cannot read the run %r.", entry.run.name)
            entry.fails = True  # logged once
        finally:
            entry.reading = None

    async def _scan(self) -> None:
        try:
            for directory in self._directories:
                shown = self._hidden | {path for entry in self for path in _directories_of(entry.run)}
                found = [run for run in await directory.scan() if run.path not in shown]
                here: dict[Run, Entry] = {e.run: e for e in self if e.source is directory}
                for new in found:
                    if new not in here:
                        self._insert(new, directory)
                for run, entry in here.items():
                    if run not in found:
                        self._drop(entry)
        except Exception:
            if not self._fails:
                logger.exception("The monitor cannot list a log directory.")
            self._fails = True  # logged once
        else:
            self._fails = False
        finally:
            self._scanning = None
            self._scan_due = clock.monotonic() + 5.0

    async def close(self) -> None:
        """Cancel the reading tasks, and close the runs that have a ``close``."""
        tasks = [entry.reading for entry in self if entry.reading is not None]
        if self._scanning is not None:
            tasks.append(self._scanning)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for entry in self:
            close = getattr(entry.run, "close", None)
            if close is not None:
                await close()


def _unused(name: str, numbered: str, used: Container[str]) -> str:
    """Return a name, with a number appended if it is in use."""
    found, number = name, 1
    while found in used:
        number += 1
        found = numbered.format(name, number)
    return found


def _directories_of(run: Run) -> Iterable[str]:
    directories = getattr(run, "directories", None)
    return () if directories is None else directories()


def _as_run(name: str | None, given: Any) -> Run:
    """Return a run unchanged, and a session as a :class:`LiveRun`."""
    if hasattr(given, "refresh") and hasattr(given, "scalars"):
        run: Run = given
        return run
    from asyncmon.monitor.live_run import LiveRun  # a monitor of directories needs less of the runtime

    return LiveRun(name, given)
