"""Measure the lag of the event loop, and report code that blocks it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, Collection
from types import FrameType

import numpy as np

from asyncmon.hooks.hook_support import created_session, log_errors, positive
from asyncmon.runtime import Coordinator, Session, SessionRunHook
from asyncmon.summary.shared_writer import SharedWriter, SummaryWriter
from asyncmon.system import clock

logger = logging.getLogger(__name__)

_METHODS = (".begin", ".after_create_session", ".before_run", ".after_run", ".end", ".background")


class LoopLagHook(SessionRunHook):
    """Measure the lag of the event loop, report percentiles, and warn about code that blocks it.

    A task sleeps repeatedly and records how late it wakes. When the loop is blocked for ``warn_secs``,
    a thread inspects the stack of the loop's thread. It logs one warning per place, with the task, the
    line, and the hook if there is one.

    Args:
        every_secs: the interval of reports, in seconds.
        warn_secs: the duration of a block, in seconds, that causes a warning.
        interval_secs: the interval of measurements, in seconds.
        output_dir: write the percentiles, in seconds, to the event file of this directory, as
            ``loop_lag/p50``, ``p95``, ``p99`` and ``max``. Reports are also logged.
        summary_writer: write them to this writer instead.

    Example::

        hooks = [LoopLagHook(warn_secs=0.1, output_dir="logs")]
    """

    def __init__(
        self,
        every_secs: float = 60.0,
        warn_secs: float = 0.1,
        interval_secs: float = 0.05,
        *,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        self._every_secs = positive("every_secs", every_secs)
        self._warn_secs = positive("warn_secs", warn_secs)
        self._interval_secs = positive("interval_secs", interval_secs)
        self._output = SharedWriter(output_dir, summary_writer)
        self.output_dir = self._output.directory
        self._lags: list[float] = []
        self.percentiles: dict[str, float] = {}
        """The last report: seconds by ``"p50"``, ``"p95"``, ``"p99"`` and ``"max"``."""

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._output.start(session.global_step, created_session(coord).recorder)

    async def background(self, session: Session, coord: Coordinator) -> None:
        report_at = clock.monotonic() + self._every_secs
        watch = _Watch(asyncio.get_running_loop(), self._warn_secs, self._interval_secs)
        watch.start()
        try:
            async for lag in loop_lags(self._interval_secs):
                watch.beat()
                now = clock.monotonic()
                self._lags.append(lag)
                if now >= report_at:
                    report_at = now + self._every_secs
                    with log_errors(self, "a report"):
                        self._report(session.global_step)
        finally:
            watch.stop()

    async def cleanup(self, error: BaseException | None) -> None:
        await self._output.close()

    def _report(self, step: int | None) -> None:
        self.percentiles, self._lags = lag_percentiles(self._lags), []
        line = ", ".join(f"{name} {1000 * secs:.1f} ms" for name, secs in self.percentiles.items())
        logger.info("The event loop was late by %s.", line)
        tagged = {f"loop_lag/{name}": secs for name, secs in self.percentiles.items()}
        self._output.add_scalars(tagged, step)


async def loop_lags(interval_secs: float) -> AsyncGenerator[float]:
    """Sleep repeatedly, and yield the delay of each wake-up in seconds."""
    while True:
        due = clock.monotonic() + interval_secs
        await asyncio.sleep(interval_secs)
        yield max(0.0, clock.monotonic() - due)


def lag_percentiles(lags: Collection[float]) -> dict[str, float]:
    """Return ``"p50"``, ``"p95"``, ``"p99"`` and ``"max"`` of one or more lags."""
    p50, p95, p99, most = np.percentile(np.fromiter(lags, float), [50, 95, 99, 100]).tolist()
    return {"p50": p50, "p95": p95, "p99": p99, "max": most}


class _Watch(threading.Thread):
    """A thread that detects a blocked loop and the code that blocks it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, warn_secs: float, interval_secs: float) -> None:
        super().__init__(name="asyncmon loop watch", daemon=True)  # does not delay the exit
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._timeout = warn_secs + interval_secs
        self._warn_secs = warn_secs
        self._beaten = threading.Event()
        self._stopped = False
        self._seen: set[str] = set()

    def beat(self) -> None:
        self._beaten.set()

    def stop(self) -> None:
        self._stopped = True
        self._beaten.set()

    def run(self) -> None:
        while not self._stopped:
            if self._beaten.wait(self._timeout):
                self._beaten.clear()
                continue
            culprit = running_code(self._loop, self._loop_thread)
            if culprit is not None and culprit not in self._seen:
                self._seen.add(culprit)
                logger.warning("The event loop was held for over %g s by %s.", self._warn_secs, culprit)
            self._beaten.wait()


def running_code(loop: asyncio.AbstractEventLoop, thread: int) -> str | None:
    """Describe the code that a loop runs now, from another thread; None if it is idle."""
    frame = sys._current_frames().get(thread)
    task = asyncio.current_task(loop)
    if frame is None or (task is None and frame.f_code.co_name in {"select", "_run_once"}):
        return None
    name = f"task {task.get_name()!r}" if task is not None else "a callback"
    hook = _hook_of(frame)
    place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
    return f"{name}{f', hook {hook}' if hook else ''}, at {place}"


def _hook_of(frame: FrameType | None) -> str | None:
    while frame is not None:
        qualname = frame.f_code.co_qualname
        if qualname.endswith(_METHODS) and "asyncmon/runtime/" not in frame.f_code.co_filename:
            return qualname.rpartition(".")[0].rpartition(".<locals>.")[2]
        frame = frame.f_back
    return None
