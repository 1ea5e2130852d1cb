"""A simulated process: its tasks, its life, and what is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

from asyncmon.graph.core.graph import Graph
from asyncmon.system.process import SimulatedProcess, simulated
from asyncmon.testing.simulation.loop import SimulationLoop

Main = Callable[[], Awaitable[Any]]

_CLOSES = 50  # GeneratorExit is raised at as many awaits of a coroutine that catches it


class Process(SimulatedProcess):
    """One life of a process, from its start to its end or its death.

    Attributes:
        name: the name of the process.
        loop: the loop of the simulation.
        clock_offset: seconds by which its wall clock is wrong.
        is_dead: whether it was killed. None of its code runs again.
        task: the task of its main function.
        ended: the time of its end.
        blocked: seconds for which a disk has blocked the last call in a thread.
        crash: cuts the power of its machine.
    """

    loop: SimulationLoop

    def __init__(self, name: str, main: Main, loop: SimulationLoop, clock_offset: float) -> None:
        super().__init__(loop)
        self.name = name
        self.clock_offset = clock_offset
        self.is_dead = False
        self.ended = 0.0
        self.blocked = 0.0
        self.crash: Callable[[], None]
        self._is_suspended = False
        self._kept: list[Any] = []
        self._lost: list[asyncio.Task[Any]] = []
        self.context = Context()
        self.context.run(simulated.set, self)
        self._main = main
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
        self._kept.clear()
        self._lost = self.tasks()
        for task in self._lost:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the pending tasks of this process."""
        return self.loop.tasks_of(self)

    def dispose(self) -> None:
        """Close the coroutines of a dead process, which run their ``finally`` without any effect."""
        for task in self._lost:
            coro = task.get_coro()
            for _ in range(_CLOSES):
                try:
                    self.context.copy().run(coro.close)
                except BaseException:  # of its finally; it awaits again after "ignored GeneratorExit"
                    continue
                break

    async def _run(self) -> Any:
        with Graph().as_default():
            return await self._main()
