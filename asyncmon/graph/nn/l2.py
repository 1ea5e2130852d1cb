"""Half the sum of squares."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.numerics.arrays import Array


def _l2_loss(t: Array) -> Any:
    flat = np.reshape(t, -1)
    if t.dtype.char == "e":  # each half of a square is rounded, and the sum once
        halves = np.multiply(np.multiply(flat, flat), t.dtype.type(0.5))
        return np.add.reduce(halves, dtype=np.float32).astype(t.dtype)
    return np.multiply(np.dot(flat, flat), t.dtype.type(0.5))


def _l2_rule(t: Spec) -> Spec:
    rules.check_dtype(t.dtype, rules.FLOATS, "t")
    return Spec(t.dtype, ())


register(OpDef("L2Loss", _l2_loss, _l2_rule, lambda op, grad: [op.inputs[0] * grad]))


def l2_loss(t: Any, name: str | None = None) -> Tensor:
    """Return half the sum of squares. TF1: ``tf.nn.l2_loss``."""
    return create_op("L2Loss", (t,), None, name)
