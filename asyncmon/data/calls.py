"""How ``map`` calls a function: ``async def`` is awaited, a plain function runs in threads."""

from __future__ import annotations

import functools
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from asyncmon.data.stage import CHUNK
from asyncmon.system.daemon_executor import DaemonExecutor, no_stop_iteration

_JOB_SECONDS = 0.001  # results done by then are returned before the rest


class Caller(ABC):
    """Applies a function to elements."""

    grain = 1
    """The number of elements of one call."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    @abstractmethod
    async def call(self, elements: list[Any]) -> tuple[list[Any], Exception | None]:
        """Return results of the first elements, at least one, or the error of the next one."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """Let idle threads end. Running calls are abandoned."""


def caller_of(fn: Callable[[Any], Any], threads: int) -> Caller:
    """Return a caller: on the loop for a coroutine function, else in ``threads`` threads."""
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None)):  # noqa: B004
        return _Awaited(fn)
    return _InThreads(fn, threads)


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name of a function for messages."""
    if isinstance(fn, functools.partial):
        return name_of(fn.func)
    return str(getattr(fn, "__qualname__", type(fn).__name__))


class _Awaited(Caller):
    async def call(self, elements: list[Any]) -> tuple[list[Any], Exception | None]:
        try:
            return [await self._fn(elements[0])], None
        except Exception as error:
            return [], error


class _InThreads(Caller):
    """Jobs of about a millisecond: many elements of a fast function, or one of a slow one."""

    def __init__(self, fn: Callable[[Any], Any], threads: int) -> None:
        super().__init__(fn)
        self._executor = DaemonExecutor(f"map({name_of(fn)})", threads)

    async def call(self, elements: list[Any]) -> tuple[list[Any], Exception | None]:
        results, error = await self._executor.call(self._job, elements)
        if results and inspect.isawaitable(results[-1]):
            try:
                results[-1] = await results[-1]
            except Exception as failure:
                results.pop()
                error = failure
        return results, error

    def close(self) -> None:
        self._executor.shutdown()

    def _job(self, elements: list[Any]) -> tuple[list[Any], Exception | None]:
        results: list[Any] = []
        fn, clock = self._fn, time.perf_counter
        start = clock()
        try:
            for element in elements:
                result = fn(element)
                results.append(result)
                if clock() - start > _JOB_SECONDS or inspect.isawaitable(result):
                    self.grain = max(1, len(results))
                    return results, None
        except StopIteration as error:
            return results, no_stop_iteration(fn, error)
        except Exception as error:  # raised where the element is awaited
            return results, error
        if len(results) == self.grain:
            self.grain = min(2 * self.grain, CHUNK)
        return results, None
