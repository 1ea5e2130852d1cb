"""The threads of a session."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from asyncmon.errors import FailedPreconditionError
from asyncmon.graph.numerics.blas import single_threaded_blas
from asyncmon.graph.numerics.parallel import CORES, Team, split_products, using_team
from asyncmon.session_config import SessionConfig
from asyncmon.system.daemon_executor import DaemonExecutor

logger = logging.getLogger(__name__)

Context = Callable[[], AbstractContextManager[None]]

T = TypeVar("T")


def around_runs(config: SessionConfig) -> tuple[Context | None, Context]:
    """Return the context managers of a run's computation, without and with large products.

    Raises:
        ImportError: the config selects torch's kernels, and torch is not installed.
    """
    threads = config.intra_op_parallelism_threads
    light = single_threaded_blas if threads else None  # else BLAS may use more threads than the session
    is_auto = config.kernels == "auto"
    if config.kernels == "numpy" or (is_auto and find_spec("torch") is None):
        return light, split_products
    try:
        kernels = import_module("asyncmon.graph.numerics.torch_kernels")
    except ImportError as error:
        raise ImportError("kernels='torch' needs PyTorch: pip install 'asyncmon[torch]'") from error
    around = partial(kernels.torch_kernels, threads or CORES)
    if is_auto:
        _log_once("kernels='auto': runs with large products or convolutions use PyTorch's kernels.")
        return light, around
    return around, around


@cache
def _log_once(text: str) -> None:
    logger.info(text)


class Threads:
    """A worker for steps, a pool for other calls, and a team that helps both. Started on demand."""

    def __init__(self, config: SessionConfig) -> None:
        self._workers = config.inter_op_parallelism_threads or config.workers
        self._process = os.getpid()
        self._worker: DaemonExecutor | None = None
        self._pool: DaemonExecutor | None = None
        self.team = Team((config.intra_op_parallelism_threads or CORES) - 1, "asyncmon-session-help")
        self._running: set[asyncio.Future[Any]] = set()
        self._computing: dict[int, None] = {}
        self.abandoned = False
        """Whether :meth:`abandon` was called."""

    def submit(self, function: Callable[[], T], *, step: bool = False) -> asyncio.Future[T]:
        """Call a function in a thread, and return a future of its result.

        Raises:
            RuntimeError: the session was created in another process.
            FailedPreconditionError: a step, and an earlier one was abandoned in its thread.
        """
        if step and self.abandoned:
            raise FailedPreconditionError(
                "An earlier step is still computing in its thread, after a stop that did not wait for "
                "it any longer: the session makes no further step. Restore its last checkpoint in a "
                "new process."
            )
        if os.getpid() != self._process:
            raise RuntimeError(
                "This session was made in another process, and a fork takes no threads along. Make a "
                "session in the process that runs it."
            )
        if step:  # one at a time, in the same worker, whose core has their data in its caches
            executor = self._worker = self._worker or DaemonExecutor("asyncmon-session-steps")
        else:
            executor = self._pool = self._pool or DaemonExecutor("asyncmon-session", self._workers)
        context = contextvars.copy_context()
        future = executor.start(context.run, self._with_team, function)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    @property
    def running(self) -> tuple[asyncio.Future[Any], ...]:
        """The calls that have not ended."""
        return tuple(self._running)

    def computing(self) -> tuple[int, ...]:
        """Return the threads that execute a call now, by their idents."""
        return tuple(self._computing)

    def abandon(self) -> None:
        """Cancel the futures of all calls. A thread that executes one continues: none can be ended."""
        self.abandoned = True
        for future in self.running:
            future.cancel()

    def close(self) -> None:
        """End the threads after the submitted calls."""
        for executor in filter(None, (self._worker, self._pool)):
            executor.shutdown()
        self._pool = self._worker = None
        self.team.close()

    def _with_team(self, function: Callable[[], T]) -> T:
        ident = threading.get_ident()
        self._computing[ident] = None
        try:
            with using_team(self.team):
                return function()
        finally:
            del self._computing[ident]
