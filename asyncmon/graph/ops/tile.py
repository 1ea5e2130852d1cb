"""``tile``."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import rules
from asyncmon.graph.core.build import create_op, shape_tensor
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.rules import rank_of, shape_from
from asyncmon.graph.core.shape import merge_dim
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.shape_ops import like, reshape


def _tile_rule(x: Spec, multiples: Spec) -> Spec:
    times = shape_from(multiples)
    rank = merge_dim(rank_of(times), rank_of(x.shape))
    if rank is None:
        return Spec(x.dtype, None)
    pairs = zip(rules.with_rank(x.shape, rank), times or (None,) * rank, strict=True)
    return Spec(x.dtype, tuple(None if n is None or m is None or m < 0 else n * m for n, m in pairs))


def _tile(x: Array, multiples: Array) -> Any:
    times = multiples.tolist()
    if times and min(times) < 0:
        raise InvalidArgumentError(f"Expected multiples >= 0, but got {times}")
    return np.tile(x, times)


def _tile_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    """Cut each dimension into copies of one of ``x``, and add the copies up."""
    x, multiples = op.inputs
    sizes = create_op("Shape", (x,), {"out_type": multiples.dtype})

    def cut(copies: Tensor) -> Tensor:
        return reshape(create_op("Pack", (copies, sizes), {"axis": 1}), [-1])

    once = cut(create_op("OnesLike", (multiples,)))
    return [like("Reshape", (create_op("SumToShape", (reshape(grad, cut(multiples)), once)),), x), None]


register(OpDef("Tile", _tile, _tile_rule, _tile_gradient))


def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """Return a tensor repeated ``multiples[i]`` times along each dimension i. TF1: ``tf.tile``."""
    return create_op("Tile", (input, shape_tensor(multiples)), None, name)
