"""The execution of plans: inline or in a worker, under the lock, with interruption."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from time import perf_counter, thread_time
from typing import Any, TypeVar

import numpy as np

from asyncmon.errors import AbortedError, FailedPreconditionError
from asyncmon.graph.execution.memory import Arena
from asyncmon.graph.execution.plan import Plan, Program
from asyncmon.graph.execution.program import Instruction, Registers, execute
from asyncmon.graph.execution.run import Run, apply_options
from asyncmon.graph.execution.run_kernels import around_runs
from asyncmon.graph.execution.state import Pin, StateStore
from asyncmon.graph.execution.update import commit
from asyncmon.graph.numerics.parallel import CORES, Team, thread_clock, using_team, wall_clock
from asyncmon.protobuf.run_options import RunMetadata, RunOptions
from asyncmon.session_config import SessionConfig
from asyncmon.system.cancellation import completed, outlast
from asyncmon.system.cost import CostModel
from asyncmon.system.fair_lock import FairLock
from asyncmon.system.inside_step import awaits, inside_step
from asyncmon.system.loop_budget import LoopBudget
from asyncmon.system.session_threads import SessionThreads

T = TypeVar("T")

Begun = tuple[int | None, int | None]
"""The number of completed nodes of each of the two stages; None of a stage that was not begun."""
_NOT_BEGUN: Begun = (None, None)

_ARENAS = 2  # kept: a step and a peek run concurrently, seldom more


class Executor:
    """Executes plans for one session.

    Attributes:
        store: the state; ``resources`` are other objects of the session (queues), by name.
        limit: seconds; a plan that takes less on average runs inline.
        closed: whether :meth:`close` was called.
        ended: why the state has ended for all sessions that share it; "" if their session closes it.
    """

    def __init__(self, store: StateStore, config: SessionConfig) -> None:
        self.limit = config.inline_ms / 1000
        self.closed = False
        self.ended = ""
        self.store = store
        self.resources: dict[Any, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._budget: LoopBudget
        self._lock = FairLock()
        self._holder: Run | None = None
        self.team = Team((config.intra_op_parallelism_threads or CORES) - 1, "asyncmon-session-help")
        """The threads that help with large operations."""
        workers = config.inter_op_parallelism_threads or config.workers
        around = partial(using_team, self.team)
        self.threads = SessionThreads(workers, FailedPreconditionError, around)
        self._runs: set[Run] = set()
        self._busy = 0  # workers that may be in a commit
        self._arenas = deque[Arena](maxlen=_ARENAS)  # free ones
        self._ended: asyncio.Future[None] | None = None  # done when a run ends, while close() waits
        self._timeout_in_ms = config.operation_timeout_in_ms
        self._around, self._split = around_runs(config)

    async def run(
        self,
        plan: Plan,
        fed: Sequence[Any],
        options: RunOptions | None = None,
        metadata: RunMetadata | None = None,
        *,
        peek: bool = False,
    ) -> list[Any]:
        """Execute a plan, and return its results.

        Args:
            plan: the plan.
            fed: a value for each of its feeds.
            options: see :meth:`asyncmon.graph.Session.run`.
            metadata: likewise.
            peek: compute on the current version of the state, and change nothing.
        """
        self.check_open()
        program, budget = plan.for_shapes(fed), self.bind_loop()
        inline = plan.cost.is_short(self.limit, program.size)
        changes = plan.locks and not peek
        at_once = inline and options is None and metadata is None
        if at_once and budget.spent():
            await budget.pause()
            self.check_open()
        if at_once and not plan.waits and self._may_commit(changes):
            return self._run_at_once(plan, program, fed, changes)
        run, registers, begun = self._new_run(plan, program), plan.start(fed), _NOT_BEGUN
        if at_once and plan.waits and self._may_start(plan, changes):
            begun, results = self._start(plan, program, registers, run, changes)
            if results is not None:
                return results
        self._runs.add(run)
        try:
            if options is not None or metadata is not None or self._timeout_in_ms:
                apply_options(run, options, metadata, self._timeout_in_ms)
                inline = inline and run.deadline is None  # a timer cannot interrupt the loop's thread
            run.call = call = self._resume(plan, program, registers, run, changes, inline, begun)
            results = await call
            if run.trace is not None and metadata is not None:
                metadata.nodes[:] = run.trace  # a caller may pass one object to run after run
                metadata.duration = perf_counter() - run.started
            return results
        finally:
            self._end(run)

    def run_inline(self, plan: Plan, fed: Sequence[Any]) -> list[Any] | None:
        """Execute a short plan at once, or return None and do nothing if it would have to wait."""
        self.check_open()
        program, budget = plan.for_shapes(fed), self.bind_loop()
        if plan.waits or budget.spent() or not self._may_commit(plan.locks):
            return None
        if not plan.cost.is_short(self.limit, program.size):
            return None
        return self._run_at_once(plan, program, fed, plan.locks)

    def _run_at_once(
        self, plan: Plan, program: Program, fed: Sequence[Any], changes: bool
    ) -> list[Any]:
        registers = plan.start(fed)
        plan.load(registers, self.store.values)
        run = self._new_run(plan, program) if plan.uses_run else None
        return self._compute(plan, program, registers, run, changes=changes)

    async def repeat(self, plan: Plan, until: Callable[[], bool]) -> None:
        """Execute a plan without feeds, each time as a run of its own, until a condition is true.

        Runs that wait for nothing are made in a row, without a coroutine for each.
        """
        while not until():
            self.check_open()
            program, budget = plan.for_shapes(()), self.bind_loop()
            if budget.spent():
                await budget.pause()
                self.check_open()
            short = plan.cost.is_short(self.limit, program.size)
            if not (short and plan.waits and self._may_start(plan, plan.locks)):
                await self.run(plan, ())
                continue
            run, results = self._new_run(plan, program), None
            while True:
                registers, run.committed = plan.start(()), False
                run.drew.clear()
                begun, results = self._start(plan, program, registers, run, plan.locks)
                if results is None or budget.spent() or until():
                    break
            if results is None:
                self._runs.add(run)
                try:
                    await self._resume(plan, program, registers, run, plan.locks, True, begun)
                finally:
                    self._end(run)

    def _may_start(self, plan: Plan, changes: bool) -> bool:
        """Return whether awaited nodes may start before the run takes the lock or pins the state."""
        # else the rest of a stage could see another version of the state than its first nodes
        consistent = plan.stage is None or changes
        return consistent and not self._timeout_in_ms

    def _start(
        self, plan: Plan, program: Program, registers: Registers, run: Run, changes: bool
    ) -> tuple[Begun, list[Any] | None]:
        """Make a run with awaited nodes, until it suspends.

        Returns:
            What :meth:`_resume` needs to continue it, and the results; None of a run that suspended.
        """
        inputs, stage, store = plan.inputs, plan.stage, self.store
        done = staged = results = None
        try:
            if inputs is not None:
                done = inputs.start(run, registers, run.waiting)
            if (inputs is None or done == inputs.size) and self._may_commit(changes):
                if plan.reads or plan.random:
                    run.random_state = store.values[0]
                    plan.load(registers, store.values)
                if stage is not None:
                    staged = stage.start(run, registers, run.waiting)
                if stage is None or staged == stage.size:
                    if program.code or program.constants or changes:
                        results = self._compute(plan, program, registers, run, changes=changes)
                    else:
                        results, run.committed = plan.results(registers), True
        except BaseException:
            run.finish()
            raise
        if results is not None:
            run.finish()
        return (done, staged), results

    def _may_commit(self, changes: bool) -> bool:
        return not (self._busy or (changes and self._lock.held))

    def _new_run(self, plan: Plan, program: Program) -> Run:
        state, size, resources = self.store.values[0], program.size, plan.resources
        held = self.resources if resources is None else resources
        return Run(held, state, self._compute_stage, self._in_worker, size, self.limit)

    async def load(self, values: Callable[[], list[tuple[int, Any]]]) -> None:
        """Replace values by slot, under the lock. They are computed in a worker."""
        self.bind_loop()
        run = Run(self.resources, self.store.values[0])
        self._runs.add(run)
        try:
            await self._take_lock(run)
            try:
                new = await self._in_worker(values, run)
                run.check()
                self.store.publish(new)
            finally:
                self._release_lock()
        finally:
            self._end(run)

    def check_open(self) -> None:
        """Raise RuntimeError once the session is closed, InternalError once its state is broken.

        Raises:
            AbortedError: the state has ended, not the session.
        """
        if self.closed:
            if self.ended:
                raise AbortedError(self.ended)
            raise RuntimeError("Attempted to use a closed Session.")
        if self.store.broken is not None:
            raise self.store.broken

    def bind_loop(self) -> LoopBudget:
        """Bind to the running event loop, and return its budget.

        Raises:
            RuntimeError: another event loop, which is still running, uses the session.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None and self._loop.is_running():
                raise RuntimeError(
                    "This session is being used by another event loop, which is still running. Make a "
                    "session in each loop, or send the work to the loop of this one: "
                    "asyncio.run_coroutine_threadsafe(session.run(...), loop)."
                )
            self._loop, self._budget = loop, LoopBudget.of_running_loop()
        return self._budget

    async def close(self, error: Exception, only: dict[Any, Any] | None = None) -> None:
        """End all runs and threads; or, given the resources of one of several sessions, its runs.

        Raises:
            RuntimeError: a run waits for the task that calls this, or another event loop has the runs.
        """
        if self._runs:
            self.bind_loop()
        task = asyncio.current_task()
        if inside_step.get() in self._runs or any(task in run.waiting for run in self._runs):
            raise RuntimeError(
                "A function of a run called close() of its own session, which waits for that run. "
                "Close the session after the run."
            )
        self.closed = self.closed or only is None
        resources = self.resources if only is None else only
        for resource in resources.values():
            resource.session_closed()  # first: a node that waits for one raises its error
        ending = [run for run in self._runs if only is None or run.resources is only]
        for run in ending:
            run.abort(error)
        cancelled = None
        while not self._runs.isdisjoint(ending):
            self._ended = self._ended or asyncio.get_running_loop().create_future()
            cancelled = await outlast(self._ended) or cancelled
        if only is None:
            self.threads.close()
            self.team.close()
        resources.clear()
        try:
            if cancelled is not None:
                raise cancelled
        finally:
            del cancelled

    def pending_operations(self) -> list[str]:
        """Return the names of the operations that runs await."""
        return sorted({node.op.name for run in self._runs for node in run.waiting.values()})

    def inside(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether the calling code is part of a function of a run that a task awaits.

        With None, whether it is part of the run that holds the lock.
        """
        run, holder = inside_step.get(), self._holder
        if task is None:
            waiting = holder is not None and asyncio.current_task() in holder.waiting
            return waiting or (run is not None and run is holder)
        return isinstance(run, Run) and run in self._runs and awaits(task, run.call)

    def computing(self) -> tuple[int, ...]:
        """Return the threads that compute for runs, by their idents."""
        return self.threads.computing()

    def abandon(self) -> None:
        """Let runs return at once that a thread computes. They commit nothing, and no run follows."""
        for run in self._runs:
            run.abandoned = run.workers > 0
        self.threads.abandon()

    def _end(self, run: Run) -> None:
        self._runs.discard(run)
        run.finish()
        if self._ended is not None:
            self._ended.set_result(None)
            self._ended = None

    async def _take_lock(self, run: Run) -> None:
        """Wait for the lock of runs that change the state."""
        if self._lock.try_lock():
            self._holder = run
            return
        if self.inside(None):
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

    def _release_lock(self) -> None:
        self._holder = None
        self._lock.release()

    async def _resume(
        self,
        plan: Plan,
        program: Program,
        registers: Registers,
        run: Run,
        changes: bool,
        inline: bool,
        begun: Begun,
    ) -> list[Any]:
        """Execute a run, or the rest of one that was begun."""
        if plan.inputs is not None:
            await plan.inputs.run(run, registers, begun[0])
        if changes:
            await self._take_lock(run)
        try:
            return await self._finish(plan, program, registers, run, changes, inline, begun[1])
        finally:
            if changes:
                self._release_lock()

    async def _finish(
        self,
        plan: Plan,
        program: Program,
        registers: Registers,
        run: Run,
        changes: bool,
        inline: bool,
        done: int | None,
    ) -> list[Any]:
        """Execute the part that depends on the state."""
        if inline and not run.waiting and self._budget.spent():  # else it suspends anyway
            await run.pause(self._budget)
        is_stable = changes or not plan.reads or (inline and plan.stage is None and not self._busy)
        pin = None if is_stable else await self._pin(plan, run)
        try:
            values: Any = self.store.values if pin is None else pin.values
            run.random_state = values[0]
            plan.load(registers, values)
            if plan.stage is not None:
                await plan.stage.run(run, registers, done)
            compute = partial(self._compute, plan, program, registers, run, changes=changes)
            if inline:
                return compute(clock=thread_time if self._busy and not plan.foreign else perf_counter)
            work = partial(compute, clock=wall_clock if plan.foreign else thread_clock)
            self._busy += changes
            try:
                return await self._in_worker(work, run, step=changes)
            finally:
                if not run.abandoned:  # else its thread may still be in the commit
                    self._busy -= changes
        finally:
            if pin is not None:
                self.store.unpin(pin)

    async def _pin(self, plan: Plan, run: Run) -> Pin:
        slots = (0, *[read.slot for read in plan.reads])
        if self._busy:
            self.store.note_read(slots)
        pinned = self.store.pinned(lambda pin: pin, slots)
        try:
            return await run.wait(pinned)
        except BaseException:
            if not pinned.cancel():
                self.store.unpin(pinned.result())
            raise

    @np.errstate(all="ignore")
    def _compute(
        self,
        plan: Plan,
        program: Program,
        registers: Registers,
        run: Run | None,
        *,
        changes: bool,
        clock: Callable[[], float] = perf_counter,
    ) -> list[Any]:
        """Compute and commit: inline, in a worker, traced, for a peek."""
        start = clock()
        if program.layout is None and not program.splits and self._around is None:
            results = self._computed(plan, program, registers, run, changes)
        else:
            arena = None
            try:
                if program.layout is not None:
                    try:
                        arena = self._arenas.pop()
                    except IndexError:  # no check before: runs in other threads pop, too
                        arena = Arena()
                    arena.place(program.layout, registers)
                with self._split() if program.splits else (self._around or nullcontext)():
                    results = self._computed(plan, program, registers, run, changes)
            finally:
                if arena is not None:
                    self._arenas.append(arena)
        plan.cost.observe(clock() - start, self.limit, program.size)
        return results

    def _computed(
        self, plan: Plan, program: Program, registers: Registers, run: Run | None, changes: bool
    ) -> list[Any]:
        for register, value in program.constants:
            registers[register] = value
        code = program.code if run is None else run.watched(program.code, registers)
        execute(code, registers, run)
        results = plan.results(registers)  # before an update changes the values that were read
        if run is not None:
            run.check()
        late = None
        if plan.late:  # an allocation may fail, so it precedes the commit
            values = self.store.values
            late = [(i, slot, np.empty_like(values[slot])) for i, slot in plan.late]
        if changes:
            commit(plan.swaps, plan.groups, plan.random, self.store, registers, run)
            if late is not None:
                for i, slot, array in late:
                    np.copyto(array, values[slot])
                    results[i] = array if array.ndim else array[()]
        if run is not None:
            run.committed = True
        return results

    async def _compute_stage(
        self, cost: CostModel, code: Sequence[Instruction], registers: Registers, run: Run
    ) -> None:
        """Compute the ancestors of awaited nodes, or their successors in a subgraph."""

        @np.errstate(all="ignore")
        def work() -> None:
            start = perf_counter()
            with (self._around or nullcontext)():
                execute(run.watched(code, registers), registers, run)
            cost.observe(perf_counter() - start, self.limit, run.fed)

        if run.deadline is None and cost.is_short(self.limit, run.fed):
            if self._budget.spent():
                await run.pause(self._budget)
            work()
        else:
            await self._in_worker(work, run)

    async def _in_worker(self, work: Callable[[], T], run: Run, *, step: bool = False) -> T:
        """Call a function in a worker. A cancelled caller waits for its end, then is cancelled."""
        run.workers += 1
        try:
            return await completed(self.threads.submit(work, step=step), run.abort)
        finally:
            run.workers -= 1
