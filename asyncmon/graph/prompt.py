"""Runs with awaited nodes that need not wait: queue operations where there is room, or an element."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from asyncmon.graph.commit import commit
from asyncmon.graph.plan import execute
from asyncmon.graph.run_state import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.plan import Plan
    from asyncmon.graph.state import StateStore

__all__ = ["run_promptly"]


def run_promptly(
    plan: Plan, store: StateStore, resources: dict[Any, Any], fed: Sequence[Any], limit: float
) -> list[Any] | None:
    """Compute and commit on the loop's thread, in one go. None if it would have to wait for something.

    The run has not happened then: what it had taken from queues is back in its place.
    """
    start = perf_counter()
    registers = plan.start(fed)
    run = Run(resources, store.values[0])
    try:
        if plan.prelude is not None and not plan.prelude.run_now(run, registers):
            return None
        plan.load(registers, store.values)
        if plan.stage is not None and not plan.stage.run_now(run, registers):
            return None
        execute(plan.code, registers, run)
        results = plan.results(registers)
        if plan.locks:
            commit(plan, store, registers)
        run.committed = True
    finally:
        run.settle()
    plan.took(perf_counter() - start, limit)
    return results
