"""Runs on the loop's thread, in one go that nothing can interrupt.

Those of plans that await nothing; and of plans whose awaited nodes need not wait: queue operations
where there is room, or an element.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.execution.commit import commit
from asyncmon.graph.execution.pace import TooLong
from asyncmon.graph.execution.plan import execute_bare
from asyncmon.graph.execution.run_state import Run
from asyncmon.graph.kernels.parallel import split_products

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.execution.plan import Instruction, Plan, Program
    from asyncmon.graph.execution.state import StateStore

__all__ = ["PATIENCE", "run_inline", "run_promptly"]


PATIENCE = 4  # limits that a loop may take before its run is left to a worker


def run_inline(
    plan: Plan, store: StateStore, fed: Sequence[Any], limit: float, size: int
) -> list[Any] | None:
    """Compute and commit a plan that awaits nothing. None if a loop in it goes on for too long.

    The run has not happened then. ``size`` is that of what is fed, see :meth:`Plan.size`.
    """
    start = perf_counter()
    program = plan.for_shapes(fed)
    registers = plan.start(fed)
    plan.load(registers, store.values)
    run = Run({}, store.values[0]) if plan.uses_run else None
    if run is not None and plan.can_begin_anew:
        run.until = start + PATIENCE * limit
    try:
        results = _finish(plan, program, store, registers, run)
    except TooLong:
        plan.pace.overran(limit)
        return None
    plan.pace.took(perf_counter() - start, limit, size)
    return results


def run_promptly(
    plan: Plan,
    store: StateStore,
    resources: dict[Any, Any],
    fed: Sequence[Any],
    limit: float,
    size: int,
) -> list[Any] | None:
    """Compute and commit a plan that awaits something. None if it would have to wait, or take long.

    The run has not happened then: what it had taken from queues is back in its place.
    """
    start = perf_counter()
    program = plan.for_shapes(fed)
    registers = plan.start(fed)
    run = Run(resources, store.values[0])
    if plan.can_begin_anew:
        run.until = start + PATIENCE * limit
    try:
        if plan.prelude is not None and not plan.prelude.run_now(run, registers):
            return None
        plan.load(registers, store.values)
        if plan.stage is not None and not plan.stage.run_now(run, registers):
            return None
        results = _finish(plan, program, store, registers, run)
        run.committed = True
    except TooLong:
        plan.pace.overran(limit)
        return None
    finally:
        run.settle()
    plan.pace.took(perf_counter() - start, limit, size)
    return results


@np.errstate(all="ignore")
def _finish(
    plan: Plan, program: Program, store: StateStore, registers: list[Any], run: Run | None
) -> list[Any]:
    arena = store.take_arena()
    try:
        program.place(arena, registers)
        if program.heavy:
            with split_products():
                return _computed(plan, store, program.code, registers, run)
        return _computed(plan, store, program.code, registers, run)
    finally:
        store.give_arena(arena)


def _computed(
    plan: Plan,
    store: StateStore,
    code: list[Instruction],
    registers: list[Any],
    run: Run | None,
) -> list[Any]:
    execute_bare(code, registers, run)
    results = plan.results(registers)  # before an update in place changes what was read
    if plan.locks:
        commit(plan, store, registers)
    return results
