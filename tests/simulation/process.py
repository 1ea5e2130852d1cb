"""A simulated process: its tasks, its life, and its remains."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextvars import Context
from math import inf
from typing import Any

from asyncmon.graph.core.graph import Graph
from asyncmon.runtime.stop.process_end import ProcessShutdown, process_shutdown
from asyncmon.session_config import default_inline_ms
from asyncmon.system.background_worker import new_worker
from asyncmon.system.clock import thread_clock
from asyncmon.system.files import run_sync
from asyncmon.system.process_local import process_values
from asyncmon.system.signals import SignalHandlers
from tests.simulation.loop import SimulationLoop, simulated

Main = Callable[[], Awaitable[Any]]

_CLOSES = 50  # GeneratorExit is raised at as many awaits of a coroutine that catches it


class LoopWorker:
    """A :class:`~asyncmon.system.background_worker.Worker` whose jobs are events of the loop."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self._later: asyncio.TimerHandle | None = None
        self._fn: Callable[[], object] | None = None

    def call_later(self, secs: float, fn: Callable[[], object]) -> None:
        self._fn = fn
        self._later = self._loop.call_later(secs, self._run)

    def hurry(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = self._loop.call_later(0, self._run)

    async def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await self._loop.run_in_executor(None, fn, *args)

    def submit(self, fn: Callable[..., object], *args: Any) -> Any:
        raise AssertionError("a simulated process has no exit handlers")

    def shutdown(self) -> None:
        if self._later is not None:
            self._later.cancel()

    def _run(self) -> None:
        fn, self._fn, self._later = self._fn, None, None
        if fn is not None:
            self._loop.run_in_executor(None, fn)


class Process:
    """One life of a process, from its start to its end or its death.

    Attributes:
        name: the name of the process.
        loop: the loop of the simulation.
        locals: the values of the process, see :mod:`asyncmon.system.process_local`.
        clock_offset: seconds by which its wall clock is wrong.
        is_dead: whether it was killed. None of its code runs again.
        task: the task of its main function.
        ended: the time of its end.
        blocked: seconds for which a disk has blocked the last call in a thread.
        crash: cuts the power of its machine.
        end: ends the process by a signal.
    """

    def __init__(self, name: str, main: Main, loop: SimulationLoop, clock_offset: float) -> None:
        self.name = name
        self.loop = loop
        self.locals: dict[Any, Any] = {
            thread_clock: loop,
            run_sync: loop.run_sync,
            new_worker: lambda _: LoopWorker(loop),
            default_inline_ms: inf,  # else the choice of a thread depends on measured times
        }
        self.clock_offset = clock_offset
        self.is_dead = False
        self.ended = 0.0
        self.blocked = 0.0
        self.crash: Callable[[], None]
        self.end: Callable[[], None]
        self._is_suspended = False
        self._kept: list[Any] = []
        self._lost: list[asyncio.Task[Any]] = []
        self.context = Context()
        self.context.run(simulated.set, self)
        self.context.run(process_values.set, self.locals)
        self._main = main
        shutdown = self.locals[process_shutdown] = ProcessShutdown()
        shutdown.handlers = _Handlers(shutdown._handle, lambda: self.end())
        self.task: asyncio.Task[Any]

    def start(self) -> None:
        """Start its main function."""
        name = f"main of {self.name}"
        self.task = self.loop.create_task(self._run(), name=name, context=self.context.copy())

    @property
    def is_running(self) -> bool:
        """Whether callbacks of the process are executed."""
        return not (self.is_dead or self._is_suspended)

    def keep(self, handle: Any) -> None:
        """Keep a callback for later; a dead process drops it."""
        if not self.is_dead:
            self._kept.append(handle)

    def suspend(self) -> None:
        """Stop executing callbacks. As after SIGSTOP, sockets and the clock continue."""
        self._is_suspended = True

    def resume(self) -> None:
        """Execute the callbacks of the meantime, and continue."""
        self._is_suspended = False
        self.loop._ready.extend(self._kept)
        self._kept.clear()

    def kill(self) -> None:
        """End at once, without executing any more code."""
        self.is_dead = True
        self.locals[process_shutdown].loops.add(self.loop)  # no report of sessions that it left open
        self._kept.clear()
        for task in self.tasks():
            self.lose(task)

    def lose(self, task: asyncio.Task[Any]) -> None:
        """Keep a task of the dead process until its coroutine is closed."""
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own
        self._lost.append(task)

    def terminate(self) -> None:
        """Deliver SIGTERM: to the open sessions, else it ends the process."""
        shutdown: ProcessShutdown = self.locals[process_shutdown]
        if isinstance(shutdown.handlers, _Handlers) and shutdown.handlers.installed:
            self.context.copy().run(shutdown.handlers.receive)
        else:
            self.end()

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the pending tasks of this process."""
        return self.loop.tasks_of(self)

    def dispose(self) -> None:
        """Close the coroutines of a dead process, which run their ``finally`` without any effect."""
        asyncio._set_running_loop(self.loop)
        for task in self._lost:  # which grows
            coro = task.get_coro()
            for _ in range(_CLOSES):
                try:
                    self.context.copy().run(coro.close)
                except BaseException:  # of its finally; it awaits again after "ignored GeneratorExit"
                    continue
                break
        asyncio._set_running_loop(None)

    async def _run(self) -> Any:
        with Graph().as_default():
            return await self._main()


class _Handlers(SignalHandlers):
    """Handlers of simulated signals, while there are any."""

    def __init__(self, on_signal: Callable[[int, str, object], None], end: Callable[[], None]) -> None:
        super().__init__(on_signal)
        self.installed = False
        self._end = end

    def install(self) -> None:
        self.installed = True

    def restore(self) -> None:
        self.installed = False

    def has(self, number: int) -> bool:
        return self.installed

    def act_by_default(self, number: int, frame: object) -> None:
        self._end()

    def receive(self) -> None:
        """Handle a SIGTERM."""
        self._on_signal(signal.SIGTERM, "SIGTERM", None)
