"""What each mechanism of the executor wins: ``python tests/benchmarks/mechanisms.py [row ...]``.

Rows: arena, groups, attempt. A session with one mechanism switched off takes turns with a session that
has it, in one process; the best turn counts. A mechanism that wins less than 5 % of the rows that it is
for does not stay.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import models
import queues
from engine import LOOP, Ours, verdict
from harness import Row, command, take_turns

import asyncmon.graph as g
from asyncmon.graph.execution import awaits, compiler, executor, update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Off = tuple[tuple[object, str, Any], ...]
"""The members that switch a mechanism off: owner, name and what stands in their place."""

NO_ARENA: Off = ((compiler, "plan_memory", lambda code, *_: (list(code), {})),)
NO_GROUPS: Off = ((update, "_kind", lambda _update: None),)


def _start_with_a_task(node: Any, *args: Any, start: Any = awaits._start) -> bool:
    """Start awaiting a node in a task, whether or not it has to wait."""
    nowait, node.nowait = node.nowait, False
    try:
        done: bool = start(node, *args)
    finally:
        node.nowait = nowait
    return done


NO_ATTEMPT: Off = (
    (executor.Executor, "_may_attempt", lambda *_: False),
    (awaits.Stage, "attempt", lambda *_: 0),
    (awaits, "_start", _start_with_a_task),
)


@contextmanager
def without(mechanism: Off) -> Iterator[None]:
    """Switch a mechanism off inside ``with``, for plans that are compiled and run there."""
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in mechanism]
    for owner, name, other in mechanism:
        setattr(owner, name, other)
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


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


def many_variables() -> models.Model:
    """Fifty layers of few units: a hundred small variables with Adam."""
    return models.mlp(g, [16] * 50 + [10])


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

    return [
        compared("update groups: mlp-small", NO_GROUPS, lambda: trained(small, [32, 64], 1000)),
        compared(
            "update groups: 100 variables", NO_GROUPS, lambda: trained(many_variables, [32, 16], 200)
        ),
    ]


def attempt() -> list[Row]:
    return [
        compared("attempt: enqueue op + dequeue op", NO_ATTEMPT, lambda: queues.Trips().seconds),
        compared("attempt: shuffle_batch, an example", NO_ATTEMPT, lambda: queues.shuffled),
    ]


if __name__ == "__main__":
    with LOOP:
        sys.exit(
            command(
                "mechanisms of the executor", {"arena": arena, "groups": groups, "attempt": attempt}
            )
        )
