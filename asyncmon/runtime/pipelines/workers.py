"""The workers of a pipeline: tasks of the loop, and those outside of it that have leases."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from asyncmon.runtime.data_parts import DataParts
from asyncmon.runtime.pipelines.item import Item
from asyncmon.runtime.pipelines.lease import Lease
from asyncmon.runtime.pipelines.policy import Policy, Versions
from asyncmon.runtime.pipelines.work import Work
from asyncmon.runtime.tasks import Task
from asyncmon.system.cancellation import is_unrequested
from asyncmon.system.functions import is_coroutine_function, qualified_name
from asyncmon.system.loop_budget import LoopBudget


@runtime_checkable
class Executor(Protocol):
    """Workers of another kind than tasks of the loop, in the place of a pipeline's function."""

    async def serve(self, pipeline: Any) -> None:
        """Make the calls of a pipeline, by ``lease`` and ``complete``, until this is cancelled.

        An error of this stops the session. An attribute ``name`` is that of its pipelines by default.
        """


class Workers:
    """The workers of one pipeline.

    Args:
        fn: the function, an :class:`Executor` or None.
        name: of the pipeline.
        work: has the calls to make.
        versions: of the learner.
        parts: of the session.
        finished: is called after each call that may have changed what the learner waits for.
        failed: is called with an error that stops the session, and its place.

    Raises:
        TypeError: ``fn`` is something else.
    """

    def __init__(
        self,
        fn: Any,
        work: Work,
        versions: Versions,
        parts: DataParts,
        finished: Callable[[], None],
        failed: Callable[[BaseException, str], None],
    ) -> None:
        self._executor = fn if isinstance(fn, Executor) else None
        self._fn: Callable[..., Awaitable[Any]] | None = None if self._executor else fn
        if self._fn is not None and not is_coroutine_function(self._fn):
            remedy = (
                "It yields: return the results of an element as one value."
                if inspect.isasyncgenfunction(fn)
                else "For a blocking function write one that awaits asyncio.to_thread(fn, element)."
            )
            raise TypeError(
                "produce() takes an `async def` function, an object with `async def serve(pipeline)`, "
                f"or None, got {fn!r}. {remedy}"
            )
        self.name: str = getattr(self._executor, "name", "pipeline")
        """The name of the function."""
        if self._fn is not None:
            self.name = qualified_name(fn).rsplit(".", 1)[-1]
        self._takes_policy = self._fn is not None and takes_policy(self._fn)
        self._work = work
        self._versions = versions
        self._parts = parts
        self._finished = finished
        self._failed = failed
        self._is_open = False
        self.has_failed = False
        """Whether an error waits to be raised in the body: no further call begins."""
        #   fill() gives the next leases of the work, first to the _lessees, which wait in lease(), then
        #   to tasks of the loop: _idle ones, which take less than new ones. A task has its lease in
        #   _starting until it begins: calls begin in the order of the elements.
        self._starting: dict[Task, Lease] = {}
        self._idle: deque[tuple[Task, asyncio.Future[Lease | None]]] = deque()
        self._lessees: deque[asyncio.Future[Lease | None]] = deque()

    def begin(self, pipeline: Any) -> None:
        """Begin to make calls."""
        self._is_open = True
        if self._executor is not None:
            self._parts.tasks.start(self._execute, pipeline, name=f"workers of {pipeline.name}")

    async def _execute(self, pipeline: Any) -> None:
        assert self._executor is not None, "this is its task"
        await self._executor.serve(pipeline)
        if self._is_open:  # else the learner would wait for ever
            raise RuntimeError(
                f"serve() of {self._executor!r} has ended before the session stops. It must make calls "
                "until `await pipeline.lease()` returns None."
            )

    def stop(self) -> None:
        """Make no more calls: the session stops. Its tasks are cancelled."""
        self._is_open = False
        self.rest()
        for lessee in self._lessees:
            if not lessee.done():
                lessee.set_result(None)
        self._lessees.clear()
        self._work.stop()

    def close(self) -> None:
        """End all leases: no result counts any more."""
        for lease in list(self._work.leases):
            self._work.release(lease)

    def rest(self) -> None:
        """End the idle tasks: there is no call to make for now."""
        idle, self._idle = self._idle, deque()
        for _, woken in idle:
            if not woken.done():
                woken.set_result(None)

    def fill(self) -> None:
        """Start calls while there are permits."""
        lessees = self._lessees
        while lessees and lessees[0].done():  # cancelled
            lessees.popleft()
        while lessees and (lease := self._next()) is not None:
            lessees.popleft().set_result(lease)
            while lessees and lessees[0].done():
                lessees.popleft()
        if self._fn is not None:
            while (lease := self._next()) is not None:
                lease.task = task = self._wake(lease) or self._start(lease)
                self._starting[task] = lease

    def _wake(self, lease: Lease) -> Task | None:
        """Give a lease to an idle task."""
        while self._idle:
            task, woken = self._idle.popleft()
            if not woken.done():  # else cancelled
                woken.set_result(lease)
                return task
        return None

    def _start(self, lease: Lease) -> Task:
        task = self._parts.tasks.start(self._serve, lease, name=f"worker of {self.name}")
        task.add_done_callback(self._worker_ended)
        return task

    def _worker_ended(self, task: Task) -> None:
        lease = self._starting.pop(task, None)
        if lease is not None:  # cancelled before it began
            self._work.release(lease)
        self.fill()

    def _next(self) -> Lease | None:
        # None in a recovery: the present version is not known.
        if not self._is_open or self.has_failed or self._parts.recoveries.current is None:
            return None
        return self._work.next()

    # -- tasks of the loop

    async def _serve(self, lease: Lease | None) -> None:
        """Make calls in this task as long as there are permits."""
        task, budget = asyncio.current_task(), LoopBudget.of_running_loop()
        assert task is not None, "it runs in a task of its own"
        while lease is not None:
            self._starting.pop(task, None)
            lease.task, iteration = task, budget.iteration()
            try:
                value = await self.call(lease.item, lease.policy)
            except asyncio.CancelledError as cancelled:
                if not is_unrequested():
                    self._work.release(lease)
                    raise
                error = RuntimeError(f"{self.name} raised a CancelledError, and was not cancelled.")
                error.__cause__ = cancelled
                self.fail(lease, error)
            except Exception as error:
                self.fail(lease, error)
            except BaseException:
                self._work.release(lease)
                raise
            else:
                if self._work.complete(lease, value):
                    self._finished()
            if budget.spent() and budget.iteration() == iteration:  # by calls that wait for nothing
                await budget.pause()
            lease = None if self._starting else self._next()
            if lease is None:
                lease = await self._wait(task)

    async def _wait(self, task: Task) -> Lease | None:
        if not self._is_open:
            return None
        woken: asyncio.Future[Lease | None] = asyncio.get_running_loop().create_future()
        self._idle.append((task, woken))
        if self._starting:  # calls begin in the order of the elements: this one after them
            self.fill()
            if woken.done():
                await asyncio.sleep(0)
        return await woken

    def call(self, item: Item, policy: Policy) -> Awaitable[Any]:
        """Call the function with an element."""
        assert self._fn is not None, "there are calls in this loop"
        return self._fn(item.element, policy) if self._takes_policy else self._fn(item.element)

    async def call_again(self, item: Item) -> Any:
        """Return the value of an item whose calls have failed, by calls in this task or leases."""
        if not isinstance(item.value, list):
            return await self._again(item, None)
        return [await self._again(item, member) for member in range(len(item.value))]

    async def _again(self, item: Item, member: int | None) -> Any:
        if self._fn is not None:
            return await self.call(item, Policy(self._versions))
        if not self._is_open:  # the session stops
            assert item.error is not None, "its value is made again for that"
            raise item.error
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._work.again.append((item, member, answer))
        self.fill()
        return await answer

    # -- workers with leases

    async def lease(self) -> Lease | None:
        """Wait for a call to make. See ``Pipeline.lease``."""
        if not self._lessees and (lease := self._next()) is not None:
            return lease
        if self._parts.stops.is_over() is not None:
            return None
        lessee: asyncio.Future[Lease | None] = asyncio.get_running_loop().create_future()
        self._lessees.append(lessee)
        try:
            return await lessee
        except asyncio.CancelledError:
            if lessee.done() and not lessee.cancelled() and (lease := lessee.result()) is not None:
                self.release(lease)
            raise

    def complete(self, lease: Lease, value: Any) -> bool:
        """End a lease with a result. Return whether it was wanted."""
        is_wanted = self._work.complete(lease, value)
        if is_wanted:
            self._finished()
        self.fill()
        return is_wanted

    def fail(self, lease: Lease, error: Exception) -> bool:
        """End a lease with an error. Return whether its result was wanted."""
        is_wanted = lease.is_open
        fatal = self._work.fail(lease, error)
        if fatal is not None:
            self._failed(fatal, f"{self.name}, element {lease.ordinal}")
        elif is_wanted:
            self._finished()
            self.fill()
        return is_wanted

    def release(self, lease: Lease) -> bool:
        """End a lease without a result. Return whether it was wanted."""
        is_wanted = self._work.release(lease)
        self.fill()
        return is_wanted


def takes_policy(fn: Callable[..., Any]) -> bool:
    """Return whether a function takes the policy as its second argument."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:  # of an extension module
        return False
    positional = [
        one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    second = positional[1:2]
    return any(one.default is one.empty or one.name == "policy" for one in second)
