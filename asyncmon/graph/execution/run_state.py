"""One execution of a plan: what it reads, how it is interrupted, what happens when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from asyncmon.graph.execution.pace import TooLong
from asyncmon.graph.execution.randomness import generator
from asyncmon.run_options import NodeStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from asyncmon.graph.core.node import Operation

__all__ = ["Run"]

T = TypeVar("T")


class Run:
    """What an op that takes part in a run, rather than just computing, gets to see.

    Attributes:
        resources: what the session holds beside variables (queues), by name.
        error: set from the loop's thread when the run is to end; a worker looks at it between nodes.
        compute: awaited as ``compute(stage, code, registers, run)`` by plans inside plans.
        fed: elements fed to it, see :class:`asyncmon.graph.execution.pace.Pace`.
        until: when its loops have taken so long that it is to go on in a worker, by ``perf_counter``.
        waiting: the tasks that are awaited at present, with their nodes.
    """

    __slots__ = (
        "_on_abort",
        "_on_commit",
        "committed",
        "compute",
        "deadline",
        "error",
        "fed",
        "interrupt",
        "random_state",
        "resources",
        "started",
        "trace",
        "until",
        "waiting",
    )

    def __init__(self, resources: dict[Any, Any], random_state: NDArray[Any]) -> None:
        self.resources = resources
        self.random_state = random_state
        self.fed = 0
        self.until = inf
        self.compute: Any = None
        self.waiting: dict[asyncio.Future[Any], Any] = {}
        self.error: BaseException | None = None
        self.interrupt: asyncio.Future[None] | None = None
        self.trace: list[NodeStats] | None = None
        self.started = 0.0
        self.deadline: asyncio.TimerHandle | None = None
        self.committed = False
        self._on_commit: list[Callable[[], None]] = []
        self._on_abort: list[Callable[[], None]] = []

    # For ops.

    def resource(self, key: Any, make: Callable[[], T]) -> T:
        """Return what the session keeps under a key, made at the first call."""
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

    def rng(self, key: tuple[int | None, int], iteration: int) -> np.random.Generator:
        """Return the generator of a random op in an iteration of the loops it is in, 0 outside."""
        return generator(self.random_state, key, iteration)

    def iteration(self, base: int, i: int) -> int:
        """Return the number of a loop's i-th iteration, in iteration ``base`` of the loops around it.

        Raises what :meth:`go_on` does.
        """
        self.go_on()
        return (base * 1_000_003 + i) % (1 << 63)

    def go_on(self) -> None:
        """Let a loop go on.

        Raises:
            BaseException: that of :meth:`abort`.
            TooLong: it takes too long.
        """
        if self.error is not None:
            raise self.error
        if perf_counter() > self.until:
            raise TooLong

    # For the session.

    def note(self, op: Operation, before: float, outputs: Iterable[Any]) -> None:
        """Add a node to the trace, if there is one: since ``before``, now done."""
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
            if self.interrupt is not None and not self.interrupt.done():
                self.interrupt.set_exception(error)

    async def wait(self, future: asyncio.Future[T]) -> T:
        """Wait for a future, or raise the error of :meth:`abort` if that comes first."""
        if not future.done():
            assert self.interrupt is not None
            await asyncio.wait((future, self.interrupt), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            assert self.error is not None
            raise self.error
        return future.result()

    def settle(self) -> None:
        """Tell those who asked how the run ended.

        It forgets them, and its error: they refer to the run, too, and whatever is in such a cycle
        would stay until the garbage collector comes.
        """
        calls = self._on_commit if self.committed else reversed(self._on_abort)
        for call in calls:
            call()
        self._on_commit, self._on_abort = [], []
        if self.interrupt is not None and not self.interrupt.cancel():
            with contextlib.suppress(BaseException):  # seen: it was raised, or came too late
                self.interrupt.exception()
        self.error = self.interrupt = self.deadline = None
