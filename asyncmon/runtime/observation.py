"""Observers of a session, and the spans that they are called with."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ParamSpec, Protocol, TypeVar

from asyncmon.runtime.protocols import step_of
from asyncmon.runtime.stop.current_run import enter, leave, owner_of_caller
from asyncmon.system import clock

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Span:
    """A unit of a session's work, with its start and its end.

    ``kind`` is one of

    - ``"run"``: a call of ``run`` or ``run_step_fn`` once it has the lock, recoveries and hooks
      included; ``"bare run"``: a run with ``hooks=False``;
    - ``"hook"``: a call of a hook's method, with ``attributes["hook"]``, the hook's label, and
      ``["method"]``; ``"background"``: the same for the hook's background task;
    - ``"save"``: a save of a ``CheckpointSaverHook`` up to its commit, with ``attributes["step"]`` and
      ``["bytes"]``, the size of the tensor files, None until the commit;
    - ``"opening"``: from ``start()`` to the first session; ``"closing"``: the whole of ``close()``;
    - ``"creation"``: the creation of a raw session; ``"restore"``: the restore of a checkpoint in it;
    - ``"recovery"``: the replacement of a session, from the failure to the new one.
    """

    kind: str
    name: str
    """The hook's label and method, the prefix of the checkpoint, the type of the failure and so on."""
    step: int | None
    """The global step at the start; None without a count of steps, or without observers."""
    started: float
    """Seconds on the loop's clock, ``asyncmon.system.clock.monotonic``."""
    attributes: Mapping[str, Any]
    ended: float | None = None
    """On the same clock; None until the end."""
    end_step: int | None = None
    """The global step at the end."""
    error: BaseException | None = None
    """The exception of the work, or a cancellation."""


class Observer(Protocol):
    """An object for :meth:`MonitoredSession.observe`.

    Both methods are plain functions, called in the loop's thread and in the task that does the work:
    context variables set in ``began`` are visible to the work. They must not block.
    """

    def began(self, span: Span) -> None:
        """A span has started."""

    def ended(self, span: Span) -> None:
        """A span has ended. Called for each span that started; nested spans end in reverse order."""


