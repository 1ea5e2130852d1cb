"""Run programs in a simulation."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from asyncmon.system.cancellation import running_loop
from asyncmon.testing.simulation.actions import Action, Event
from asyncmon.testing.simulation.disk import Disk
from asyncmon.testing.simulation.faults import Faults
from asyncmon.testing.simulation.loop import SimulationLoop
from asyncmon.testing.simulation.network import current_process
from asyncmon.testing.simulation.process import Main, Process
from asyncmon.testing.simulation.world import World, files_of

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

    Raises:
        RuntimeError: the caller is not part of a simulation.
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
            await _stop(world.process(name))
        world.raise_if_failed()
        left = [what for process in world.lives if not process.is_dead for what in _left(process)]
        if left:
            raise SimulationError("left behind:\n" + "\n".join(f"  {what}" for what in left))
        for name in programs:
            process = world.process(name)
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
