"""The sum of channels and a bias."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import convert_pair, create_op
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.shape import merge_dim
from asyncmon.graph.numerics.arrays import Array, ones
from asyncmon.graph.ops.shape_ops import broadcast_like


def _bias_add(value: Array, bias: Array, out: Array | None = None, *, second: bool = False) -> Any:
    return np.add(value, bias.reshape(-1, *(1,) * (value.ndim - 2)) if second else bias, out)


def _bias_add_rule(value: Spec, bias: Spec, *, second: bool = False) -> Spec:
    rules.check_same_dtype("BiasAdd", value, bias, ("value", "bias"))
    rules.check_dtype(value.dtype, rules.NUMBERS, "value")
    (channels,) = rules.with_rank(bias.shape, 1)
    if value.shape is None:
        return Spec(value.dtype, None)
    rules.with_rank_at_least(value.shape, 2)
    shape, at = list(value.shape), 1 if second else -1
    shape[at] = merge_dim(shape[at], channels)
    return Spec(value.dtype, tuple(shape))


def _bias_add_grad(grad: Array, out: Array | None = None, *, second: bool = False) -> Any:
    if second and grad.ndim > 2:
        axes = (0, *range(2, grad.ndim))
        return np.add.reduce(grad, axis=axes, dtype=grad.dtype, out=out)
    channels = grad.shape[-1]
    if not channels:
        return np.zeros(0, grad.dtype) if out is None else out
    flat = grad.reshape(-1, channels)
    if flat.dtype.char in "fd":
        return np.dot(ones(len(flat), flat.dtype), flat, out)
    return np.add.reduce(flat, axis=0, dtype=flat.dtype, out=out)


def _bias_add_grad_rule(grad: Spec, *, second: bool = False) -> Spec:
    shape = rules.with_rank_at_least(grad.shape, 2)
    return Spec(grad.dtype, (None if shape is None else shape[1 if second else -1],))


def _bias_add_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    (value,) = op.inputs
    if op.attrs:
        return [create_op("BiasAdd", (create_op("ZerosLike", (value,)), grad), op.attrs)]
    return [broadcast_like(grad, value)]


register(OpDef("BiasAdd", _bias_add, _bias_add_rule, lambda op, grad:
    [grad, create_op("BiasAddGrad", (grad,), op.attrs)], elementwise=True))  # fmt: skip
register(OpDef("BiasAddGrad", _bias_add_grad, _bias_add_grad_rule, _bias_add_grad_gradient, out=True))


def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Tensor:
    """Return ``value`` plus a vector along its channels. TF1: ``tf.nn.bias_add``.

    Args:
        value: tensor of rank 2 or higher, or 3 or higher with the channels second.
        bias: vector with an element per channel, of the same dtype.
        data_format: the position of the channels: last ("NHWC", "N...C", the default) or second
            ("NCHW", "NC...").
        name: the node's name.

    Raises:
        ValueError: incompatible shapes (InvalidArgumentError in the run if they are unknown before),
            or an unknown ``data_format``.
    """
    x, b = convert_pair(value, bias, name or "BiasAdd")
    if data_format is None or data_format in ("NHWC", "NWC", "NDHWC", "N...C"):
        return create_op("BiasAdd", (x, b), None, name)
    if data_format not in ("NCHW", "NCW", "NCDHW", "NC..."):
        raise ValueError(f"`data_format` must be of the form `N...C` or `NC...`, got {data_format!r}")
    rules.with_rank_at_least(x.spec.shape, 3)
    return create_op("BiasAdd", (x, b), {"second": True}, name)
