"""The shape rules of update ops: variable, slots, numbers, and what updates them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncmon.graph.core import shape_rules
from asyncmon.graph.core.op import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["applied", "applied_dense", "applied_rows"]


def applied(var: Spec, *others: Spec, **_attrs: object) -> Spec:
    """The output is the variable; every float input has its dtype."""
    for other in others:
        if other.dtype.is_floating and other.dtype is not var.dtype:
            raise TypeError(f"Expected {var.dtype.name}, the variable's dtype, got {other.dtype.name}")
    return Spec(var.dtype, var.shape)


def applied_dense(refs: int, gradient: int = -1) -> Callable[..., Spec]:
    """Return the rule of an update by a gradient of the variable's shape; slots have it, too.

    Args:
        refs: how many inputs are the variable and its slots.
        gradient: which input, counted from the end; the others are scalars.
    """

    def rule(*inputs: Spec, **_attrs: object) -> Spec:
        numbers = list(inputs[refs:])
        alike = [*inputs[1:refs], numbers.pop(gradient)]
        _check(inputs[0], alike, numbers)
        return applied(*inputs)

    return rule


def applied_rows(refs: int, gradient: int = -2) -> Callable[..., Spec]:
    """Return the rule of an update by rows of a gradient. The last input are their indices.

    Args:
        refs: how many inputs are the variable and its slots.
        gradient: which input has the rows, counted from the end; the others are scalars.
    """

    def rule(*inputs: Spec, **_attrs: object) -> Spec:
        var, indices, numbers = inputs[0], inputs[-1], list(inputs[refs:])
        rows = numbers.pop(gradient)
        _check(var, inputs[1:refs], numbers[:-1])
        if var.shape is not None and indices.shape is not None:
            shape_rules.merge((*indices.shape, *var.shape[1:]), rows.shape)
        return applied(*inputs)

    return rule


def _check(var: Spec, alike: Iterable[Spec], numbers: Iterable[Spec]) -> None:
    shape = var.shape
    for other in alike:
        shape = shape_rules.merge(shape, other.shape)
    for number in numbers:
        shape_rules.with_rank(number.shape, 0)
