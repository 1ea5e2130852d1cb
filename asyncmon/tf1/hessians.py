"""TF1: ``tf.hessians``."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from asyncmon import graph as tf
from asyncmon.graph.core.indexed_slices import to_dense

__all__ = ["hessians"]


def hessians(
    ys: Any,
    xs: Any,
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
) -> list[tf.Tensor]:
    """Return the second derivatives of the sum of ``ys`` with respect to each x. TF1: ``tf.hessians``.

    Args:
        ys: a tensor, or a list of them.
        xs: tensors or variables of a known shape.
        colocate_gradients_with_ops, gate_gradients, aggregation_method: see :func:`gradients`.

    Returns:
        For each x of shape ``s`` a tensor of shape ``s + s``.
    """
    tensors = [tf.convert_to_tensor(x) for x in (xs if isinstance(xs, list | tuple) else [xs])]
    with tf.name_scope(name, "hessians", tensors):
        first = tf.gradients(ys, tensors, colocate_gradients_with_ops=colocate_gradients_with_ops)
        return [
            _hessian(grad, x, colocate_gradients_with_ops)
            for grad, x in zip(first, tensors, strict=True)
        ]


def _hessian(grad: Any, x: tf.Tensor, colocate: bool) -> tf.Tensor:
    shape = [d for d in x.spec.shape or (None,) if d is not None]
    if not x.shape.is_fully_defined():
        raise ValueError(f"hessians() needs a known shape, got {x!r}")
    flat = tf.create_op("Reshape", (to_dense(grad), [-1]))
    rows = [
        tf.gradients(flat[i], x, colocate_gradients_with_ops=colocate, unconnected_gradients="zero")[0]
        for i in range(prod(shape))
    ]
    whole = np.array(shape + shape, np.int32)
    return tf.create_op("Reshape", (tf.create_op("Pack", rows, {"axis": 0}), whole))
