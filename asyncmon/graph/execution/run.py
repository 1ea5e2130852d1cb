"""One execution of a program: its context for ops, its interruption, its end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from asyncmon.errors import DeadlineExceededError
from asyncmon.graph.core.node import Operation
from asyncmon.graph.execution.program import Instruction, Registers, outputs_of
from asyncmon.graph.execution.randomness import RngKey, generator
from asyncmon.protobuf.run_options import NodeStats, RunMetadata, RunOptions, check_options
from asyncmon.system.loop_budget import LoopBudget

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Run:
    """The context of a run, passed to ops that do more than compute.

    Attributes:
        resources: the session's objects beside variables (queues), by name.
        random_state: the random state of the version that the run reads.
        drew: the numbers of the random ops used so far.
        compute: awaited as ``compute(cost, code, registers, run)`` for code before or after awaited
            nodes.
        in_thread: awaited as ``in_thread(function, run)``.
        fed: elements fed to it, see :class:`asyncmon.system.cost.CostModel`.
        waiting: the pending tasks, with their nodes.
        limit: seconds for which it may hold the loop; 0 if it must not.
        error: set on the loop's thread to end the run. A worker checks it between nodes.
        workers: the number of workers that compute for it.
    """

    resources: dict[Any, Any]
    random_state: NDArray[Any]
    compute: Any = None
    in_thread: Any = None
    fed: int = 0
    limit: float = 0.0
    waiting: dict[asyncio.Future[Any], Any] = field(default_factory=dict, init=False)
    error: BaseException | None = field(default=None, init=False)
    workers: int = field(default=0, init=False)
    trace: list[NodeStats] | None = field(default=None, init=False)
    started: float = field(default=0.0, init=False)
    deadline: asyncio.TimerHandle | None = field(default=None, init=False)
    committed: bool = field(default=False, init=False)
    drew: set[int] = field(default_factory=set, init=False)
    _interrupt: asyncio.Future[None] | None = field(default=None, init=False)  # of the first wait
    _on_commit: list[Callable[[], None]] = field(default_factory=list, init=False)
    abandoned: bool = field(default=False, init=False)
    """Whether a thread may still compute for the run after its end. It commits nothing."""
    call: object = field(default=None, init=False)
    """The coroutine of a run that may call functions of the user."""
    _on_abort: list[Callable[[], None]] = field(default_factory=list, init=False)

    # For ops.

    def resource(self, key: Any, make: Callable[[], T]) -> T:
        """Return the session's object of a key, created at the first call."""
        if key not in self.resources:
            self.resources[key] = make()
        found: T = self.resources[key]
        return found

    def on_commit(self, call: Callable[[], None]) -> None:
        """Call this on the loop's thread once the run has committed. It must not fail."""
        self._on_commit.append(call)

    def on_abort(self, call: Callable[[], None]) -> None:
        """Call this on the loop's thread if the run fails or is cancelled. It must not fail."""
        self._on_abort.append(call)

    def rng(self, key: RngKey, iteration: int) -> np.random.Generator:
        """Return the generator of a random op in an iteration of the loops it is in, 0 outside."""
        self.drew.add(key[2])
        return generator(self.random_state, key, iteration)

    def iteration(self, base: int, i: int) -> int:
        """Return the number of a loop's i-th iteration, in iteration ``base`` of the loops around it.

        Raises what :meth:`check` does.
        """
        self.check()
        return (base * 1_000_003 + i) % (1 << 63)

    def check(self) -> None:
        """Raise the error of :meth:`abort`, if it was called."""
        if self.error is not None:
            raise self.error

    # For the session.

    def watched(self, code: Iterable[Instruction], registers: Registers) -> Iterable[Instruction]:
        """Return code for :func:`execute` with tracing, if requested, and a check for :meth:`abort`."""
        if self.trace is not None:
            return self._traced(code, registers)
        # A run cannot be aborted while the loop's thread computes for it.
        return self._until_aborted(code) if self.workers else code

    def _until_aborted(self, code: Iterable[Instruction]) -> Iterator[Instruction]:
        for instruction in code:
            if self.error is not None:
                self.error.__dict__["_asyncmon_located"] = True  # it is not the error of a node
                raise self.error
            yield instruction

    def _traced(self, code: Iterable[Instruction], registers: Registers) -> Iterator[Instruction]:
        for instruction in self._until_aborted(code):
            before, op = perf_counter(), instruction[5]
            yield instruction
            if op is not None:
                self.note(op, before, [registers[i] for i in outputs_of(instruction)])

    def note(self, op: Operation, before: float, outputs: Iterable[Any]) -> None:
        """Add a node, started at ``before``, to the trace, if any."""
        if self.trace is not None:
            now = perf_counter()
            nbytes = sum(getattr(value, "nbytes", 0) for value in outputs)
            thread = threading.current_thread().name
            self.trace.append(
                NodeStats(op.name, op.type, before - self.started, now - before, thread, nbytes)
            )

    def abort(self, error: BaseException) -> None:
        """End the run with this error, unless it commits first. Call it on the loop's thread."""
        if self.error is None:
            self.error = error
            if self._interrupt is not None and not self._interrupt.done():
                self._interrupt.set_exception(error)

    async def wait_first(self, futures: Iterable[asyncio.Future[Any]]) -> None:
        """Wait until one of some futures is done, or the run is aborted."""
        if self.error is not None:
            return
        if self._interrupt is None:
            self._interrupt = asyncio.get_running_loop().create_future()
        await asyncio.wait((*futures, self._interrupt), return_when=asyncio.FIRST_COMPLETED)

    async def wait(self, future: asyncio.Future[T]) -> T:
        """Wait for a future, or raise the error of :meth:`abort` if that comes first."""
        if not future.done():
            await self.wait_first((future,))
        if not future.done():
            assert self.error is not None, "else the future is done"
            raise self.error
        return future.result()

    async def pause(self, budget: LoopBudget) -> None:
        """Let the loop iterate, unless :meth:`abort` is called first."""
        pause = asyncio.ensure_future(budget.pause())
        try:
            await self.wait(pause)
        finally:
            pause.cancel()

    def finish(self) -> None:
        """Call the callbacks of ops for the end of the run."""
        if self.abandoned:
            return  # its thread still has to see the error
        # The callbacks and the error refer to the run: dropping them breaks the cycles.
        calls = self._on_commit if self.committed else reversed(self._on_abort)
        for call in calls:
            call()
        self._on_commit.clear()
        self._on_abort.clear()
        if self._interrupt is not None and not self._interrupt.cancel():
            with contextlib.suppress(asyncio.CancelledError):
                self._interrupt.exception()  # retrieved: it was raised, or came after the end
        if self.deadline is not None:
            self.deadline.cancel()
        self.error = self._interrupt = self.deadline = None


def apply_options(
    run: Run, options: RunOptions | None, metadata: RunMetadata | None, timeout_in_ms: int
) -> None:
    """Apply the options of a run: its trace and its timeout."""
    check_options(options, metadata)
    if options is not None:
        if metadata is not None and options.trace_level:
            run.trace, run.started = [], perf_counter()
        timeout_in_ms = options.timeout_in_ms or timeout_in_ms
    if timeout_in_ms > 0:
        error = DeadlineExceededError(f"The run took longer than {timeout_in_ms} ms.")
        run.deadline = asyncio.get_running_loop().call_later(timeout_in_ms / 1000, run.abort, error)
