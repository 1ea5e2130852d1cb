"""``tile``: a tensor repeated along its dimensions."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.ops.shape_ops import shape_tensor

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

    Gradients = list[Tensor | None]

__all__ = ["tile"]


def _tile_spec(x: Spec, multiples: Spec) -> Spec:
    (rank,) = rules.with_rank(multiples.shape, 1)
    if x.shape is None:
        return Spec(x.dtype, None if rank is None else (None,) * rank)
    rules.merge_dim(rank, len(x.shape))
    times = multiples.known_dims() or (None,) * len(x.shape)
    shape = tuple(
        None if n is None or m is None or m < 0 else n * m for n, m in zip(x.shape, times, strict=True)
    )
    return Spec(x.dtype, shape)


def _tile(x: Array, multiples: Array) -> Any:
    if multiples.shape != (np.ndim(x),):
        raise InvalidArgumentError(
            f"Expected multiples to be a vector of length {np.ndim(x)} but got shape "
            f"{list(multiples.shape)}"
        )
    times = multiples.tolist()
    if times and min(times) < 0:
        raise InvalidArgumentError(f"Expected multiples >= 0, but got {times}")
    return np.tile(x, times)


def _tile_grad(grad: Array, multiples: Array, shape: Array) -> Array:
    split = [d for pair in zip(multiples.tolist(), shape.tolist(), strict=True) for d in pair]
    if not grad.size == prod(split):
        raise InvalidArgumentError(
            f"The gradient of shape {list(np.shape(grad))} is not that of a tensor of shape "
            f"{shape.tolist()}, tiled {multiples.tolist()} times"
        )
    if not grad.size:
        return np.zeros(shape.tolist(), grad.dtype)
    return np.add.reduce(grad.reshape(split), axis=tuple(range(0, len(split), 2)))


def _tile_grad_spec(grad: Spec, multiples: Spec, shape: Spec) -> Spec:
    return Spec(grad.dtype, shape.known_dims())


def _tile_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, multiples = op.inputs
    result = create_op("TileGrad", (grad, multiples, create_op("Shape", (x,))))
    result.set_shape(x.spec.shape)
    return [result, None]


def _tile_grad_gradient(op: Operation, grad: Tensor) -> Gradients:
    return [create_op("Tile", (grad, op.inputs[1])), None, None]


register(OpDef("Tile", _tile, _tile_spec, _tile_gradient))
register(OpDef("TileGrad", _tile_grad, _tile_grad_spec, _tile_grad_gradient))


def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """Return a tensor repeated ``multiples[i]`` times along each dimension i. TF1: ``tf.tile``."""
    return create_op("Tile", (input, shape_tensor(multiples)), None, name)
