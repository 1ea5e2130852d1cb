"""A running function program: its state, and its steps one after another."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, ItemsView, Iterator, Mapping, ValuesView
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.programs.named_fetches import GLOBAL_STEP
from asyncmon.programs.outside_state import OutsideState
from asyncmon.programs.state_tree import (
    Arrays,
    Tree,
    adopt,
    first_change,
    flatten,
    misfits,
    replace_leaves,
    unwritable,
    with_fresh_arrays,
)
from asyncmon.programs.stepped_session import SteppedSession
from asyncmon.programs.steps import Step
from asyncmon.programs.workers import timed
from asyncmon.runtime.stop.origin import mark
from asyncmon.session_config import SessionConfig
from asyncmon.system.error_text import add_note, text_of
from asyncmon.system.files import in_thread
from asyncmon.system.inside_step import inside_step
from asyncmon.system.snapshot import Snapshot

_READ_ONLY = (
    "asyncmon: arrays of the saved state are read-only. For a model that writes into them in place, "
    "set_state stores copies (`model.coef_ = state['coef'].copy()`); a read_only step writes to a copy."
)


class FunctionSession(SteppedSession):
    """A running :class:`~asyncmon.programs.FunctionProgram`; its ``create_session`` makes it.

    Args:
        program: for :attr:`graph`.
        state: the declared state.
        steps: by name.
        config: for the threads of steps that block.
        outside: the owner of the state, if it is not the session.
        copies: returns a program with objects of its own, for peeks.
    """

    def __init__(
        self,
        program: Any,
        state: Tree,
        steps: Mapping[str, Step],
        config: SessionConfig | None = None,
        outside: OutsideState | None = None,
        copies: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(program, config)
        self._copies = copies
        self._peeks: FunctionSession | None = None
        self._peeked: Tree = None  # the state that it has
        self._steps = steps
        self._declared = state
        self._tree = state
        self._counts = GLOBAL_STEP not in state
        self._outside = outside
        self.transactional = outside is None
        """Whether a run that failed has changed nothing."""

    @property
    def global_step(self) -> int:
        """The number of completed steps."""
        return self._step if self._counts else int(self._tree[GLOBAL_STEP])

    # -- steps

    async def peek(self, fetches: Any, feed_dict: Mapping[str, Any] | None = None) -> Any:
        """Return entries of the state and results of read-only steps, of one version of the state.

        Neither waits for a step that trains nor delays one, but for steps of objects with a
        ``get_state`` and without a ``copy``: these have the objects between two of them.

        Raises:
            InvalidArgumentError: a step among the fetches may change the state.
            RuntimeError: the session is closed, or a step calls this that it would wait for.
        """
        self._check_open()
        if self._copies is None or not self._steps_among(fetches):
            return await super().peek(fetches, feed_dict)
        tree = self._tree
        if self._peeks is None:
            self._peeks = self._copies().create_session(config=self._workers.config)
            self._peeks._copies = None  # it is one itself
        if self._peeked is not tree:
            self._peeked = tree
            try:
                await self._peeks.load(self._entries(tree))
            except BaseException:
                self._peeked = None  # a peek that is cancelled leaves an older state in the copy
                raise
        return await self._peeks.peek(fetches, feed_dict)

    async def close(self) -> None:
        """Refuse further use, and wait for steps in threads. A second call does nothing."""
        self._check_not_inside("close")
        try:
            await super().close()
        finally:
            if self._peeks is not None:
                await self._peeks.close()

    def _excludes(self, steps: list[Step]) -> bool:
        """Return whether another step could change the objects that these read."""
        return self._outside is not None and bool(steps)

    async def _execute(
        self, fetches: Any, steps: list[Step], feeds: Mapping[str, Any] | None, *, read_only: bool
    ) -> Any:
        if not read_only:
            return await self._transact(fetches, steps, feeds)
        tree, step = self._tree, self._step  # another step may commit while this one waits
        if self._outside is not None and steps:
            async with self._outside.borrowed(tree, self._workers, self):
                results = {one.name: await self._run_read_only(one, None, feeds) for one in steps}
        else:
            results = {one.name: await self._run_read_only(one, tree, feeds) for one in steps}
        return self._fetched(fetches, results, tree, step if self._counts else None)

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
            else:
                results[one.name] = await self._call(one, working, feeds)
        if before:
            problems: list[str] = []
            unshared = working.unshared()
            tree = adopt(working.current(), before, unshared, problems)
            if problems:
                raise TypeError(
                    f"The steps {list(results)} left a state of another form than was declared, and "
                    f"nothing of it is kept: {'; '.join(problems)}."
                )
        fetched = self._fetched(fetches, results, tree, step if self._counts else None)
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
            fetched = self._fetched(fetches, results, tree, step if self._counts else None)
        except BaseException:
            if not self._workers.abandoned:  # a thread still changes the objects
                await outside.set(before, self._workers, self)
            raise
        self._tree, self._step = tree, step
        return fetched

    def _entries(self, tree: Tree) -> dict[str, Any]:
        values = {name: np.asarray(value) for name, value in flatten(tree).items()}
        if self._counts:
            values[GLOBAL_STEP] = np.asarray(self._step, np.int64)
        return values

    def _entry(self, name: str, state: Tree) -> Any:
        return flatten(state).get(name)

    async def _call(self, step: Step, state: Any, feeds: Mapping[str, Any] | None) -> Any:
        """Call a step, a plain one in a worker if it is long by measurement."""
        try:
            if step.is_async:
                call = step(state, feeds)
                if not step.read_only or self._outside is not None:
                    self._holder = call
                inside_step.set(call)  # as _hold() does; a call of it would take time in each step
                return await call
            work, workers = partial(step, state, feeds), self._workers
            if workers.is_inline(step.cost, step.thread):
                result = timed(work, step.cost, workers.limit)
            else:
                call = workers.call(work, step.cost, True, step=not step.read_only)
                result = await (call if step.read_only else self._hold(call))
            if isinstance(result, Awaitable):
                if step.thread is None:
                    step.thread = False  # it belongs to the loop
                return await (result if step.read_only else self._hold(result))
            return result
        except Exception as error:
            if isinstance(error, ValueError) and "read-only" in text_of(error):
                add_note(error, _READ_ONLY)  # numpy's text, and that of Cython's views
            mark(error, "step", f"the step {step.name!r}")
            raise

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

    # -- state

    async def _initialize(self) -> None:
        await self._put(self._declared, 0)

    async def _put(self, tree: Tree, step: int) -> None:
        if self._outside is not None and self._outside.owner_beside(self) is None:
            await self._outside.set(tree, self._workers, self)
        self._tree, self._step = tree, step

    @property
    def tree(self) -> Tree:
        """The present state."""
        return self._tree

    def between_steps(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager that lets no step run inside the block.

        Raises:
            RuntimeError: a step asks for it, and would wait for itself.
        """
        self._check_not_inside("an evaluation")
        return self._between_steps()

    def owns(self, entry: str) -> bool:
        """Return whether an entry is in the declared state."""
        return entry == GLOBAL_STEP or entry in flatten(self._declared)

    def snapshot(self) -> Awaitable[Snapshot]:
        """Take a snapshot now, at no cost: a step never writes into an array of the state."""
        self._check_open()
        values = self._entries(self._tree)
        taken = asyncio.get_running_loop().create_future()
        taken.set_result(Snapshot(values, self.global_step))
        return taken

    async def _load(self, values: dict[str, Any]) -> None:
        present = flatten(self._tree)
        problems: list[str] = []
        step = self._pop_step(values, problems) if self._counts else self._step
        problems += misfits(values, present)
        if problems:
            raise InvalidArgumentError(f"Nothing was loaded: {'; '.join(problems)}.")
        # The copy of a large state would hold the event loop.
        await self._put(await in_thread(replace_leaves, self._tree, values), step)


