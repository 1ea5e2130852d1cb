"""A running JAX program: its pytree, and its steps one after another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from asyncmon.errors import AbortedError, InvalidArgumentError
from asyncmon.programs.jax.state import copied, host_entries, is_deleted, to_host
from asyncmon.programs.named_fetches import GLOBAL_STEP, leaves
from asyncmon.programs.state_tree import misfits
from asyncmon.programs.stepped_session import SteppedSession
from asyncmon.programs.steps import Step
from asyncmon.programs.workers import timed
from asyncmon.session_config import SessionConfig
from asyncmon.system.cost import CostModel
from asyncmon.system.snapshot import Snapshot

_UNKNOWN = float(1 << 18)  # a first run goes to a worker: it compiles


@dataclass(slots=True)
class _Plan:
    """Runs of some steps with feeds of some shapes: their time, and the names that they have."""

    cost: CostModel = field(default_factory=lambda: CostModel(_UNKNOWN))
    dispatch: CostModel = field(default_factory=CostModel)
    names: set[Any] = field(default_factory=set)


class JaxSession(SteppedSession):
    """A running :class:`JaxProgram`; its ``create_session`` makes it.

    Args:
        program: whose state and steps it has.
        config: see :meth:`JaxProgram.create_session`.
    """

    _on_host = staticmethod(to_host)

    def __init__(self, program: Any, config: SessionConfig | None) -> None:
        super().__init__(program, config)
        self._leaves, self._structure = program.leaves, program.structure
        self._state: Any = None  # the pytree, once it is needed
        self._plans: dict[Any, _Plan] = {}
        self._copying = CostModel(_UNKNOWN)
        self.transactional = not program.donates
        """Whether a run that failed has changed nothing. Arrays that were donated are lost."""

    # -- steps

    def _excludes(self, steps: list[Step]) -> bool:
        """Return whether another step would take the arrays that these read."""
        return bool(self._program.donates)

    async def _execute(self, fetches: Any, steps: list[Step], feeds: Any, *, read_only: bool) -> Any:
        await self._prepare()
        shapes = [(x.shape, x.dtype) for x in jax.tree_util.tree_leaves(feeds) if hasattr(x, "dtype")]
        key = (*[one.name for one in steps], *shapes)
        plan = self._plans.get(key) or self._plans.setdefault(key, _Plan())
        made: list[Any] = []  # the state after the run, once it is computed
        dispatch = partial(self._dispatch, plan, fetches, steps, feeds, self._state, made)
        workers, limit = self._workers, self._workers.limit
        is_quick = plan.dispatch.average and plan.dispatch.is_short(limit)
        try:
            if is_quick and not plan.cost.is_short(limit) and plan.names.issuperset(_names(fetches)):
                finish = timed(dispatch, plan.dispatch, limit)
                return await workers.call(finish, plan.cost, True)
            return await workers.call(partial(self._run_all, plan, dispatch), plan.cost)
        except Exception as error:
            if not made and not workers.abandoned and is_deleted(self._state):
                raise _lost(steps) from error
            raise
        finally:
            if not made:
                self._broken = _lost(steps) if is_deleted(self._state) else None
            elif not read_only:
                self._state, self._step = made[0], self._step + 1

    def abandon(self) -> None:
        """Let the run of a step return that computes in a thread, and may have taken the state."""
        super().abandon()
        if self._workers.abandoned and self._program.donates:
            self._broken = _lost([])

    def _run_all(self, plan: _Plan, dispatch: Callable[[], Callable[[], Any]]) -> Any:
        """Compute, in any thread."""
        known = bool(plan.cost.average)  # else this compiles
        start = time.perf_counter()
        finish = dispatch()
        if known:
            plan.dispatch.observe(time.perf_counter() - start, self._workers.limit)
        return finish()

    def _dispatch(
        self, plan: _Plan, fetches: Any, steps: list[Step], feeds: Any, before: Any, made: list[Any]
    ) -> Callable[[], Any]:
        """Start the computation on the devices.

        Returns:
            A function that waits for it, adds the new state to ``made`` and returns the fetched values.
        """
        state, number = before, self._step
        results: dict[str, Any] = {}
        wanted = _names(fetches)
        if not plan.names.issuperset(wanted):
            plan.names |= self._checked(steps, feeds, state, wanted)
        for one in steps:
            if one.read_only:
                results[one.name] = one(state, feeds)
            else:
                state, results[one.name] = one(state, feeds)
                number = self._step + 1

        def finish() -> Any:
            jax.block_until_ready((state, results))
            if is_deleted(before):
                made.append(state)  # also if a value cannot be fetched
            found = self._fetched(fetches, results, state, number)
            if not made:
                made.append(state)
            return found

        return finish

    def _checked(self, steps: list[Step], feeds: Any, state: Any, wanted: list[Any]) -> set[Any]:
        """Return the names that are fetched, if all are known and the steps keep the state's form.

        Traces the steps and computes nothing.
        """
        outputs: dict[str, Any] = {}
        form = jax.eval_shape(lambda: state)
        for one in steps:
            made = jax.eval_shape(partial(one, feeds=feeds), form)
            if one.read_only:
                outputs[one.name] = made
                continue
            if not isinstance(made, tuple) or len(made) != 2:
                raise TypeError(
                    f"The step {one.name!r} must return (state, outputs), returned {made!r}. Declare "
                    "it with read_only=True if it returns outputs only."
                )
            self._check_form(one.name, made[0], form)
            outputs[one.name] = made[1]
        for name in wanted:
            self._value(name, outputs, form, 0)
        return set(wanted)

    def _check_form(self, step: str, made: Any, form: Any) -> None:
        found, structure = jax.tree_util.tree_flatten(made)
        if structure != self._structure:
            raise TypeError(
                f"The step {step!r} returned a state of another structure: expected {self._structure}, "
                f"found {structure}."
            )
        expected = jax.tree_util.tree_leaves(form)
        for leaf, new, old in zip(self._leaves, found, expected, strict=True):
            if (new.shape, new.dtype) != (old.shape, old.dtype):
                raise TypeError(
                    f"The step {step!r} returned the entry {leaf.name!r} with shape {new.shape} and "
                    f"dtype {new.dtype}; it must keep shape {old.shape} and dtype {old.dtype}."
                )

    def _entry(self, name: str, state: Any) -> Any:
        for leaf, array in zip(self._leaves, jax.tree_util.tree_leaves(state), strict=True):
            if leaf.name == name:
                value = to_host(array)
                return np.array(value) if isinstance(value, np.ndarray) else value
        return None

    # -- state

    async def _initialize(self) -> None:
        await self._workers.call(self._make, self._copying)
        self._step, self._broken = 0, None

    async def _prepare(self) -> None:
        """Make the state, or raise why it is lost."""
        if self._broken is not None:
            raise self._broken
        if self._state is None:
            await self._workers.call(self._make, self._copying)

    def _make(self, values: Mapping[str, Any] | None = None) -> None:
        """Set the state to the declared values, or the entries among the present one to others."""
        present: Any = [None] * len(self._leaves)
        if values is not None and self._state is not None and self._broken is None:
            present = jax.tree_util.tree_leaves(self._state)
        given = values or {}
        arrays = [
            leaf.put(given.get(leaf.name)) if old is None or leaf.name in given else old
            for leaf, old in zip(self._leaves, present, strict=True)
        ]
        self._state = jax.block_until_ready(jax.tree_util.tree_unflatten(self._structure, arrays))

    def owns(self, entry: str) -> bool:
        """Return whether an entry is in the declared state."""
        return entry == GLOBAL_STEP or any(entry == leaf.name for leaf in self._leaves)

    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a snapshot; where steps donate, the next one waits until it is copied on the device."""
        self._check_open()
        if self._program.donates or self._state is None:
            return asyncio.ensure_future(self._copied_snapshot(self._lock.ask()))
        arrays = jax.tree_util.tree_leaves(self._state)
        return asyncio.ensure_future(self._pulled(arrays, self._step))

    async def _copied_snapshot(self, place: asyncio.Future[None]) -> Snapshot:
        async with self._between_steps(place):
            await self._prepare()
            arrays, step = jax.tree_util.tree_leaves(self._state), self._step
            if self._program.donates:
                arrays = await self._workers.call(partial(copied, arrays), self._copying)
        return await self._pulled(arrays, step)

    async def _pulled(self, arrays: list[Any], step: int) -> Snapshot:
        work = partial(host_entries, self._leaves, arrays)
        values = await self._workers.call(work, CostModel(_UNKNOWN), step=False)
        return Snapshot(values | {GLOBAL_STEP: np.asarray(step, np.int64)}, step)

    async def _load(self, values: dict[str, Any]) -> None:
        problems: list[str] = []
        step = self._pop_step(values, problems)
        problems += misfits(values, {leaf.name: leaf.form for leaf in self._leaves})
        missing = [leaf.name for leaf in self._leaves if leaf.name not in values]
        if self._broken is not None and missing:
            problems.append(f"the state is lost, and {missing} are missing")
        if problems:
            raise InvalidArgumentError(f"Nothing was loaded: {'; '.join(problems)}.")
        await self._workers.call(partial(self._make, values), self._copying)
        self._step, self._broken = step, None


def _names(fetches: Any) -> list[Any]:
    return [fetches] if fetches.__class__ is str else leaves(fetches)


def _lost(steps: list[Step]) -> AbortedError:
    return AbortedError(
        f"{[one.name for one in steps]} failed after the state was donated, so it is lost. Restore a "
        "checkpoint; a monitored session does so at its next run."
    )
