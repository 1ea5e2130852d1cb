"""What the sessions of all programs of named steps have in common."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping
from typing import Any, TypeVar

import numpy as np

from asyncmon.errors import (
    AbortedError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from asyncmon.programs.named_fetches import GLOBAL_STEP, OptionalFetch, leaves, map_leaves
from asyncmon.programs.state_tree import misfit
from asyncmon.programs.steps import Step
from asyncmon.programs.workers import Workers
from asyncmon.session_config import SessionConfig
from asyncmon.system.fair_lock import FairLock
from asyncmon.system.inside_step import awaits, inside_step
from asyncmon.system.loop_budget import LoopBudget
from asyncmon.system.snapshot import Snapshot

T = TypeVar("T")


class _Initialize:
    """The fetch that sets the declared state."""

    name = "init"

    def __repr__(self) -> str:
        return "<initialise the state>"


INITIALIZE = _Initialize()


class SteppedSession(ABC):
    """Runs the steps of a program one after another; subclasses hold the state.

    Args:
        program: for :attr:`graph`; it has the steps by name.
        config: its ``inline_ms`` and ``workers`` are used.
    """

    def __init__(self, program: Any, config: SessionConfig | None) -> None:
        self._program = program
        self._steps: Mapping[str, Step] = program.steps
        self._step = 0
        self._lock = FairLock()
        self._holder: object = None  # the call of a step that holds the lock, if it may wait
        self._workers = Workers(config)
        self._broken: AbortedError | None = None  # why the state is lost
        self._closed = False

    @property
    def graph(self) -> Any:
        """The program."""
        return self._program

    @property
    def global_step(self) -> int:
        """The number of completed steps."""
        return self._step

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[str, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Coroutine[Any, Any, Any]:
        """Run the steps among the fetches, each once, in their order, and return the fetched values.

        Args:
            fetches: names, in any nesting of lists, tuples, dicts, namedtuples and dataclasses.
            feed_dict: parameters of the steps by name.
            options: its ``timeout_in_ms`` is the deadline.
            run_metadata: gets the ``duration``.

        Raises:
            RuntimeError: the session is closed, or a step calls this, and it would wait for that step.
            NotFoundError: a name that is not in this run; the state is unchanged.
            TypeError: a fetch that is no name, a ``feed_dict`` that is no mapping, or a step that left
                a state of another form.
            InvalidArgumentError: a feed is missing, or is no parameter of a step.
            DeadlineExceededError: it took longer than ``options.timeout_in_ms``.
            Exception: what a step raised.
        """
        if options is None and run_metadata is None:
            return self._run(fetches, feed_dict)
        return self._run_timed(fetches, feed_dict, options, run_metadata)

    async def _run_timed(self, fetches: Any, feeds: Any, options: Any, run_metadata: Any) -> Any:
        start = time.perf_counter()
        seconds = getattr(options, "timeout_in_ms", 0) / 1000
        scope = asyncio.timeout(seconds or None)
        try:
            async with scope:
                result = await self._run(fetches, feeds)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise DeadlineExceededError(
                f"The run of {fetches!r} took longer than its timeout of {seconds:g} s."
            ) from error
        if run_metadata is not None:
            run_metadata.duration = time.perf_counter() - start
        return result

    async def _run(self, fetches: Any, feeds: Mapping[str, Any] | None) -> Any:
        self._check_open()
        if feeds:
            self._check_feeds(feeds)
        single = self._steps.get(fetches) if fetches.__class__ is str else None
        steps: list[Step] | None
        if single is not None:
            steps, read_only = [single], single.read_only
        else:
            steps = self._steps_among(fetches)
            read_only = steps is not None and all(step.read_only for step in steps)
        budget = LoopBudget.of_running_loop()
        if budget.spent():
            await budget.pause()
        if steps is not None and read_only and not self._excludes(steps):
            return await self._execute(fetches, steps, feeds, read_only=True)
        lock = self._lock
        if not lock.try_lock():
            self._check_not_inside("run")
            await lock.wait()
        try:
            self._check_open()
            if steps is None:
                await self._initialize()
                return map_leaves(fetches, lambda _: None)
            return await self._execute(fetches, steps, feeds, read_only=read_only)
        finally:
            self._holder = None
            lock.release()

    async def peek(self, fetches: Any, feed_dict: Mapping[str, Any] | None = None) -> Any:
        """Return entries of the state and results of read-only steps, of one version of the state.

        Raises:
            InvalidArgumentError: a step among the fetches may change the state.
            RuntimeError: the session is closed, or a step calls this that it would wait for.
        """
        self._check_open()
        steps = self._steps_among(fetches)
        changing = ["init"] if steps is None else [s.name for s in steps if not s.read_only]
        if changing or steps is None:
            raise InvalidArgumentError(
                f"peek() cannot fetch {changing}: it changes the state. Use run(), or declare the step "
                "read_only."
            )
        if feed_dict:
            self._check_feeds(feed_dict)
        if not self._excludes(steps):
            return await self._execute(fetches, steps, feed_dict, read_only=True)
        self._check_not_inside("peek")
        async with self._between_steps():
            return await self._execute(fetches, steps, feed_dict, read_only=True)

    @abstractmethod
    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a snapshot of the state between two steps."""

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set entries of the state by name, between two steps; the others are unchanged.

        Raises:
            InvalidArgumentError: entries do not fit; the error lists all of them.
        """
        self._check_open()
        self._check_not_inside("load")
        async with self._between_steps():
            await self._load(dict(values))

    async def close(self) -> None:
        """Refuse further use, and wait for steps in threads. A second call does nothing.

        Raises:
            RuntimeError: a step calls this, and it would wait for that step.
        """
        self._check_not_inside("close")
        self._closed = True
        await self._workers.close()

    def computing(self) -> tuple[int, ...]:
        """Return the threads that compute a step now, by their idents."""
        return self._workers.computing()

    def abandon(self) -> None:
        """Let the run of a step that computes in a thread return at once; none can be interrupted.

        The step is not done. Its thread continues, and no further step is made.
        """
        if self._workers.computing():
            self._workers.abandon()
            self._run = self._refuse_run  # type: ignore[method-assign] # it costs other runs nothing

    async def _refuse_run(self, fetches: Any, feeds: Mapping[str, Any] | None) -> Any:
        raise FailedPreconditionError(
            "An earlier step is still computing in its thread, after a stop that did not wait for it "
            "any longer: the session makes no further step."
        )

    def inside(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether the calling code is part of a step that a task awaits.

        With None, whether it is part of the step that holds the lock.
        """
        call = inside_step.get()
        if call is None or task is None:
            return call is not None and call is self._holder
        return awaits(task, call)

    # -- implemented by subclasses

    def _excludes(self, steps: list[Step]) -> bool:
        """Return whether read-only steps wait for the lock, as steps that change the state do."""
        return True

    @abstractmethod
    async def _execute(
        self, fetches: Any, steps: list[Step], feeds: Mapping[str, Any] | None, *, read_only: bool
    ) -> Any:
        """Run steps as one transaction, and return the fetched values."""

    @abstractmethod
    async def _initialize(self) -> None:
        """Set the declared state."""

    @abstractmethod
    async def _load(self, values: dict[str, Any]) -> None:
        """Set entries of the state, which may include the global step, all of them or none."""

    @abstractmethod
    def _entry(self, name: str, state: Any) -> Any:
        """Return an entry of a state as a value of the host, or None."""

    @staticmethod
    def _on_host(value: Any) -> Any:
        """Copy a value in the result of a step to the host."""
        return value

    # -- for subclasses

    def _hold(self, call: T) -> T:
        """Note the call of a step that holds the lock and may use the session, and return it."""
        self._holder = call
        inside_step.set(call)
        return call

    def _check_not_inside(self, what: str) -> None:
        if self.inside(None):
            raise RuntimeError(
                f"{what}() was called from inside a step of the same session, and would wait for that "
                "step. Call the function of another step with the state of this one, such as "
                "`await other(state)`, and read this state; or make the call after the run."
            )

    @contextlib.asynccontextmanager
    async def _between_steps(self, place: asyncio.Future[None] | None = None) -> AsyncIterator[None]:
        """Hold the lock of the open session, asked for before or now."""
        await self._lock.wait(place)
        try:
            self._check_open()
            yield
        finally:
            self._holder = None  # else a task that peeked would be taken for a part of that step
            self._lock.release()

    def _fetched(self, fetches: Any, results: Mapping[str, Any], state: Any, step: int | None) -> Any:
        """Return the fetched values: of each a step's result, a value in one, the step, or an entry.

        Args:
            fetches: names and results of :func:`~asyncmon.programs.optional`, in any nesting.
            results: of the steps that ran, by name.
            state: after the run.
            step: the global step after the run; None if it is an entry of the state.

        Raises:
            NotFoundError: a name that the run does not have.
        """
        if type(fetches) is str and fetches in results:
            return results[fetches]

        return map_leaves(fetches, lambda fetch: self._value(fetch, results, state, step))

    def _value(self, fetch: Any, results: Mapping[str, Any], state: Any, step: int | None) -> Any:
        name = fetch.name if isinstance(fetch, OptionalFetch) else fetch
        if name in results:
            return results[name]
        for result in results.values():
            if isinstance(result, Mapping) and name in result:
                return self._on_host(result[name])
        if name == GLOBAL_STEP and step is not None:
            return np.int64(step)
        if (value := self._entry(name, state)) is not None:
            return value
        if isinstance(fetch, OptionalFetch):
            return fetch.default
        raise self._not_found(str(name), results)

    def _not_found(self, name: str, results: Mapping[str, Any]) -> NotFoundError:
        outputs = {key for result in results.values() if isinstance(result, Mapping) for key in result}
        if not results:  # the fetch of the caller, and not that of a hook beside a step
            known = self._program.contents()
            return NotFoundError(
                f"The program has no {name!r}: it has {known}. A value that a step returns needs "
                "the step among the fetches."
            )
        return NotFoundError(
            f"Nothing in this run is called {name!r}. Steps that ran: {list(results)}, which returned: "
            f"{sorted(map(str, outputs))}. The program has {self._program.contents()}. A hook beside "
            f"several steps fetches optional({name!r})."
        )

    def _pop_step(self, values: dict[str, Any], problems: list[str]) -> int:
        """Remove the global step from values to be loaded, and return it or the present one."""
        step = values.pop(GLOBAL_STEP, self._step)
        if (problem := misfit(GLOBAL_STEP, step, 0)) is not None:
            problems.append(problem)
            return self._step
        return int(step)

    def _steps_among(self, fetches: Any) -> list[Step] | None:
        """Return the steps to run, each once; None if the state is to be initialised."""
        names = leaves(fetches)
        if fetches is None or None in names:
            raise TypeError('Argument `fetch` = None has invalid type "NoneType". Cannot be None')
        if INITIALIZE in names:
            if steps := [name for name in names if name in self._steps]:
                raise InvalidArgumentError(
                    f"The state cannot be initialised in one run with the steps {steps}. Run the one, "
                    "then the other."
                )
            return None
        wrong = [name for name in names if not isinstance(name, str | OptionalFetch)]
        if wrong:
            raise TypeError(f"Fetches of functions are names, got {wrong[0]!r}.")
        return [self._steps[name] for name in dict.fromkeys(names) if name in self._steps]

    def _check_feeds(self, feeds: Mapping[str, Any]) -> None:
        if not isinstance(feeds, Mapping):
            raise TypeError(f"feed_dict must map the names of parameters to values, got {feeds!r}.")
        steps = self._steps.values()
        for name in feeds:
            for step in steps:
                if name in step.takes or step.takes_all:
                    break
            else:
                known = sorted({name for step in steps for name in step.takes})
                raise InvalidArgumentError(
                    f"No step has a parameter {name!r} to feed. There are: {known}."
                )

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
