"""Normalization over neighbouring channels."""

from __future__ import annotations

from typing import Any

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import convert_to_tensor, name_scope
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.ops.basic import cast, in_single
from asyncmon.graph.ops.create import range as range_of
from asyncmon.graph.ops.elementwise import abs as absolute
from asyncmon.graph.ops.elementwise import less_equal, multiply, square
from asyncmon.graph.ops.linalg import tensordot
from asyncmon.graph.ops.shape_ops import expand_dims, shape


def local_response_normalization(
    input: Any,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
) -> Tensor:
    """Return ``input / (bias + alpha * s) ** beta``, s the squares of neighbouring channels summed.

    TF1: ``tf.nn.local_response_normalization``, ``tf.nn.lrn``.

    Args:
        input: images, ``[batch, height, width, depth]``.
        depth_radius: how many channels to either side are neighbours.
        bias: see above, as the next two.
        alpha: see above.
        beta: see above.
        name: the scope of the ops.
    """
    with name_scope(name, "LRN") as scope:
        value = convert_to_tensor(input)
        rules.check_dtype(value.dtype, rules.FLOATS, "input")
        rules.with_rank(value.spec.shape, 4)
        x = in_single(value)
        at = range_of(shape(x)[3])
        near = less_equal(absolute(expand_dims(at, 1) - at), depth_radius)
        sums = tensordot(square(x), cast(near, x.dtype), [[3], [0]])
        scale = (sums * alpha + bias) ** -beta
        if value.dtype is x.dtype:
            return multiply(x, scale, name=scope)
        return cast(x * scale, value.dtype, name=scope)


lrn = local_response_normalization
