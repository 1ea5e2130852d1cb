"""The running simulation: its processes, and the actions on them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from dataclasses import replace
from typing import Any

from asyncmon.distributed.transport import transport
from asyncmon.system.files import system_calls
from asyncmon.testing.simulation.actions import Action, Event, crash, start
from asyncmon.testing.simulation.disk import Disk
from asyncmon.testing.simulation.files import SimulatedFiles
from asyncmon.testing.simulation.loop import SimulationLoop
from asyncmon.testing.simulation.network import Link, Network
from asyncmon.testing.simulation.process import Main, Process


class World:
    """The processes of a simulation by name, with their network.

    Attributes:
        log: the lines of the log.
        lives: all processes that were started, in order.
        changed: set when a process ends, or is started again.
    """

    def __init__(self, loop: SimulationLoop, mains: Mapping[str, Main], disk: Disk) -> None:
        self.loop = loop
        self.log: list[str] = []
        self.lives: list[Process] = []
        self.network = Network(loop, self.note)
        self.disk = disk
        self._mains = mains
        self._current: dict[str, Process] = {}
        self._offsets: dict[str, float] = {}
        self._disturbances: list[Mapping[str, Any]] = []
        self._starts: Counter[str | None] = Counter()  # that are scheduled
        self.changed = asyncio.Event()

    def note(self, text: str) -> None:
        """Add a line to the log."""
        self.log.append(f"{self.loop.time():10.4f} s  {text}")

    def process(self, name: str) -> Process:
        """Return the current or last life of a process."""
        return self._current[name]

    def do(self, action: Action) -> None:
        """Execute an action now."""
        self.note(action.text)
        action.apply(self)

    def schedule(self, secs: float, action: Action) -> None:
        """Execute an action after some time."""
        self._starts[action.name] += action.starts
        self.later(secs, self._due, action)

    def add_faults(self, events: Iterable[Event], services: Iterable[str]) -> None:
        """Schedule random faults. Those of services happen only while all programs run."""
        programs = self._mains.keys() - set(services)

        def do(action: Action) -> None:
            if action.name in programs or not any(map(self.is_over, programs)):
                self.do(action)

        for event in events:
            self.later(event.time, do, event.action)

    def _due(self, action: Action) -> None:
        self._starts[action.name] -= action.starts
        self.do(action)
        self.changed.set()

    def start(self, name: str) -> None:
        """Start a process, unless it runs."""
        if name in self._current and not self.has_ended(name):
            return
        process = Process(name, self._mains[name], self.loop, self._offsets.get(name, 0.0))
        process.locals["world"] = self
        process.locals[system_calls] = SimulatedFiles(self.disk, process)
        process.crash = lambda: self.do(crash(name))
        process.end = lambda: self.end(name, False, None)
        process.locals[transport] = self.network.transport_of(process)
        self._current[name] = process
        self.lives.append(process)
        self.network.start_of(process)
        process.start()
        process.task.add_done_callback(lambda _task: self._ended(process), context=Context())

    def has_ended(self, name: str) -> bool:
        """Return whether a process has ended or is dead."""
        process = self._current[name]
        return process.is_dead or process.task.done()

    def is_over(self, name: str) -> bool:
        """Return whether a process has ended or is dead, and is not started again."""
        return self.has_ended(name) and not self._starts[name]

    def raise_if_failed(self) -> None:
        """Raise the first error of a process."""
        for process in self.lives:
            if not process.is_dead and process.task.done() and not process.task.cancelled():
                process.task.result()

    def end(self, name: str, power: bool, restart_secs: float | None) -> None:
        """Kill a process, or cut the power of its machine."""
        if not self.has_ended(name):
            process = self._current[name]
            process.kill()
            self.network.end_of(process, silent=power)
            files_of(process).release()
            if power:
                self.disk.crash(name, self.loop.random)
            self.changed.set()
        if restart_secs is not None:
            self.schedule(restart_secs, start(name))

    def terminate(self, name: str, restart_secs: float | None) -> None:
        """Send SIGTERM to a process."""
        if not self.has_ended(name):
            self._current[name].terminate()
        if restart_secs is not None:
            self.schedule(restart_secs, start(name))

    def suspend(self, name: str, secs: float) -> None:
        """Suspend a process for some time."""
        process = self._current[name]
        if process.is_running and not self.has_ended(name):
            process.suspend()
            self.later(secs, self._resume, process)

    def cut(self, some: frozenset[str], others: frozenset[str] | None, secs: float) -> None:
        """Lose the messages between processes."""
        if others is None:
            others = frozenset(self._mains.keys() - some)
        heal = self.network.cut(some, others)
        self._end_later(secs, f"{', '.join(sorted(some))} can be reached again", heal)

    def jump(self, name: str, secs: float) -> None:
        """Move the wall clock of a machine."""
        offset = self._offsets[name] = self._offsets.get(name, 0.0) + secs
        self._current[name].clock_offset = offset

    def crash_at_write(self, name: str, changes: int, restart_secs: float | None) -> None:
        """Crash a machine in the midst of its file calls."""
        process = self._current[name]
        files_of(process).crash_in = changes
        process.crash = lambda: self.do(crash(name, restart_secs))

    def fill(self, free: int, secs: float) -> None:
        """Leave some bytes free for some time."""
        self.disk.free = free

        self._end_later(secs, "the disk has room again", lambda: setattr(self.disk, "free", None))

    def slow(self, call_secs: float, secs: float) -> None:
        """Slow file calls down for some time."""
        self.disk.call_secs = call_secs

        self._end_later(secs, "file calls are fast again", lambda: setattr(self.disk, "call_secs", 0.0))

    def disturb(self, secs: float, rates: Mapping[str, Any]) -> None:
        """Change the network for some time."""
        self._disturbances.append(rates)
        self._set_link()

        def end() -> None:
            self._disturbances.remove(rates)
            self._set_link()

        self._end_later(secs, f"messages: the end of {', '.join(rates)}", end)

    def _set_link(self) -> None:
        link = Link()
        for rates in self._disturbances:
            link = replace(link, **rates)
        self.network.link = link

    def _end_later(self, secs: float, text: str, end: Callable[[], object]) -> None:
        def do() -> None:
            self.note(text)
            end()

        self.later(secs, do)

    def later(self, secs: float, do: Any, *args: Any) -> None:
        """Call a function after some time, outside of all processes."""
        self.loop.call_later(secs, do, *args, context=Context())

    def _resume(self, process: Process) -> None:
        if not process.is_dead:
            self.note(f"{process.name} continues")
            process.resume()

    def _ended(self, process: Process) -> None:
        if process.is_dead:
            return
        process.ended = self.loop.time()
        if process.task.cancelled():
            found = "was cancelled"
        elif (error := process.task.exception()) is not None:
            found = f"failed: {error!r}"
        else:
            found = "ended"
        self.note(f"{process.name} {found}")
        self.network.end_of(process, silent=False)
        self.changed.set()


def files_of(process: Process) -> SimulatedFiles:
    """Return the file calls of a process."""
    found: SimulatedFiles = process.locals[system_calls]
    return found
