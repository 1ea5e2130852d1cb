"""The parts of a dense layer: bias_add, xw_plus_b, relu_layer."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph import shape_rules as rules
from asyncmon.graph.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.linalg import matmul
from asyncmon.graph.op_def import OpDef, Spec, register

if TYPE_CHECKING:
    from asyncmon.graph.arrays import Array
    from asyncmon.graph.tensor import Operation, Tensor


__all__ = ["bias_add", "relu_layer", "xw_plus_b"]


def _bias_add_spec(value: Spec, bias: Spec) -> Spec:
    rules.check_same_dtype("BiasAdd", value, bias, ("value", "bias"))
    rules.check_dtype(value.dtype, rules.NUMBERS, "value")
    (channels,) = rules.with_rank(bias.shape, 1)
    if value.shape is None:
        return Spec(value.dtype, None)
    rules.with_rank_at_least(value.shape, 2)
    return Spec(value.dtype, (*value.shape[:-1], rules.merge_dim(value.shape[-1], channels)))


def _bias_add_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    return [grad, create_op("BiasAddGrad", (grad,))]


def _bias_add_grad(grad: Array, out: Array | None = None) -> Any:
    flat = grad.reshape(-1, grad.shape[-1])
    if flat.dtype.char in "fd":
        return np.dot(_ones(len(flat), flat.dtype), flat, out)  # much faster than numpy's sum of rows
    return np.add.reduce(flat, axis=0, dtype=flat.dtype, out=out)


@lru_cache(maxsize=64)
def _ones(count: int, dtype: np.dtype[Any]) -> Array:
    return np.ones(count, dtype)


def _bias_add_grad_spec(grad: Spec) -> Spec:
    return Spec(grad.dtype, (None if grad.shape is None else grad.shape[-1],))


def _bias_add_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    (value,) = op.inputs
    return [create_op("BroadcastTo", (grad, create_op("Shape", (value,))))]


register(OpDef("BiasAdd", np.add, _bias_add_spec, _bias_add_gradient, elementwise=True))
register(OpDef("BiasAddGrad", _bias_add_grad, _bias_add_grad_spec, _bias_add_grad_gradient, out=True))


def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Tensor:
    """Return ``value`` plus a vector along its channels. TF1: ``tf.nn.bias_add``.

    Args:
        value: tensor of rank 2 or higher.
        bias: vector with an element per channel, of the same dtype.
        data_format: where the channels are: last ("NHWC", "N...C", the default) or second ("NCHW",
            "NC...").
        name: the node's name.

    Raises:
        ValueError: shapes do not fit, or an unknown ``data_format``.
    """
    x, b = convert_pair(value, bias, name or "BiasAdd")
    if data_format is None or data_format in ("NHWC", "NWC", "NDHWC", "N...C"):
        return create_op("BiasAdd", (x, b), None, name)
    if data_format not in ("NCHW", "NCW", "NCDHW", "NC..."):
        raise ValueError(f"`data_format` must be of the form `N...C` or `NC...`, got {data_format!r}")
    rank = len(x.shape)
    (channels,) = rules.with_rank(b.spec.shape, 1)
    rules.merge_dim(x.spec.shape[1] if x.spec.shape else None, channels)
    column = create_op("ExpandDims", (b,), {"axis": tuple(range(1, rank - 1))}) if rank > 2 else b
    return create_op("AddV2", (x, column), None, name or "BiasAdd")


def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """Return ``matmul(x, weights) + biases``. TF1: ``tf.nn.xw_plus_b``."""
    product = matmul(x, weights)
    return bias_add(product, convert_to_tensor(biases, product.dtype), name=name or "xw_plus_b")


def relu_layer(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """Return ``relu(matmul(x, weights) + biases)``. TF1: ``tf.nn.relu_layer``."""
    return create_op("Relu", (xw_plus_b(x, weights, biases),), None, name or "relu_layer")
