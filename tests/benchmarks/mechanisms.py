"""What each mechanism of the executor wins: ``python tests/benchmarks/mechanisms.py [row ...]``.

Rows: arena, groups, no-task. A session with one mechanism switched off takes turns with a session that
has it, in one process; the best turn counts. A mechanism that wins less than 5 % of the rows that it is
for does not stay.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import models
import queues
from engine import LOOP, Ours, verdict
from harness import Row, command, take_turns

import asyncmon.graph as g
from asyncmon.graph.core.op import AwaitedOpDef, table
from asyncmon.graph.execution import compiler, update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Off = tuple[tuple[dict[str, Any], str, Any], ...]
"""What switches a mechanism off: a module's names or the table of ops, a name, and its replacement."""


def _in_a_task(record: AwaitedOpDef) -> AwaitedOpDef:
    """Return the record of an awaited op whose kernel always gets a task."""
    off = {"nowait": False, "attempt": None}
    return replace(record, **{one.name: off[one.name] for one in fields(record) if one.name in off})


NO_ARENA: Off = ((vars(compiler), "plan_memory", lambda code, *_: (list(code), {})),)
NO_GROUPS: Off = ((vars(update), "_kind", lambda _update: None),)
WITH_TASKS: Off = tuple(
    (table, name, _in_a_task(record))
    for name, record in table.items()
    if isinstance(record, AwaitedOpDef)
)


@contextmanager
def without(mechanism: Off) -> Iterator[None]:
    """Switch a mechanism off inside ``with``, for plans that are compiled and run there."""
    kept = [(names, name, names[name]) for names, name, _ in mechanism]
    try:
        for names, name, other in mechanism:
            names[name] = other
        yield
    finally:
        for names, name, value in kept:
            names[name] = value


def compared(work: str, mechanism: Off, turn: Callable[[], Callable[[], float]]) -> Row:
    """Measure turns with the mechanism and without it.

    Args:
        work: the name of the row.
        mechanism: it is on or off while ``turn`` is called, and in each call of its result.
        turn: opens a session; returns a function that returns the seconds of a step.
    """
    ours = turn()
    with without(mechanism):
        other = turn()

    def off() -> float:
        with without(mechanism):
            return other()

    found = take_turns({"ours": ours, "without": off}, rounds=11, take=min)
    return verdict(work, found, {"without": 0.95}, "0.95x without")


def trained(build: Callable[[], models.Model], shape: list[int], steps: int) -> Callable[[], float]:
    session = Ours(build, shape)
    session(20)
    return lambda: session(steps)


def arena() -> list[Row]:
    """The values of smaller layers cost nothing to allocate; of larger ones the products take the step.

    So (784, 128, 10) takes 0.9 to 1.0 of the time without, and (1024, 2048, 2048, 10) 0.96.
    """

    def large() -> models.Model:
        return models.mlp(g, [784, 512, 512, 10])

    return [compared("arena: mlp-784-512", NO_ARENA, lambda: trained(large, [128, 784], 40))]


def groups() -> list[Row]:
    def small() -> models.Model:
        return models.mlp(g, [64, 32, 10])

    return [compared("update groups: mlp-small", NO_GROUPS, lambda: trained(small, [32, 64], 1000))]


def no_task() -> list[Row]:
    return [compared("no task: shuffle_batch, an example", WITH_TASKS, lambda: queues.shuffled)]


if __name__ == "__main__":
    with LOOP:
        sys.exit(
            command(
                "mechanisms of the executor", {"arena": arena, "groups": groups, "no-task": no_task}
            )
        )
