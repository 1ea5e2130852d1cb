"""The shape rule of update ops."""

from __future__ import annotations

from asyncmon.graph import shape_rules
from asyncmon.graph.op_def import Spec

__all__ = ["applied", "applied_dense"]


def applied(var: Spec, *others: Spec, **_attrs: object) -> Spec:
    """The output is the variable; every float input has its dtype."""
    for other in others:
        if other.dtype.is_floating and other.dtype is not var.dtype:
            raise TypeError(f"Expected {var.dtype.name}, the variable's dtype, got {other.dtype.name}")
    return Spec(var.dtype, var.shape)


def applied_dense(var: Spec, *others: Spec, **_attrs: object) -> Spec:
    """As :func:`applied`, each other input being a scalar or of the variable's shape."""
    shape = var.shape
    for other in others:
        if other.shape != ():
            shape = shape_rules.merge(shape, other.shape)
    return applied(var, *others)