_MUTABLE = (np.ndarray, dict, list)


class CopyOnAccess(dict[str, Any]):
    """The state for one step, which may change it without changing the previous state.

    An entry is deep-copied when the step first reads it; other entries cost nothing. Apart from that it
    is a ``dict`` of arrays, numbers and plain dicts and lists of these.

    Args:
        state: the previous state.
    """

    __slots__ = ("_state", "copies")

    def __init__(self, state: dict[str, Tree]) -> None:
        super().__init__(state)
        self._state = state
        self.copies: Arrays = {}
        """The arrays handed to the step, by ``id``."""

    def __getitem__(self, key: str) -> Tree:
        value = super().__getitem__(key)
        if value.__class__ in _MUTABLE and value is self._state.get(key):
            value = with_fresh_arrays(value, self.copies)
            super().__setitem__(key, value)
        return value

    def current(self) -> dict[str, Tree]:
        """Return names and values; entries that were not read have their previous values."""
        return dict(super().items())

    def unshared(self) -> Arrays:
        """Return the arrays handed to the step to which only this state refers."""
        # Other arrays could still be written by code that keeps them or a view of them.
        if not self.copies:
            return self.copies
        counts = self._references()
        return {i: array for i, array in self.copies.items() if counts[i] <= _UNSHARED}

    def _references(self) -> dict[int, int]:
        return {i: sys.getrefcount(array) for i, array in self.copies.items()}

    # All other ways of a dict to read values, through __getitem__.

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def pop(self, key: str, *default: Any) -> Any:
        if key not in self:
            return super().pop(key, *default)
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        for key in reversed(self):
            return key, self.pop(key)
        return super().popitem()

    def setdefault(self, key: str, default: Any = None) -> Any:
        super().setdefault(key, default)
        return self[key]

    def values(self) -> Any:
        return ValuesView(self)

    def items(self) -> Any:
        return ItemsView(self)

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __iter__(self) -> Iterator[str]:  # makes dict(state) and {**state} call __getitem__
        return super().__iter__()

    def __or__(self, other: Any) -> Any:
        return dict(self).__or__(other)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _references_of_unshared() -> int:
    state = CopyOnAccess({"array": np.zeros(0)})
    state["array"]
    return max(state._references().values())


# The count of references to an array that is in one place of the state only, on this interpreter.
_UNSHARED = _references_of_unshared()
