"""Timers by steps, checked on the step path, and by seconds, awaited in a task."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Self

from asyncmon.runtime.failures import Failures
from asyncmon.runtime.stop.origin import marked
from asyncmon.system import clock
from asyncmon.system.cancellation import without_unrequested
from asyncmon.system.functions import settled


class SecondOrStepTimer:
    """Decide for each step whether the timer is due. TF1: ``tf.train.SecondOrStepTimer``.

    After a step that goes backwards, as in a restore, the timer is due at once.

    Args:
        every_secs: the interval since the last trigger in seconds, on the loop's clock.
        every_steps: the interval since the last trigger in steps.

    Raises:
        ValueError: neither or both are given, or ``every_secs`` is NaN.

    Example::

        timer = SecondOrStepTimer(every_steps=100)
        if timer.should_trigger_for_step(step):
            seconds, steps = timer.update_last_triggered_step(step)
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self._every_secs = None if every_secs is None else clock.seconds("every_secs", every_secs)
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Clear the last trigger: the next step is due."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether the timer is due at a step. It triggers once for a step."""
        last = self._last_step
        if last is None or step < last:
            return True
        if step == last:
            return False
        if self._every_steps is not None:
            return step >= last + self._every_steps
        assert self._every_secs is not None, "one of the two is given"
        return clock.monotonic() >= self._last_time + self._every_secs

    def update_last_triggered_step(self, step: int) -> tuple[float, int] | tuple[None, None]:
        """Record a trigger. Return the seconds and steps since the last one, or None for the first."""
        now, last = clock.monotonic(), self._last_step
        elapsed = (None, None) if last is None or step < last else (now - self._last_time, step - last)
        self._last_step, self._last_time = step, now
        return elapsed

    def last_triggered_step(self) -> int | None:
        """Return the step of the last trigger, or None."""
        return self._last_step


class Ticks:
    """Ticks at a fixed interval, until a stop: the async iterator behind ``Coordinator.every``.

    Tick *n* comes *n* times ``secs`` after the start, without drift. A tick that passes during the body
    of the loop is skipped. The value of a tick is its *n*, so that skipped ticks can be counted.

    Args:
        wait_for_stop: awaited with a timeout; true ends the iteration.
        secs: the interval. With None, 0 or less the ticks come back to back, each after an iteration of
            the event loop.
        immediately: whether there is a tick 0 at once.
        continuing: ticks of the same interval that these continue. If a tick was missed in between, the
            last one comes at once.
        name: for statistics.
    """

    __slots__ = (
        "__weakref__", "_catch_up", "_immediately", "_start", "_tick", "_wait_for_stop", "name", "secs",
    )  # fmt: skip

    def __init__(
        self,
        wait_for_stop: Callable[[float], Awaitable[bool]],
        secs: float | None,
        *,
        immediately: bool = False,
        continuing: Ticks | None = None,
        name: str = "timer",
    ) -> None:
        self.name = name
        self._wait_for_stop = wait_for_stop
        self.secs = secs if secs is not None and clock.seconds("secs", secs) > 0 else None
        self._immediately = immediately
        self._start: float | None = None
        self._tick = 0
        self._catch_up = continuing is not None
        if continuing is not None:
            self._start, self._tick = continuing._start, continuing._tick

    def left(self) -> float:
        """Return the seconds until the next tick, of ticks with an interval."""
        assert self.secs is not None, "they come back to back"
        if self._start is None:
            return 0.0 if self._immediately else self.secs
        passed = (clock.monotonic() - self._start) / self.secs
        return max((max(self._tick + 1, math.ceil(passed - 1e-6)) - passed) * self.secs, 0.0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        if self._start is None:
            self._start = clock.monotonic()
            self._tick = -1 if self._immediately else 0
        if self.secs is None or self._tick < 0:
            tick, delay = self._tick + 1, 0.0
        else:
            periods = (clock.monotonic() - self._start) / self.secs
            # The small term: a tick that is due right now is on time.
            passed = math.floor(periods) if self._catch_up else math.ceil(periods - 1e-6)
            tick = max(self._tick + 1, passed)
            delay = self._start + tick * self.secs - clock.monotonic()
        if await self._wait_for_stop(max(delay, 0.0)):
            raise StopAsyncIteration
        self._tick, self._catch_up = tick, False  # only now: a cancelled wait loses no tick
        return tick


async def _called(fn: Callable[[], Any]) -> None:
    await settled(fn())


async def call_at_ticks(ticks: Ticks, fn: Callable[[], Any], on_error: str) -> None:
    """Call a plain or async function at each tick. See ``Coordinator.every``."""
    failures = Failures()
    async for _ in ticks:
        try:
            with marked("timer", f"{ticks.name}, called by coord.every"):
                await without_unrequested(ticks.name, _called, fn)
        except Exception as error:
            if on_error == "raise":
                raise
            failures.log(error, "%s, called by coord.every, failed; on_error='log'.", ticks.name)
