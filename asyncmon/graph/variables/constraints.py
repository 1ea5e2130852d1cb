"""What variables are held to: functions that optimizers apply to them after each update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.graph.variables.variable import Variable

__all__ = ["constrain", "constraint_of"]

_KEY = "constraints"


def constrain(variable: Variable, constraint: Callable[[Any], Any] | None) -> None:
    """Hold a variable to ``constraint(value) -> value`` from now on; None does nothing."""
    if constraint is not None:
        variable.graph.extras.setdefault(_KEY, {})[variable.op.name] = constraint


def constraint_of(variable: Variable) -> Callable[[Any], Any] | None:
    """Return what a variable is held to, or None."""
    found: Callable[[Any], Any] | None = variable.graph.extras.get(_KEY, {}).get(variable.op.name)
    return found