class EpochListeners:
    """Async functions that are awaited at the end of each epoch of a session, before the next one."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[int], Awaitable[None]]] = []

    def add(self, listener: Callable[[int], Awaitable[None]]) -> Callable[[], None]:
        """Add a function of the number of epochs that have ended. Return one that removes it."""
        self._listeners.append(listener)
        return lambda: self._remove(listener)

    async def ended(self, number: int) -> None:
        """Call the functions, in the order in which they were added."""
        for listener in tuple(self._listeners):
            await listener(number)

    def _remove(self, listener: Callable[[int], Awaitable[None]]) -> None:
        self._listeners = [one for one in self._listeners if one != listener]


class Observers:
    """The observers of a session, over recoveries, and the spans that have not ended."""

    def __init__(self) -> None:
        self.name = ""
        """The name of the session, unique once it is open. "" if its opening is to number it."""
        self.record: Any = None
        """The ``RecordKeeper`` of the session."""
        self.runs_here: Callable[[], bool] = lambda: False
        """Returns whether the calling code is part of a run: one without hooks is not marked."""
        self.raw: Any = None
        """The latest raw session, from its creation to the close."""
        self._last_step: int | None = None
        self.open_spans: list[Span] = []
        """The spans that have not ended, observed or not, but those of runs and hooks."""
        self.epochs = EpochListeners()
        self._observers: tuple[Observer, ...] = ()
        self._callbacks: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self._observers)

    def when_changed(self, callback: Callable[[], None]) -> None:
        """Call a function whenever the first observer is added or the last one removed."""
        self._callbacks.append(callback)

    def add(self, observer: Observer) -> Callable[[], None]:
        """Add an observer, and return a function that removes it. See ``MonitoredSession.observe``."""
        for method in ("began", "ended"):
            if not callable(getattr(observer, method, None)):
                raise TypeError(
                    f"An observer has the methods began(span) and ended(span), got {observer!r}."
                )
        self._set((*self._observers, observer))
        return lambda: self._remove(observer)

    def _remove(self, observer: Observer) -> None:
        self._set(tuple(one for one in self._observers if one is not observer))

    def _set(self, observers: tuple[Observer, ...]) -> None:
        before, self._observers = self._observers, observers
        if bool(before) is not bool(observers):
            for callback in self._callbacks:
                callback()

    def entered(self) -> _Entered:
        """Return a block, ``with`` or ``async with``, that is part of the work of the session.

        Log records in it have the name of the run.
        """
        return _Entered(self)

    def span(
        self,
        kind: str,
        name: str,
        attributes: Mapping[str, Any] = _NO_ATTRIBUTES,
        started: float | None = None,
    ) -> AbstractContextManager[Span]:
        """Return a context manager around a unit of work, which yields its span."""
        if started is None:
            started = clock.monotonic()
        return _Scope(self, Span(kind, name, self._step(), started, attributes))

    @property
    def step(self) -> int | None:
        """The global step of the raw session; the last known one of a closed session."""
        return self._last_step if self.raw is None else step_of(self.raw)

    def release(self) -> None:
        """Let the raw session go: the session is closed."""
        self._last_step, self.raw = self.step, None

    def _step(self) -> int | None:
        return self.step if self._observers else None  # it may be a program's own code

    def _failed(self, observer: Observer, method: str) -> None:
        logger.exception("%r.%s failed; the observer is removed.", observer, method)
        self._remove(observer)


def observers_of_caller() -> Observers | None:
    """Return the observers of the session that the calling code works for, or None."""
    owner = owner_of_caller()
    return owner if isinstance(owner, Observers) else None


class _Entered:
    # Not a generator, which would set the traceback of an error: a frozen one refuses that.

    __slots__ = ("_before", "_observers")

    def __init__(self, observers: Observers) -> None:
        self._observers = observers

    def __enter__(self) -> None:
        self._before = enter(self._observers)

    def __exit__(self, *_error: object) -> None:
        leave(self._observers, self._before)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *_error: object) -> None:
        self.__exit__()


def in_session(method: Callable[P, T]) -> Callable[P, T]:
    """Let the log records of a session's plain method name its run, for a caller outside of it."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        session: Any = args[0]
        with session._hooks.observers.entered():
            return method(*args, **kwargs)

    return call


class _Scope:
    # Not a generator, which would be a frame of each traceback.

    __slots__ = ("_before", "_called", "_observers", "_span")

    def __init__(self, observers: Observers, span: Span) -> None:
        self._observers = observers
        self._span = span
        self._called: Sequence[Observer] = ()  # their ``ended`` is called, too

    def __enter__(self) -> Span:
        observers, span = self._observers, self._span
        if span.kind not in _STEP_PATH:
            observers.open_spans.append(span)
            self._before = enter(observers)
        called = self._called = observers._observers
        for observer in called:
            try:
                observer.began(span)
            except Exception:
                self._called = [one for one in self._called if one is not observer]
                observers._failed(observer, "began")
        return span

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        observers, span = self._observers, self._span
        if span.ended is None:
            span.ended = clock.monotonic()
        span.end_step, span.error = observers._step(), error
        if span.kind not in _STEP_PATH:
            observers.open_spans.remove(span)
            leave(observers, self._before)
        for observer in reversed(self._called):
            try:
                observer.ended(span)
            except Exception:
                observers._failed(observer, "ended")


_STEP_PATH = frozenset(("run", "bare run", "hook", "background"))  # spans for observers only


@contextlib.contextmanager
def restore(place: str) -> Iterator[Span | None]:
    """Observe the restore of a checkpoint from a directory or a prefix, if a session does it."""
    observers = observers_of_caller()
    if observers is None:
        yield None
    else:
        with observers.span("restore", place) as span:
            yield span
