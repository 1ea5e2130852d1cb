"""How a plan is executed: inline or in a worker, in whose turn, interrupted by what."""

from __future__ import annotations

import asyncio
import contextvars
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from math import inf
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from asyncmon.errors import DeadlineExceededError
from asyncmon.fair_lock import FairLock
from asyncmon.graph.execution.commit import commit
from asyncmon.graph.execution.pace import TooLong
from asyncmon.graph.execution.plan import execute_checked
from asyncmon.graph.execution.prompt import PATIENCE, run_promptly
from asyncmon.graph.execution.run_state import Run
from asyncmon.graph.execution.state import Changes
from asyncmon.graph.execution.waiting import outlast
from asyncmon.graph.execution.worker import Worker, suits
from asyncmon.graph.kernels.parallel import CORES, split_products, team_seconds, using_team
from asyncmon.graph.kernels.team import Team
from asyncmon.loop_budget import LoopBudget
from asyncmon.run_options import check_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncmon.graph.execution.plan import Instruction, Plan, Program
    from asyncmon.graph.execution.stages import Stage
    from asyncmon.graph.execution.state import Pin, StateStore
    from asyncmon.run_options import RunMetadata, RunOptions, SessionConfig

__all__ = ["Runner"]

T = TypeVar("T")


class Runner:
    """Executes plans for one session.

    Attributes:
        limit: seconds; a plan that takes less on average runs inline.
        budget: that of the event loop that uses the session.
    """

    def __init__(self, store: StateStore, config: SessionConfig) -> None:
        self._store = store
        self._config = config
        self.limit = config.inline_ms / 1000
        self.budget: LoopBudget | None = None
        self._process = os.getpid()
        self._lock = FairLock()
        self._pool: ThreadPoolExecutor | None = None
        self._stepper: Worker | None = None
        self._team = Team((config.intra_op_parallelism_threads or CORES) - 1, "asyncmon-session-help")
        self._runs: set[Run] = set()
        self._holder: Run | None = None  # whose turn it is to change the state
        self._busy = 0  # workers that may be applying a commit
        self._resources: dict[Any, Any] = {}
        self._idle: asyncio.Future[None] | None = None

    def serve(self, budget: LoopBudget) -> None:
        """Belong to the event loop of this budget from now on.

        Raises:
            RuntimeError: another event loop, which is still running, uses the session.
        """
        if self.budget is not None and self.budget.is_of_running_loop():
            raise RuntimeError(
                "This session is being used by another event loop, which is still running. Make a "
                "session in each loop, or send the work to the loop of this one: "
                "asyncio.run_coroutine_threadsafe(session.run(...), loop)."
            )
        self.budget = budget

    def is_inline(self, plan: Plan, size: int) -> bool:
        """Whether a plan is short, as far as is known, and nothing in it waits."""
        waits = plan.prelude is not None or plan.stage is not None or self._store.broken is not None
        return not waits and plan.pace.is_short(self.limit, size)

    def is_free(self, plan: Plan) -> bool:
        """Whether an inline run may go ahead: nobody's turn is taken, nothing is being applied."""
        return not self._busy and not (self._lock.held and plan.locks)

    def is_prompt(self, plan: Plan, size: int) -> bool:
        """Whether what a plan waits for is worth a try at once, without a task."""
        for stage in (plan.prelude, plan.stage):
            if stage is not None and not stage.prompt:
                return False
        waits = plan.waits and self._store.broken is None
        return waits and plan.pace.is_short(self.limit, size)

    def run_promptly(self, plan: Plan, fed: Sequence[Any], size: int) -> list[Any] | None:
        """Execute a plan in one go, or return None, with nothing done: it would have to wait."""
        return run_promptly(plan, self._store, self._resources, fed, self.limit, size)

    async def run(
        self,
        plan: Plan,
        fed: Sequence[Any],
        options: RunOptions | None,
        metadata: RunMetadata | None,
        *,
        peek: bool = False,
    ) -> list[Any]:
        """Execute a plan in any case: waiting, in a worker, with a deadline, traced."""
        if self._store.broken is not None:
            raise self._store.broken
        check_options(options, metadata)
        program = plan.for_shapes(fed)
        run = self._begin()
        run.fed = plan.size(fed)
        start = perf_counter()
        try:
            if options is not None and metadata is not None and options.trace_level:
                run.trace, run.started = [], start
            if options is not None and options.timeout_in_ms > 0:
                run.deadline = asyncio.get_running_loop().call_later(
                    options.timeout_in_ms / 1000,
                    run.abort,
                    DeadlineExceededError(f"The run took longer than {options.timeout_in_ms} ms."),
                )
            registers = plan.start(fed)
            if plan.prelude is not None:
                await plan.prelude.run(run, registers, self._compute)
            results = await (
                self._run_in_turn(plan, program, run, registers)
                if plan.locks and not peek
                else self._run_on_version(plan, program, run, registers)
            )
            if run.trace is not None and metadata is not None:
                metadata.nodes[:] = run.trace  # a caller may pass one object to run after run
                metadata.duration = perf_counter() - start
            return results
        finally:
            self._end(run)

    async def load(self, values: Callable[[], list[tuple[str, Any]]]) -> None:
        """Replace values by name in a turn of its own; they are computed in a worker."""
        run = self._begin()
        try:
            await self._take_turn(run)
            try:
                new = await self._in_worker(values, run.abort)
                if run.error is not None:
                    raise run.error
                changes = [(self._store.slot(name), value) for name, value in new]
                self._store.publish(Changes(changes))
            finally:
                self._give_turn()
        finally:
            self._end(run)

    def serve_here(self) -> None:
        """Belong to the running event loop. Raises what :meth:`serve` does."""
        budget = LoopBudget.of_running_loop()
        if budget is not self.budget:
            self.serve(budget)

    async def close(self, error: Exception) -> None:
        """End all runs and threads."""
        for resource in self._resources.values():
            resource.session_closed()  # first, so that who waits there is told what was cancelled
        for run in tuple(self._runs):
            run.abort(error)
        cancelled = None
        if self._runs:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            cancelled = await outlast(self._idle)
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
        if self._stepper is not None:
            self._stepper.close()
            self._stepper = None
        self._team.close()
        self._resources.clear()
        try:
            if cancelled is not None:
                raise cancelled
        finally:
            del cancelled

    def pending_operations(self) -> list[str]:
        """Return the names of the operations that runs under way wait for."""
        nodes = [node for run in self._runs for node in run.waiting.values()]
        return sorted({node.op.name for node in nodes if node.op is not None})

    def check_outside(self) -> None:
        """Refuse to be closed by a function of a run: each would wait for the other's end.

        Raises:
            RuntimeError: this is called in a task that a run waits for, or by another event loop than
                that of the runs under way.
        """
        if self._runs:
            self.serve_here()
        task = asyncio.current_task()
        if any(task in run.waiting for run in self._runs):
            raise RuntimeError(
                "A function of a run called close() of its own session, which waits for that run. "
                "Close the session after the run."
            )

    # One run, after what it waits for without looking at the state.

    def _begin(self) -> Run:
        self.serve_here()
        run = Run(self._resources, self._store.values[0])
        run.interrupt = asyncio.get_running_loop().create_future()
        run.compute = self._compute
        self._runs.add(run)
        return run

    def _end(self, run: Run) -> None:
        if run.deadline is not None:
            run.deadline.cancel()
        self._runs.discard(run)
        run.settle()
        if not self._runs and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _take_turn(self, run: Run) -> None:
        """Wait for the turn to change the state."""
        if self._holder is not None and asyncio.current_task() in self._holder.waiting:
            raise RuntimeError(
                "A function of a run that is changing the state asked its session for another such "
                "run, which would wait for the first one to end. Let the function depend on no "
                "variable and no random number: it is awaited before the turn then. Or have it "
                "change nothing."
            )
        turn = self._lock.ask()
        try:
            await run.wait(turn)
        except BaseException:
            self._lock.withdraw(turn)
            raise
        self._holder = run

    def _give_turn(self) -> None:
        self._holder = None
        self._lock.release()

    async def _run_in_turn(
        self, plan: Plan, program: Program, run: Run, registers: list[Any]
    ) -> list[Any]:
        await self._take_turn(run)
        try:
            return await self._finish(plan, program, run, registers, self._store.values, changes=True)
        finally:
            self._give_turn()

    async def _run_on_version(
        self, plan: Plan, program: Program, run: Run, registers: list[Any]
    ) -> list[Any]:
        pin = await self._pin(plan, run)
        try:
            return await self._finish(plan, program, run, registers, pin.values, changes=False)
        finally:
            self._store.unpin(pin)

    async def _pin(self, plan: Plan, run: Run) -> Pin:
        slots = (0, *[read.slot for read in plan.reads])
        if self._busy:
            self._store.note_read(slots)
        pinned = self._store.pinned(lambda pin: pin, slots)
        try:
            return await run.wait(pinned)
        except BaseException:
            if not pinned.cancel():
                self._store.unpin(pinned.result())
            raise

    async def _finish(
        self,
        plan: Plan,
        program: Program,
        run: Run,
        registers: list[Any],
        values: Any,
        *,
        changes: bool,
    ) -> list[Any]:
        store = self._store
        run.random_state = values[0]
        plan.load(registers, values)
        if plan.stage is not None:
            await plan.stage.run(run, registers, self._compute)

        def work(clock: Callable[[], float] = perf_counter) -> list[Any]:
            start = clock()
            arena = store.take_arena()
            try:
                program.place(arena, registers)
                with split_products() if program.heavy else nullcontext():
                    execute_checked(program.code, registers, run)
                    results = plan.results(registers)  # before an update changes what was read
                    if run.error is not None:
                        raise run.error
                    if changes:
                        with np.errstate(all="ignore"):
                            commit(plan, store, registers, run)
            finally:
                store.give_arena(arena)
            run.committed = True
            plan.pace.took(clock() - start + team_seconds(), self.limit, run.fed)
            return results

        if run.deadline is None and plan.pace.is_short(self.limit, run.fed):
            budget = LoopBudget.of_running_loop()
            if budget.spent():
                turn = asyncio.ensure_future(budget.pause())
                try:
                    await run.wait(turn)
                finally:
                    turn.cancel()
            kept = registers.copy() if plan.can_begin_anew and run.trace is None else None
            run.until = perf_counter() + PATIENCE * self.limit if kept is not None else inf
            try:
                return work()
            except TooLong:
                assert kept is not None, "there is no end to its time otherwise"
                registers[:] = kept
            finally:
                run.until = inf
            plan.pace.overran(self.limit)
        # Of this thread alone: the loop's would not wait for others to let go of the interpreter.
        in_worker = work if plan.foreign else partial(work, thread_time)

        def with_team() -> list[Any]:
            with using_team(self._team):
                return in_worker()

        self._busy += changes
        try:
            return await self._in_worker(with_team, run.abort, step=changes)
        finally:
            self._busy -= changes

    async def _compute(
        self, stage: Stage, code: list[Instruction], registers: list[Any], run: Run
    ) -> None:
        """Compute what leads to awaited nodes."""

        def work() -> None:
            start = perf_counter()
            execute_checked(code, registers, run)
            stage.pace.took(perf_counter() - start, self.limit, run.fed)

        if run.deadline is None and stage.pace.is_short(self.limit, run.fed):
            work()
        else:
            await self._in_worker(work, run.abort)

    async def _in_worker(
        self,
        work: Callable[[], T],
        on_cancel: Callable[[asyncio.CancelledError], None],
        *,
        step: bool = False,
    ) -> T:
        """Call a function in a worker. A cancelled caller still sees it end, then is cancelled.

        Steps, one of which runs at a time, always have the same worker: the caches of its core know
        what they need.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "This session was made in another process, and a fork takes no threads along. Make a "
                "session in the process that runs it."
            )
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._config.workers, "asyncmon-session")
        loop = asyncio.get_running_loop()
        if step and suits(loop):
            self._stepper = self._stepper or Worker("asyncmon-session-steps")
            return await self._stepper.start(work).outcome(on_cancel)
        future = loop.run_in_executor(self._pool, contextvars.copy_context().run, work)
        cancelled = await outlast(future, on_cancel)
        try:
            if cancelled is not None:
                future.exception()  # seen: the cancellation is what the caller gets
                raise cancelled
            return future.result()
        finally:
            del cancelled, future  # they refer to this frame by now, which would keep all arrays
