"""Losses. The op of a cross entropy computes the loss and its gradient in one pass."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_to_tensor, create_op, create_ops
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.shape import is_compatible, merge
from asyncmon.graph.nn.activations import (
    below_peak,
    log_softmax,
    relu,
    softmax,
    softmax_gradient,
    softplus,
)
from asyncmon.graph.numerics.arrays import Array, ones
from asyncmon.graph.ops.basic import cast, in_single
from asyncmon.graph.ops.elementwise import abs, sigmoid
from asyncmon.graph.ops.join import stack
from asyncmon.graph.ops.shape_ops import expand_dims, reshape, shape, unbroadcast

Gradients = list[Tensor | None]


def need_names(function: str, sentinel: Any, labels: Any, logits: Any) -> None:
    """Reject positional arguments: labels and logits are easily swapped."""
    if sentinel is not None:
        raise ValueError(f"Only call `{function}` with named arguments (labels=..., logits=..., ...)")
    if labels is None or logits is None:
        raise ValueError("Both labels and logits must be provided.")


# --- softmax cross entropy ------------------------------------------------------------------------


def _row_sums(x: Array) -> Any:
    if x.dtype.char in "fd":
        return np.dot(x, ones(x.shape[-1], x.dtype)[:, None])
    return np.add.reduce(x, axis=-1, keepdims=True)


def _by_logits(op: Operation, grad: Tensor | None, grad_back: Tensor | None) -> Tensor:
    """Return the gradient of the logits; ``grad_back`` is not None for second derivatives."""
    flows = [] if grad is None else [op.outputs[1] * expand_dims(grad, -1)]
    if grad_back is not None:
        flows.append(softmax_gradient(softmax(op.inputs[0]), grad_back))
    return flows[0] if len(flows) == 1 else flows[0] + flows[1]


def _softmax_xent(logits: Array, labels: Array) -> tuple[Any, Any]:
    shifted = below_peak(logits, -1)
    exps = np.exp(shifted)
    total = _row_sums(exps)
    losses = np.multiply(labels, np.subtract(np.log(total), shifted))
    backprop = np.divide(exps, total, out=exps)
    return np.add.reduce(losses, axis=-1), np.subtract(backprop, labels)


def _softmax_xent_rule(logits: Spec, labels: Spec) -> tuple[Spec, Spec]:
    rules.check_same_dtype("SoftmaxCrossEntropyWithLogits", logits, labels, ("features", "labels"))
    rules.check_dtype(logits.dtype, rules.FLOATS, "features")
    for spec in (logits, labels):
        rules.with_rank_at_least(spec.shape, 1)
    shape = rules.broadcast(logits.shape, labels.shape)
    if shape is None or logits.shape is None:
        return Spec(logits.dtype, None), Spec(logits.dtype, None)
    rows = merge(shape[:-1], logits.shape[:-1]) or ()
    return Spec(logits.dtype, rows), Spec(logits.dtype, (*rows, shape[-1]))


def _softmax_xent_gradient(op: Operation, grad: Tensor | None, grad_back: Tensor | None) -> Gradients:
    logits, labels = op.inputs
    flows = [] if grad is None else [-log_softmax(logits) * expand_dims(grad, -1)]
    if grad_back is not None:  # the backprop is softmax - labels
        flows.append(-grad_back)
    by_labels = flows[0] if len(flows) == 1 else flows[0] + flows[1]
    by_logits = _by_logits(op, grad, grad_back)
    return [unbroadcast(by_logits, logits, labels), unbroadcast(by_labels, labels, logits)]


register(
    OpDef("SoftmaxCrossEntropyWithLogits", _softmax_xent, _softmax_xent_rule, _softmax_xent_gradient)
)


def softmax_cross_entropy_with_logits_v2(
    labels: Any, logits: Any, axis: int | None = None, name: str | None = None, dim: int | None = None
) -> Tensor:
    """Return the cross entropy of each row of probabilities and logits. TF1: same name.

    As in TF1, the outer dimensions of both are flattened to rows: they may differ if the number of rows
    is the same, or if one has a single row. The result has the outer dimensions of the logits.

    Args:
        labels: probabilities, with rows that sum to 1; gradients flow into them.
        logits: unscaled log probabilities. Half precision is computed in float32.
        axis: the dimension of the classes; by default the last.
        name: the node's name.
        dim: old name of ``axis``.
    """
    logits = convert_to_tensor(logits)
    x, dtype = in_single(logits), logits.dtype
    target = cast(labels, x.dtype)
    axis = axis if dim is None else dim
    if axis not in (None, -1):
        target, x = _axis_last(target, axis), _axis_last(x, axis)
    name = name or "softmax_cross_entropy_with_logits"
    if x.shape.ndims == target.shape.ndims == 2:
        return cast(create_ops("SoftmaxCrossEntropyWithLogits", (x, target), None, name)[0], dtype)
    pair = (_flat_rows(x), _flat_rows(target))
    losses = create_ops("SoftmaxCrossEntropyWithLogits", pair, None, name)[0]
    return cast(reshape(losses, shape(x)[:-1]), dtype)


def _flat_rows(x: Tensor) -> Tensor:
    return reshape(x, stack([-1, shape(x)[-1]]))


def _axis_last(x: Tensor, axis: int) -> Tensor:
    rank = len(x.shape)
    at = rules.normalize_axis(axis, rank)
    perm = (*(i for i in range(rank) if i != at), at)
    return x if at == rank - 1 else create_op("Transpose", (x,), {"perm": perm})


_UNSIGNED = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


@lru_cache(maxsize=64)
def _row_starts(rows: int, columns: int) -> Array:
    return np.arange(rows) * columns


def _sparse_softmax_xent(logits: Array, labels: Array) -> tuple[Any, Any]:
    classes = logits.shape[-1]
    flat, picks = logits.reshape(-1, classes), labels.reshape(-1)
    unsigned = picks.view(_UNSIGNED[picks.itemsize])  # a negative label becomes a large one
    if picks.size and np.maximum.reduce(unsigned) >= classes:
        wrong = picks[unsigned >= classes][0]
        raise InvalidArgumentError(
            f"Received a label value of {wrong} which is outside the valid range of [0, {classes}).  "
            f"Label values: {' '.join(map(str, picks[:32]))}"
        )
    at = np.add(_row_starts(len(picks), classes), picks)
    shifted = below_peak(flat, -1)
    chosen = shifted.reshape(-1).take(at)
    exps = np.exp(shifted, out=shifted)
    total = _row_sums(exps)
    losses = np.log(total).reshape(-1)
    losses -= chosen
    backprop = np.divide(exps, total, out=exps)
    backprop.reshape(-1)[at] -= 1
    return losses.reshape(labels.shape), backprop.reshape(logits.shape)


def _sparse_softmax_xent_rule(logits: Spec, labels: Spec) -> tuple[Spec, Spec]:
    rules.check_dtype(logits.dtype, rules.FLOATS, "features")
    rules.check_dtype(labels.dtype, (dtypes.int32, dtypes.int64), "labels")
    if logits.shape is None:
        return Spec(logits.dtype, labels.shape), Spec(logits.dtype, None)
    rules.with_rank_at_least(logits.shape, 1)
    rows = merge(logits.shape[:-1], labels.shape) or ()
    return Spec(logits.dtype, rows), Spec(logits.dtype, (*rows, logits.shape[-1]))


register(OpDef("SparseSoftmaxCrossEntropyWithLogits", _sparse_softmax_xent, _sparse_softmax_xent_rule,
    lambda op, *grads: [_by_logits(op, *grads), None]))  # fmt: skip


def sparse_softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """Return the cross entropy of each row of logits and its class. TF1: same name.

    Args:
        _sentinel: rejects positional arguments.
        labels: classes in [0, classes), int32 or int64, of the shape of ``logits`` without the last
            dimension.
        logits: unscaled log probabilities, one per class along the last dimension.
        name: the node's name.

    Raises:
        ValueError: positional arguments, missing labels or logits, or incompatible ranks.
    """
    need_names("sparse_softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    target, logits = convert_to_tensor(labels), convert_to_tensor(logits)
    x, dtype = in_single(logits), logits.dtype
    found, rank = target.shape.ndims, x.shape.ndims
    if rank == 0:
        raise ValueError(f"Logits cannot be scalars - received shape {x.shape}.")
    if found is not None and rank is not None and found != rank - 1:
        raise ValueError(
            f"Rank mismatch: Rank of labels (received {found}) should equal rank of logits "
            f"minus 1 (received {rank})."
        )
    name = name or "SparseSoftmaxCrossEntropyWithLogits"
    return cast(create_ops("SparseSoftmaxCrossEntropyWithLogits", (x, target), None, name)[0], dtype)


# --- sigmoid cross entropy ------------------------------------------------------------------------


def _sigmoid_xent(logits: Array, labels: Array, out: Array | None = None) -> Any:
    tail = np.log1p(np.exp(-np.abs(logits)))
    return np.add(np.maximum(logits, 0) - np.multiply(logits, labels), tail, out=out)


def _sigmoid_xent_rule(logits: Spec, labels: Spec) -> Spec:
    rules.check_same_dtype("SigmoidCrossEntropyWithLogits", logits, labels, ("logits", "labels"))
    rules.check_dtype(logits.dtype, rules.FLOATS, "logits")
    if not is_compatible(logits.shape, labels.shape):
        found = f"{rules.text(logits.shape)} vs {rules.text(labels.shape)}"
        raise ValueError(f"logits and labels must have the same shape ({found})")
    return _sigmoid_xent_run_rule(logits, labels)


def _sigmoid_xent_run_rule(logits: Spec, labels: Spec) -> Spec:
    return Spec(logits.dtype, rules.broadcast(logits.shape, labels.shape))


def _sigmoid_xent_gradient(op: Operation, grad: Tensor) -> Gradients:
    logits, labels = op.inputs
    by_logits = grad * (sigmoid(logits) - labels)
    return [unbroadcast(by_logits, logits, labels), unbroadcast(-(grad * logits), labels, logits)]


register(OpDef("SigmoidCrossEntropyWithLogits", _sigmoid_xent, _sigmoid_xent_rule,
    _sigmoid_xent_gradient, elementwise=True, run_rule=_sigmoid_xent_run_rule))  # fmt: skip


def sigmoid_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """Return the cross entropy of independent probabilities and logits, element by element.

    TF1: same name.

    Raises:
        ValueError: positional arguments, missing labels or logits, or different shapes.
    """
    need_names("sigmoid_cross_entropy_with_logits", _sentinel, labels, logits)
    x = convert_to_tensor(logits)
    target = convert_to_tensor(labels, None if hasattr(labels, "op") else x.dtype)
    return create_op("SigmoidCrossEntropyWithLogits", (x, target), None, name or "logistic_loss")


def weighted_cross_entropy_with_logits(
    labels: Any = None,
    logits: Any = None,
    pos_weight: Any = None,
    name: str | None = None,
    targets: Any = None,
) -> Tensor:
    """As :func:`sigmoid_cross_entropy_with_logits`, with positive labels weighted by ``pos_weight``.

    TF1: same name.
    """
    target = convert_to_tensor(labels if targets is None else targets)
    x = convert_to_tensor(logits)
    merge(target.spec.shape, x.spec.shape)
    weight = target * (convert_to_tensor(pos_weight, target.dtype) - 1) + 1
    tail = softplus(-abs(x)) + relu(-x)
    return create_op("AddV2", ((1 - target) * x, weight * tail), None, name or "logistic_loss")


# --- squares --------------------------------------------------------------------------------------


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
