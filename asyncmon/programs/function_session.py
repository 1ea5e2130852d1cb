"""A running function program: its state, and its steps one after another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Coroutine, Generator, Mapping
from functools import partial
from typing import Any

import numpy as np

from asyncmon.errors import DeadlineExceededError, InvalidArgumentError
from asyncmon.programs.copy_on_access import CopyOnAccess
from asyncmon.programs.fetches import GLOBAL_STEP as GLOBAL_STEP
from asyncmon.programs.fetches import OptionalFetch, fetched_value
from asyncmon.programs.fetches import leaves as leaves
from asyncmon.programs.fetches import map_leaves as map_leaves
from asyncmon.programs.outside_state import OutsideState
from asyncmon.programs.state_tree import (
    Tree,
    adopt,
    first_change,
    flatten,
    misfit,
    replace_leaves,
    unwritable,
)
from asyncmon.programs.steps import Step
from asyncmon.programs.workers import Workers
from asyncmon.session_config import SessionConfig
from asyncmon.system.fair_lock import FairLock
from asyncmon.system.loop_budget import LoopBudget
from asyncmon.system.snapshot import Snapshot


class _Initialize:
    """The fetch that sets the declared state."""

    name = "init"

    def __repr__(self) -> str:
        return "<initialise the state>"


INITIALIZE = _Initialize()


class FunctionSession:
    """A running :class:`~asyncmon.programs.FunctionProgram`; its ``create_session`` makes it.

    Args:
        program: for :attr:`graph`.
        state: the declared state.
        steps: by name.
        config: for the threads of steps that block.
        outside: the owner of the state, if it is not the session.
    """

    def __init__(
        self,
        program: Any,
        state: Tree,
        steps: Mapping[str, Step],
        config: SessionConfig | None = None,
        outside: OutsideState | None = None,
    ) -> None:
        self._program = program
        self._declared = state
        self._tree = state
        self._steps = steps
        self._counts = GLOBAL_STEP not in state
        self._step = 0
        self._lock = FairLock()
        self._workers = Workers(config)
        self._outside = outside
        self._closed = False

    @property
    def graph(self) -> Any:
        """The program."""
        return self._program

    @property
    def global_step(self) -> int:
        """The number of completed steps."""
        return self._step if self._counts else int(self._tree[GLOBAL_STEP])

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
            RuntimeError: the session is closed.
            NotFoundError: a name that is not in this run; the state is unchanged.
            TypeError: a fetch that is no name, or a step that left a state of another form.
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
        if steps is not None and read_only:
            return await self._compute(fetches, steps, feeds)
        lock = self._lock
        if lock.held:
            await lock.wait()
        else:
            lock.held = True
        try:
            self._check_open()
            if steps is None:
                await self._initialize()
                return map_leaves(fetches, lambda _: None)
            return await self._transact(fetches, steps, feeds)
        finally:
            lock.release()

    async def _initialize(self) -> None:
        """Set the declared state."""
        await self._put(self._declared, 0)

    async def _put(self, tree: Tree, step: int) -> None:
        if self._outside is not None:
            await self._outside.set(tree, self._workers, self)
        self._tree, self._step = tree, step

    async def _transact(self, fetches: Any, steps: list[Step], feeds: Mapping[str, Any] | None) -> Any:
        tree = before = self._tree
        step = self._step + 1
        if (outside := self._outside) is not None:
            return await self._transact_outside(outside, fetches, steps, feeds)
        working = CopyOnAccess(before)
        results = {}
        for one in steps:
            if one.read_only and before:
                results[one.name] = await self._run_read_only(one, unwritable(working.current()), feeds)
            elif one.is_async:
                results[one.name] = await one(working, feeds)
            else:
                results[one.name] = await self._call_plain(one, working, feeds)
        if before:
            problems: list[str] = []
            unshared = working.unshared()
            tree = adopt(working.current(), before, unshared, problems)
            if problems:
                raise TypeError(
                    f"The steps {list(results)} left a state of another form than was declared, and "
                    f"nothing of it is kept: {'; '.join(problems)}."
                )
        fetched = self._fetched(fetches, results, tree, step)
        self._tree, self._step = tree, step
        return fetched

    async def _transact_outside(
        self, outside: OutsideState, fetches: Any, steps: list[Step], feeds: Any
    ) -> Any:
        before, step = self._tree, self._step + 1
        await outside.own(before, self._workers, self)
        try:
            results = {one.name: await self._call(one, None, feeds) for one in steps}
            tree = await outside.get(before, self._workers)
            fetched = self._fetched(fetches, results, tree, step)
        except BaseException:
            await outside.set(before, self._workers, self)
            raise
        self._tree, self._step = tree, step
        return fetched

    async def _compute(self, fetches: Any, steps: list[Step], feeds: Mapping[str, Any] | None) -> Any:
        if self._outside is not None and steps:
            async with self._lock:  # another step must not change the objects that they read
                self._check_open()
                await self._outside.own(self._tree, self._workers, self)
                return await self._compute_now(fetches, steps, feeds)
        return await self._compute_now(fetches, steps, feeds)

    async def _compute_now(self, fetches: Any, steps: list[Step], feeds: Any) -> Any:
        step = self._step
        tree = self._tree  # another step may commit while this one waits
        if self._outside is None:
            results = {one.name: await self._run_read_only(one, tree, feeds) for one in steps}
        else:
            results = {one.name: await self._call(one, None, feeds) for one in steps}
        return self._fetched(fetches, results, tree, step)

    def _fetched(self, fetches: Any, results: Mapping[str, Any], tree: Tree, step: int) -> Any:
        """Return the fetched values, with the state and the step after the run."""
        if type(fetches) is str and fetches in results:
            return results[fetches]
        number = step if self._counts else None

        def entry(name: str) -> Any:
            return flatten(tree).get(name)

        def described() -> str:
            return f"the steps {list(self._steps)}, and the entries {list(flatten(tree))} of the state"

        return map_leaves(fetches, lambda name: fetched_value(name, results, number, entry, described))

    async def _call(self, step: Step, state: Any, feeds: Mapping[str, Any] | None) -> Any:
        if step.is_async:
            return await step(state, feeds)
        return await self._call_plain(step, state, feeds)

    async def _call_plain(self, step: Step, state: Any, feeds: Mapping[str, Any] | None) -> Any:
        """Call a plain function: in a worker if it is long by measurement, else inline."""
        workers = self._workers
        inline = not step.thread and (step.thread is False or step.cost.is_short(workers.limit))
        if inline:
            start = time.perf_counter()
            result = step(state, feeds)
            step.cost.observe(time.perf_counter() - start, workers.limit)
        else:
            work = partial(step, state, feeds)
            result = await workers.call(work, step.cost, True, step=not step.read_only)
        if isinstance(result, Awaitable):
            if step.thread is None:
                step.thread = False  # it belongs to the loop
            return await result
        return result

    async def _run_read_only(self, step: Step, state: Tree, feeds: Mapping[str, Any] | None) -> Any:
        """Run a read-only step on unwritable arrays, and check that it left the containers as well."""
        given = unwritable(state)
        result = await self._call(step, given, feeds)
        if state and (changed := first_change(given, state)) is not None:
            raise TypeError(
                f"The step {step.name!r} is read_only, and set {changed}, which is not kept. Declare "
                "it without read_only, or let it return the value."
            )
        return result

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
        steps = self._steps.values()
        for name in feeds:
            if not any(name in step.takes or step.takes_all for step in steps):
                known = sorted({name for step in steps for name in step.takes})
                raise InvalidArgumentError(
                    f"No step has a parameter {name!r} to feed. There are: {known}."
                )

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")

    async def peek(self, fetches: Any, feed_dict: Mapping[str, Any] | None = None) -> Any:
        """Return entries of the state and results of read-only steps, of one version of the state.

        Raises:
            InvalidArgumentError: a step among the fetches may change the state.
            RuntimeError: the session is closed.
        """
        self._check_open()
        if feed_dict:
            self._check_feeds(feed_dict)
        steps = self._steps_among(fetches)
        changing = ["init"] if steps is None else [s.name for s in steps if not s.read_only]
        if changing or steps is None:
            raise InvalidArgumentError(
                f"peek() cannot fetch {changing}: it changes the state. Use run(), or declare the step "
                "read_only."
            )
        return await self._compute(fetches, steps, feed_dict)

    def snapshot(self) -> Awaitable[Snapshot]:
        """Take a snapshot now, at no cost: a step never writes into an array of the state."""
        self._check_open()
        values = {name: np.asarray(value) for name, value in flatten(self._tree).items()}
        if self._counts:
            values[GLOBAL_STEP] = np.asarray(self._step, np.int64)
        return _Ready(Snapshot(values, self.global_step))

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set entries of the state by name, between two steps; the others are unchanged.

        Raises:
            InvalidArgumentError: entries do not fit; the error lists all of them.
        """
        self._check_open()
        async with self._lock:
            self._check_open()
            present = flatten(self._tree) | ({GLOBAL_STEP: 0} if self._counts else {})
            unknown = [
                f"{name!r} is not an entry of the state, which has {list(present)}"
                for name in values
                if name not in present
            ]
            known = [name for name in values if name in present]
            problems = unknown + [p for n in known if (p := misfit(n, values[n], present[n]))]
            if problems:
                raise InvalidArgumentError(f"Nothing was loaded: {'; '.join(problems)}.")
            step = int(values[GLOBAL_STEP]) if self._counts and GLOBAL_STEP in values else self._step
            await self._put(replace_leaves(self._tree, values), step)

    async def close(self) -> None:
        """Refuse further use, and wait for steps in threads. A second call does nothing."""
        self._closed = True
        await self._workers.close()


class _Ready:
    """An awaitable of an available value."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __await__(self) -> Generator[Any, None, Snapshot]:
        yield from ()  # makes this a generator, which is what __await__ has to return
        return self._snapshot
