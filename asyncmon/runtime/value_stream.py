"""All values of each step, as an async iterator: for a service's own page or stream."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Self

from asyncmon.runtime.gate import Gate
from asyncmon.runtime.recorder import Recorder
from asyncmon.runtime.session_state import SessionState
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.summary.events import Summary
from asyncmon.summary.logged import LoggedValue
from asyncmon.summary.scalars import scalar_of
from asyncmon.summary.values import HParam


class StepValues(NamedTuple):
    """The values of one step."""

    step: int | None
    wall_time: float
    """Of the first of them, in seconds since 1970."""
    values: dict[str, LoggedValue]
    dropped: int
    """The number of steps before this one that were dropped, as the reader was too slow."""


class _Buffer:
    """The sink of a stream: the newest steps."""

    place: object = None

    def __init__(self, most: int) -> None:
        self._most = most
        self._steps: deque[tuple[int | None, float, list[Mapping[str, LoggedValue] | Any]]] = deque()
        self._dropped = 0
        self._lock = threading.Lock()  # values are logged in any thread
        self._wake: Callable[[], Any] = lambda: None

    def put_values(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        with self._lock:
            if self._steps and self._steps[-1][0] == step:
                self._steps[-1][2].append(values)
                return
            self._steps.append((step, wall_time, [values]))
            if len(self._steps) > self._most:
                self._steps.popleft()
                self._dropped += 1
        with suppress(RuntimeError):  # the loop of the reader is closed
            self._wake()

    def put_summary(self, step: int | None, wall_time: float, summary: Any) -> None:
        self.put_values(step, wall_time, summary)  # decoded by the reader, off the step path

    def put_config(self, config: Mapping[str, HParam]) -> None:
        """Hyperparameters are no values of a step."""

    def arrival(self) -> asyncio.Event:
        """Return an event that the next step sets, in the running loop."""
        arrived = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._wake = partial(loop.call_soon_threadsafe, arrived.set)
        return arrived

    def take(self) -> StepValues | None:
        """Return the oldest step, or None."""
        with self._lock:
            if not self._steps:
                return None
            step, wall_time, parts = self._steps.popleft()
            dropped, self._dropped = self._dropped, 0
        values: dict[str, LoggedValue] = {}
        for part in parts:
            values.update(part if isinstance(part, Mapping) else _scalars(part))
        return StepValues(step, wall_time, values, dropped)


class ValueStream:
    """The async iterator behind ``MonitoredSession.values``."""

    def __init__(self, recorder: Recorder, gate: Gate, stops: StopControl, most: int) -> None:
        if most < 1:
            raise ValueError(f"most must be 1 or more, got {most!r}.")
        self._gate = gate
        self._stops = stops
        self._buffer = _Buffer(most)
        self._remove = recorder.add((self._buffer,))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StepValues:
        while True:
            # Made before the look: a value of another thread in between wakes the wait.
            arrived = self._buffer.arrival()
            if (found := self._buffer.take()) is not None:
                return found
            if self._gate.state is not SessionState.OPEN or self._stops.is_requested():
                self.close()
                raise StopAsyncIteration
            try:
                with CallScope(self._stops.scopes, "data"):
                    await arrived.wait()
            except StopAsyncIteration:
                continue  # a stop, or the end of the session: available values come first

    def close(self) -> None:
        """End the stream. A second call does nothing."""
        self._remove()

    def __del__(self) -> None:
        if hasattr(self, "_remove"):
            self._remove()


def _scalars(summary: Any) -> dict[str, float]:
    found = Summary.FromString(summary) if isinstance(summary, bytes) else summary
    numbers = {value.tag: scalar_of(value) for value in found.value}
    return {tag: number for tag, number in numbers.items() if number is not None}
