"""The event loop of a simulation: virtual time, ordered threads, processes that stop at any await."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, ContextVar
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from asyncmon.testing.virtual_time import VirtualTimeLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CALL_SECS = 20e-6  # of each reading of the clock of computations

simulated: ContextVar[Any] = ContextVar("simulated", default=None)
"""The process of the current task, a :class:`.process.Process`. None outside of all of them."""


class SimulationLoop(VirtualTimeLoop):
    """A loop whose order of events depends on a seed only.

    Calls in threads are executed in the loop's thread, as events of their own. Callbacks of a process
    that is suspended wait until it continues, and those of a process that has died are dropped.

    Attributes:
        random: the source of all random decisions.
    """

    def __init__(self, seed: str) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self._ready: deque[Any] = _Ready()
        self._tasks = 0
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # it needs a method
        self._others: WeakKeyDictionary[asyncio.Task[Any], Any] = WeakKeyDictionary()

    def wall_time(self) -> float:
        """Return the wall time of the current process, whose clock may have jumped."""
        return super().wall_time() + getattr(simulated.get(), "clock_offset", 0.0)

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes. :func:`asyncmon.system.clock.random_bytes` uses it."""
        return self.random.randbytes(count)

    def cpu_time(self) -> float:
        """Return the time of computations. Each call takes 20 µs, so that a loop of them advances."""
        self.spend(_CALL_SECS)
        return self.time()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Call a function later, in this thread. No other event happens during the call."""
        process = simulated.get()
        if process is None:
            return super().run_in_executor(executor, func, *args)
        future: asyncio.Future[T] = self.create_future()
        self.call_later(self.random.uniform(0, 2e-4), self._call, future, func, *args)
        return future

    async def run_sync(
        self, func: Callable[[*Ts], T], *args: *Ts, abandon_on_cancel: bool = False
    ) -> T:
        """Call a function, see :data:`asyncmon.system.files.run_sync`."""
        return await self.run_in_executor(None, func, *args)

    def in_flight(self) -> list[str]:
        """Return nothing: a simulation does not wait for threads and connections."""
        return []

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback, and note the process of a task that the task factory did not make."""
        task = getattr(callback, "__self__", None)
        if isinstance(task, asyncio.Task) and type(task) is not SimulatedTask:
            self._others[task] = simulated.get() if context is None else context.get(simulated)
        return super().call_soon(callback, *args, context=context)

    def tasks_of(self, process: Any) -> list[asyncio.Task[Any]]:
        """Return the pending tasks of a process, in the order of their creation."""
        every = asyncio.all_tasks(self)
        found = [one for one in every if getattr(one, "process", self._others.get(one)) is process]
        return sorted(found, key=hash)

    def _call(self, future: asyncio.Future[T], func: Callable[[*Ts], T], *args: *Ts) -> None:
        if future.cancelled():
            return
        process: Any = simulated.get()
        process.blocked = 0.0
        asyncio._set_running_loop(None)  # as in a thread
        error: BaseException | None = None
        try:
            result = func(*args)
        except StopIteration as stopped:  # a future refuses it
            error = RuntimeError(f"{func!r} raised StopIteration.")
            error.__cause__ = stopped
        except BaseException as raised:
            error = raised
        finally:
            asyncio._set_running_loop(self)

        def done() -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        if process.blocked:
            self.call_later(process.blocked, done)
        else:
            done()

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        self._tasks += 1
        task = SimulatedTask(self._tasks, coro, loop=loop, **options)
        if getattr(task.process, "is_dead", False):  # its coroutines are closed, and make this one
            task.process.lose(task)  # type: ignore[union-attr]  # dead, so not None
        return task


class SimulatedTask(asyncio.Task[Any]):
    """A task of a process, whose place in a set does not depend on its address."""

    def __init__(self, number: int, *args: Any, context: Context | None = None, **options: Any) -> None:
        self._number = number
        self.process = simulated.get() if context is None else context.get(simulated)
        super().__init__(*args, context=context, **options)

    def __hash__(self) -> int:
        return self._number


class _Ready(deque[Any]):
    """The handles that the loop executes next. Those of stopped processes are kept back or dropped."""

    def popleft(self) -> Any:
        handle = super().popleft()
        context: Context | None = handle._context
        process: Any = None if context is None else context.get(simulated)
        if process is None or process.is_running:
            return handle
        process.keep(handle)
        return _NOTHING


class _Cancelled:
    _cancelled = True


_NOTHING = _Cancelled()
