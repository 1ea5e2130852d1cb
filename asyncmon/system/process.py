"""State that exists once in each process.

A simulation (:mod:`asyncmon.testing`) runs several processes in one event loop. Each of them has its
own value of every :class:`ProcessLocal`, and loses it when it ends.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SimulatedProcess:
    """A process of a simulation. Its tasks, timers and calls in threads have it in their context.

    Attributes:
        loop: the event loop of the simulation.
        locals: the values of this process.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.locals: dict[Any, Any] = {}


simulated: ContextVar[SimulatedProcess | None] = ContextVar("asyncmon_process", default=None)
"""The simulated process of the current task; None in a real process."""


class ProcessLocal(Generic[T]):
    """A value of each process, made at its first use.

    Args:
        make: makes the value of a process.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[Any, T] = {}  # of the real process

    def get(self) -> T:
        """Return the value of this process."""
        process = simulated.get()
        values = self._values if process is None else process.locals
        if self not in values:
            values.setdefault(self, self._make())  # atomic, as threads may make one each
        return values[self]

    def set(self, value: T) -> None:
        """Replace the value of this process."""
        process = simulated.get()
        (self._values if process is None else process.locals)[self] = value
