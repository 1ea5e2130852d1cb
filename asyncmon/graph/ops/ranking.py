"""The greatest of a row: top_k, in_top_k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import convert_to_tensor, create_op, create_ops
from asyncmon.graph.core.op import OpDef, Spec, register

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

__all__ = ["TopK", "in_top_k", "top_k"]


class TopK(NamedTuple):
    """What :func:`top_k` returns. TF1: ``TopKV2``."""

    values: Any
    indices: Any


def _top_k(x: Array, k: Array) -> tuple[Array, Array]:
    count, size = int(k), x.shape[-1]
    if not 0 <= count <= size:
        raise InvalidArgumentError(f"input must have at least k columns. Had {size}, needed {count}")
    # a stable sort of the reversed row, read backwards: of equal elements the first comes first
    order = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :count]
    indices = size - 1 - order
    return np.take_along_axis(x, indices, -1), indices.astype(np.int32)


def _top_k_spec(x: Spec, k: Spec) -> tuple[Spec, Spec]:
    rules.check_dtype(x.dtype, rules.REALS, "input")
    rules.with_rank(k.shape, 0)
    (count,) = k.known_dims() or (None,)
    if count is not None and count < 0:
        raise ValueError(f"k must be non-negative, got {count}")
    if x.shape is None:
        return Spec(x.dtype, None), Spec(dtypes.int32, None)
    rules.with_rank_at_least(x.shape, 1)
    size = x.shape[-1]
    if count is not None and size is not None and count > size:
        raise ValueError(f"input must have last dimension >= k = {count} but is {size}")
    shape = (*x.shape[:-1], count)
    return Spec(x.dtype, shape), Spec(dtypes.int32, shape)


def _top_k_gradient(op: Operation, grad: Tensor, _: None) -> list[Tensor | None]:
    x = op.inputs[0]
    result = create_op("TopKGrad", (grad, op.outputs[1], create_op("Shape", (x,))))
    result.set_shape(x.spec.shape)
    return [result, None]


def _top_k_grad(grad: Array, indices: Array, shape: Array) -> Array:
    result = np.zeros(shape.tolist(), grad.dtype)
    np.put_along_axis(result, indices.astype(np.int64), grad, -1)
    return result


def _top_k_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    return [create_op("TakeAlongLast", (grad, op.inputs[1])), None, None]


register(OpDef("TopKV2", _top_k, _top_k_spec, _top_k_gradient))
register(
    OpDef(
        "TopKGrad",
        _top_k_grad,
        lambda grad, indices, shape: Spec(grad.dtype, shape.known_dims()),
        _top_k_grad_gradient,
    )
)
register(
    OpDef(
        "TakeAlongLast",
        lambda x, indices: np.take_along_axis(x, indices.astype(np.int64), -1),
        lambda x, indices: Spec(x.dtype, indices.shape),
    )
)


def top_k(input: Any, k: Any = 1, sorted: bool = True, name: str | None = None) -> TopK:
    """Return the ``k`` greatest elements of each row and their positions, the greatest first.

    TF1: ``tf.nn.top_k``.

    Of equal elements the one with the lower position comes first.

    Args:
        input: tensor of rank 1 or higher; a row is its last dimension.
        k: how many.
        sorted: false allows any order; they are sorted all the same.
        name: the node's name.
    """
    values, indices = create_ops("TopKV2", (input, k), None, name)
    return TopK(values, indices)


def _in_top_k(predictions: Array, targets: Array, k: Array) -> Array:
    rows, classes = predictions.shape
    if not classes:
        return np.zeros(rows, np.bool_)
    valid = (targets >= 0) & (targets < classes)
    mine = predictions[np.arange(rows), np.where(valid, targets, 0)][:, None]
    better = np.count_nonzero(predictions > mine, axis=1)
    finite = np.all(np.isfinite(predictions), axis=1)
    return valid & finite & (better < k)


def _in_top_k_spec(predictions: Spec, targets: Spec, k: Spec) -> Spec:
    rules.check_dtype(predictions.dtype, (dtypes.float32,), "predictions")
    rules.check_dtype(targets.dtype, (dtypes.int32, dtypes.int64), "targets")
    rows, _ = rules.with_rank(predictions.shape, 2)
    (count,) = rules.with_rank(targets.shape, 1)
    return Spec(dtypes.bool, (rules.merge_dim(rows, count),))


register(OpDef("InTopKV2", _in_top_k, _in_top_k_spec, rules.no_gradient))


def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> Tensor:
    """Return for each row whether the target is among the ``k`` greatest predictions.

    TF1: ``tf.nn.in_top_k``.

    Classes that tie at the edge all count as in. A target out of range, or any prediction of the
    row that is not finite, gives false.
    """
    scores = convert_to_tensor(predictions)
    return create_op("InTopKV2", (scores, targets, k), None, name or "in_top_k")
