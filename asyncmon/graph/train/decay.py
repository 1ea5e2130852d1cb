"""Learning rates that depend on the global step. TF1: ``tf.train.exponential_decay`` and others.

The functions take the step as a tensor or a variable (ValueError for None), and return a scalar tensor
for an optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi
from typing import Any

import numpy as np

from asyncmon.graph.core.build import convert_to_tensor, create_op, name_scope
from asyncmon.graph.core.dtypes import int32, int64
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, register
from asyncmon.graph.core.rules import with_rank
from asyncmon.graph.ops.basic import cast
from asyncmon.graph.ops.elementwise import add, ceil, cos, exp, floor, minimum, multiply, truediv
from asyncmon.graph.ops.gather import gather
from asyncmon.graph.ops.join import stack


def _start(
    function: str, learning_rate: Any, global_step: Any, decay_steps: Any, staircase: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the rate and ``global_step / decay_steps`` in its dtype, rounded down for a staircase."""
    if global_step is None:
        raise ValueError(f"global_step is required for {function}.")
    rate = convert_to_tensor(learning_rate, preferred_dtype="float32", name="learning_rate")
    progress = cast(global_step, rate.dtype) / cast(decay_steps, rate.dtype)
    return rate, floor(progress) if staircase else progress


def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return ``learning_rate * decay_rate ** (global_step / decay_steps)``. TF1: same name.

    With ``staircase`` it changes every ``decay_steps`` steps.
    """
    with name_scope(name, "ExponentialDecay") as scope:
        rate, progress = _start("exponential_decay", learning_rate, global_step, decay_steps, staircase)
        return multiply(rate, cast(decay_rate, rate.dtype) ** progress, scope)


def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return ``learning_rate * exp(-decay_rate * global_step / decay_steps)``. TF1: same name."""
    with name_scope(name, "NaturalExpDecay") as scope:
        rate, progress = _start("natural_exp_decay", learning_rate, global_step, decay_steps, staircase)
        return multiply(rate, exp(-cast(decay_rate, rate.dtype) * progress), scope)


def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return ``learning_rate / (1 + decay_rate * global_step / decay_steps)``. TF1: same name."""
    with name_scope(name, "InverseTimeDecay") as scope:
        rate, progress = _start(
            "inverse_time_decay", learning_rate, global_step, decay_steps, staircase
        )
        return truediv(rate, cast(decay_rate, rate.dtype) * progress + 1, scope)


def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, alpha: Any = 0.0, name: str | None = None
) -> Tensor:
    """Decay the rate along half a cosine to ``alpha * learning_rate`` at ``decay_steps``.

    TF1: same name.
    """
    with name_scope(name, "CosineDecay") as scope:
        rate, progress = _start("cosine_decay", learning_rate, global_step, decay_steps)
        progress = minimum(progress, 1.0)
        lowered = (cos(progress * pi) + 1) * 0.5
        return multiply(rate, lowered * (1 - alpha) + alpha, scope)


def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> Tensor:
    """Decay the rate along a polynomial to ``end_learning_rate`` at ``decay_steps``.

    TF1: same name. With ``cycle`` the decay does not end: beyond ``decay_steps`` the formula uses the
    next multiple of ``decay_steps``.
    """
    with name_scope(name, "PolynomialDecay") as scope:
        rate, progress = _start("polynomial_decay", learning_rate, global_step, decay_steps)
        if cycle:
            one = convert_to_tensor(1, rate.dtype)
            progress = progress / create_op("Maximum", (ceil(progress), one))
        else:
            progress = minimum(progress, 1.0)
        end = cast(end_learning_rate, rate.dtype)
        return add((rate - end) * (1 - progress) ** cast(power, rate.dtype), end, scope)


def piecewise_constant(
    x: Any, boundaries: Sequence[Any], values: Sequence[Any], name: str | None = None
) -> Tensor:
    """Return ``values[i]`` for ``boundaries[i - 1] < x <= boundaries[i]``. TF1: same name.

    ``x`` is a scalar, such as the global step. The boundaries ascend and have its dtype.
    """
    if len(boundaries) != len(values) - 1:
        raise ValueError("The length of boundaries should be 1 less than the length of values")
    with name_scope(name, "PiecewiseConstant"):
        at = convert_to_tensor(x)
        edges = []
        for boundary in boundaries:
            edge = convert_to_tensor(boundary)
            if edge.dtype is int32 and at.dtype is int64:
                edge = cast(edge, int64)
            if edge.dtype is not at.dtype:
                raise ValueError(f"Boundary {edge!r} must have the same dtype as x ({at.dtype}).")
            edges.append(edge)
        tensors = [convert_to_tensor(value) for value in values]
        for tensor in tensors:
            if tensor.dtype is not tensors[0].dtype:
                raise ValueError(
                    "Values must have elements all with the same dtype "
                    f"({tensors[0].dtype} vs {tensor.dtype})."
                )
        if not edges:
            return tensors[0]
        return gather(stack(tensors), create_op("PassedBoundaries", (at, stack(edges))))


register(OpDef("PassedBoundaries",
    lambda at, edges: np.array(np.count_nonzero(edges < at), np.int32),
    lambda at, edges: Spec(int32, with_rank(at.shape, 0)), ZERO))  # fmt: skip
