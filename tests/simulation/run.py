"""Run programs in a simulation: its processes, and the actions on them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Any

from asyncmon.distributed.transport import transport
from asyncmon.system.cancellation import running_loop
from asyncmon.system.files import system_calls
from tests.simulation.actions import Action, Event, Faults, crash, start
from tests.simulation.disk import Disk
from tests.simulation.files import SimulatedFiles
from tests.simulation.loop import SimulationLoop
from tests.simulation.network import Link, Network, SimulatedTransport, current_process
from tests.simulation.process import Main, Process

_STOP_SECS = 60.0  # for services to end
_LINES = 60  # of the log in an error


@dataclass
class Report:
    """What happened in a simulation. The reports of two equal runs are equal, except for the disk.

    Attributes:
        seed: the seed, which repeats it exactly.
        results: what the programs returned, by name.
        ends: the virtual times of their ends.
        log: the events, one line each.
        secs: the virtual duration.
        messages: the number of messages on the network.
        digest: a number that is equal for two runs with the same messages at the same times.
        disk: the files.
    """

    seed: int
    results: dict[str, Any] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    secs: float = 0.0
    messages: int = 0
    digest: int = 0
    disk: Disk = field(default_factory=Disk, compare=False)


class SimulationError(AssertionError):
    """A program of a simulation did not end in time, or left something behind."""


def simulate(
    programs: Mapping[str, Main],
    schedule: Iterable[Event] = (),
    *,
    seed: int = 0,
    faults: Faults | None = None,
    services: Mapping[str, Main] | None = None,
    disk: Disk | None = None,
    deadline_secs: float = 3600.0,
) -> Report:
    """Run programs as processes of a simulated cluster, in virtual time and in memory.

    Each program is an ``async def`` function, which is called in a process of its own: it has its own
    default graph, servers, clock and file locks. ``Server`` and ``"grpc://..."`` use the network of the
    simulation, with any host names; checkpoints and event files are on its disk, at any path. Faults
    come from the schedule, from the seed, and from :func:`inject`.

    The simulation ends when all programs have ended, and none is to be started again. A program that
    was killed for good has no result. Then the services are cancelled.

    Args:
        programs: the programs by the names of their processes.
        schedule: what happens when: ``at(2.0, kill("ps/0", restart_secs=1.0))``.
        seed: decides the delays of messages, what a crash keeps, random identifiers, and ``faults``.
            The same seed repeats a run exactly.
        faults: random faults. Default: none.
        services: programs that do not end by themselves, such as parameter servers.
        disk: the files. Default: an empty disk.
        deadline_secs: the longest duration, in virtual seconds.

    Returns:
        The report of the run.

    Raises:
        SimulationError: a program did not end in time, a service did not end within 60 s after it was
            cancelled, or a process left a task or an open file behind.
        Exception: that of a program or service. This and the first have the seed and the end of the
            log in a note.
        RuntimeError: an event loop is running in this thread.

    Example::

        report = simulate({"train": train}, [at(30, crash("train", restart_secs=5))], seed=7)
    """
    if not programs:
        raise ValueError("simulate() needs a program.")
    if running_loop() is not None:
        raise RuntimeError(
            "An event loop is running in this thread. Call simulate() from a plain function: it runs "
            "a loop of its own."
        )
    report = Report(seed, disk=Disk() if disk is None else disk)
    with _collected_afterwards():  # by then this frame refers to no object of the simulation
        _simulate(report, programs, services or {}, schedule, faults, deadline_secs)
    return report


def _simulate(
    report: Report,
    programs: Mapping[str, Main],
    services: Mapping[str, Main],
    schedule: Iterable[Event],
    faults: Faults | None,
    deadline_secs: float,
) -> None:
    loop = SimulationLoop(f"{report.seed}.{report.disk.runs}")
    report.disk.runs += 1
    mains = {**services, **programs}
    world = World(loop, mains, report.disk)
    try:
        if faults is not None:
            world.add_faults(faults.events(str(report.seed), sorted(mains)), services)
        loop.run_until_complete(_run(world, report, programs, services, schedule, deadline_secs))
    except Exception as error:
        lines = "\n".join(report.log[-_LINES:])
        error.add_note(f"Simulation with seed {report.seed}, {report.secs:g} s:\n{lines}")
        raise
    finally:
        with _quiet():
            _dispose(world)
            loop.close()


def inject(action: Action) -> None:
    """Execute an action now. For a program of a simulation, or for its hooks.

    RuntimeError if the caller is not part of a simulation.
    """
    world: World = current_process().locals["world"]
    world.do(action)


async def _run(
    world: World,
    report: Report,
    programs: Mapping[str, Main],
    services: Mapping[str, Main],
    schedule: Iterable[Event],
    deadline_secs: float,
) -> None:
    report.log = world.log
    for event in schedule:
        world.schedule(event.time, event.action)
    for name in (*services, *programs):
        world.start(name)
    try:
        async with asyncio.timeout(deadline_secs):
            while not all(map(world.is_over, programs)):
                world.raise_if_failed()
                world.changed.clear()
                await world.changed.wait()
        for name in services:
            await _stop(world.current[name])
        world.raise_if_failed()
        left = [what for process in world.lives if not process.is_dead for what in _left(process)]
        if left:
            raise SimulationError("left behind:\n" + "\n".join(f"  {what}" for what in left))
        for name in programs:
            process = world.current[name]
            if not process.is_dead:
                report.results[name] = process.task.result()
                report.ends[name] = process.ended
    except TimeoutError:
        late = [name for name in programs if not world.is_over(name)]
        raise SimulationError(f"{', '.join(late)} did not end within {deadline_secs:g} s.") from None
    finally:
        report.secs, report.messages = world.loop.time(), world.network.sent
        report.digest = world.network.digest


def _left(process: Process) -> list[str]:
    """Return descriptions of the tasks and open files that a process has left."""
    tasks = [f"{process.name}: task {task!r}" for task in process.tasks()]
    return tasks + [f"{process.name}: open file {path}" for path in files_of(process).open_paths()]


async def _stop(process: Process) -> None:
    """Cancel a service, as Ctrl-C does, and wait for its end."""
    if process.is_dead or process.task.done():
        return
    process.task.cancel()
    done, _ = await asyncio.wait([process.task], timeout=_STOP_SECS)
    if not done:
        raise SimulationError(f"{process.name} did not end within {_STOP_SECS:g} s.")


@contextlib.contextmanager
def _collected_afterwards() -> Iterator[None]:
    """Collect garbage after the block, because finalizers would run at any time during it."""
    collects = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        with _quiet():
            gc.collect()
        gc.unfreeze()
        if collects:
            gc.enable()


def _dispose(world: World) -> None:
    """End the processes that are left, without executing more of their code than ``finally``."""
    for process in world.lives:
        if not process.is_dead:
            process.kill()
    world.loop.set_exception_handler(lambda _loop, _context: None)
    for process in world.lives:
        process.dispose()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ignore errors and warnings of the coroutines of dead processes."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _error: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = before


# --- the running simulation -----------------------------------------------------------------------
class World:
    """The processes of a simulation by name, with their network.

    Attributes:
        log: the lines of the log.
        lives: all processes that were started, in order.
        current: the current or last life of each.
        changed: set when a process ends, or is started again.
    """

    def __init__(self, loop: SimulationLoop, mains: Mapping[str, Main], disk: Disk) -> None:
        self.loop = loop
        self.log: list[str] = []
        self.lives: list[Process] = []
        self.network = Network(loop, self.note)
        self.disk = disk
        self._mains = mains
        self.current: dict[str, Process] = {}
        self._offsets: dict[str, float] = {}
        self._disturbances: list[Mapping[str, Any]] = []
        self._starts: Counter[str | None] = Counter()  # that are scheduled
        self.changed = asyncio.Event()

    def note(self, text: str) -> None:
        """Add a line to the log."""
        self.log.append(f"{self.loop.time():10.4f} s  {text}")

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
        if name in self.current and not self.has_ended(name):
            return
        process = Process(name, self._mains[name], self.loop, self._offsets.get(name, 0.0))
        process.locals["world"] = self
        process.locals[system_calls] = SimulatedFiles(self.disk, process)
        process.crash = lambda: self.do(crash(name))
        process.end = lambda: self.end(name, False, None)
        process.locals[transport] = SimulatedTransport(self.network, process)
        self.current[name] = process
        self.lives.append(process)
        self.network.start_of(process)
        process.start()
        process.task.add_done_callback(lambda _task: self._ended(process), context=Context())

    def has_ended(self, name: str) -> bool:
        """Return whether a process has ended or is dead."""
        process = self.current[name]
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
            process = self.current[name]
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
            self.current[name].terminate()
        if restart_secs is not None:
            self.schedule(restart_secs, start(name))

    def suspend(self, name: str, secs: float) -> None:
        """Suspend a process for some time."""
        process = self.current[name]
        if process.is_running and not self.has_ended(name):
            process.suspend()
            self.network.suspended(process)
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
        self.current[name].clock_offset = offset

    def crash_at_write(self, name: str, changes: int, restart_secs: float | None) -> None:
        """Crash a machine in the midst of its file calls."""
        process = self.current[name]
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
