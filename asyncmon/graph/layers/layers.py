"""Layers: dense and conv2d, which create their variables; pooling, flatten and dropout, without any.

TF1: ``tf.layers``. ::

    hidden = layers.dense(images, 128, activation=nn.relu)       # dense/kernel, dense/bias
    logits = layers.dense(layers.dropout(hidden, 0.4, training=is_training), 10)

The variables are trained and saved. A layer called again with the same ``name`` and ``reuse=True``
shares them. A regularizer's loss joins ``GraphKeys.REGULARIZATION_LOSSES``; a constraint is applied
after each update by an optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from asyncmon.graph.construction.build import (
    add_to_collection,
    convert_to_tensor,
    create_op,
    name_scope,
)
from asyncmon.graph.construction.convert import is_tensor_like
from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.nn import normalization as nn_normalization
from asyncmon.graph.nn.conv import conv2d as _convolve
from asyncmon.graph.nn.dense import bias_add
from asyncmon.graph.nn.images import spatial
from asyncmon.graph.nn.pool import avg_pool, max_pool
from asyncmon.graph.ops.linalg import matmul, tensordot
from asyncmon.graph.ops.shape_ops import reshape
from asyncmon.graph.ops.shape_ops import shape as shape_of
from asyncmon.graph.variables.initializers import zeros_initializer
from asyncmon.graph.variables.scope import get_variable, variable_scope

if TYPE_CHECKING:
    from asyncmon.graph.core.dtypes import DType
    from asyncmon.graph.core.node import Tensor

Maker = Callable[..., Any] | None
_Makers = tuple[Maker, Maker, Maker]  # of a variable: initializer, regularizer, constraint
ZEROS = zeros_initializer()


def dense(
    inputs: Any,
    units: int,
    activation: Maker = None,
    use_bias: bool = True,
    kernel_initializer: Maker = None,
    bias_initializer: Maker = ZEROS,
    kernel_regularizer: Maker = None,
    bias_regularizer: Maker = None,
    activity_regularizer: Maker = None,
    kernel_constraint: Maker = None,
    bias_constraint: Maker = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Tensor:
    """Return ``activation(inputs @ kernel + bias)``. TF1: ``tf.layers.dense``.

    Args:
        inputs: tensor of rank 2 or higher; its last dimension is known and taken in.
        units: the size of the last dimension of the result.
        activation: applied to the result; None leaves it.
        use_bias: add a bias.
        activity_regularizer: of the result.
        trainable: whether optimizers find the variables.
        name: of the layer; "dense", "dense_1", ... by default.
        reuse: share the variables of an earlier layer of this name.

    The other arguments are of the kernel, Glorot uniform by default, and of the bias, zeros by default.

    Raises:
        TypeError: not of floats.
        ValueError: a lower rank, or a last dimension that is not known.
    """
    x = convert_to_tensor(inputs)
    if not x.dtype.is_floating:
        raise TypeError(f"Unable to build `Dense` layer with non-floating point dtype {x.dtype.name}")
    rank = _rank(x, 2, "dense", exact=False)
    depth = x.shape[-1].value
    if depth is None:
        raise ValueError("The last dimension of the inputs to `Dense` should be defined. Found `None`.")
    multiply = matmul if rank == 2 else partial(tensordot, axes=[[rank - 1], [0]])
    kernel = kernel_initializer, kernel_regularizer, kernel_constraint
    bias = (bias_initializer, bias_regularizer, bias_constraint) if use_bias else None
    with variable_scope(name, "dense", reuse=reuse):
        result = _affine(x, multiply, [depth, units], kernel, bias, trainable)
        return _finished(result, activation, activity_regularizer)


def conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = (1, 1),
    activation: Maker = None,
    use_bias: bool = True,
    kernel_initializer: Maker = None,
    bias_initializer: Maker = ZEROS,
    kernel_regularizer: Maker = None,
    bias_regularizer: Maker = None,
    activity_regularizer: Maker = None,
    kernel_constraint: Maker = None,
    bias_constraint: Maker = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Any = None,
) -> Tensor:
    """Return ``activation(convolution of images + bias)``. TF1: ``tf.layers.conv2d``.

    Args:
        inputs: images, ``[batch, height, width, depth]``.
        filters: how many; the depth of the result.
        kernel_size: a number, or height and width.
        strides: from one window to the next, in the same form.
        padding: "valid" or "same".
        data_format: "channels_last", or "channels_first" for ``[batch, depth, height, width]``.
        dilation_rate: from one element of a filter to the next, a number or two.
        name: "conv2d", "conv2d_1", ... by default.

    The other arguments are those of :func:`dense`.

    Raises:
        ValueError: not of rank 4, a depth that is not known, or both strides and dilation.
    """
    x = convert_to_tensor(inputs)
    _rank(x, 4, "conv2d")
    layout = _layout(data_format)
    depth = x.shape[-1 if layout == "NHWC" else 1].value
    if depth is None:
        raise ValueError("The channel dimension of the inputs should be defined. Found `None`.")
    steps = spatial(strides, "strides", layout)
    dilations = spatial(dilation_rate, "dilation_rate", layout)
    if max(steps) > 1 and max(dilations) > 1:
        raise ValueError(
            f"Strides > 1 are not supported in conjunction with a dilation_rate > 1, got {steps} and "
            f"{dilations}"
        )
    convolve = partial(
        _convolve, strides=steps, padding=padding.upper(), data_format=layout, dilations=dilations
    )
    kernel = kernel_initializer, kernel_regularizer, kernel_constraint
    bias = (bias_initializer, bias_regularizer, bias_constraint) if use_bias else None
    shape = [*spatial(kernel_size, "kernel_size", layout), depth, filters]
    with variable_scope(name, "conv2d", reuse=reuse):
        result = _affine(x, convolve, shape, kernel, bias, trainable, layout)
        return _finished(result, activation, activity_regularizer)


def _affine(
    x: Tensor,
    multiply: Callable[..., Tensor],
    shape: list[int],
    kernel: _Makers,
    bias: _Makers | None,
    trainable: bool,
    layout: str = "NHWC",
) -> Tensor:
    """Create a kernel of this shape, and a bias; return ``multiply(x, kernel) + bias``."""
    result = multiply(x, make_variable(x.dtype, shape, "kernel", *kernel, trainable))
    if bias is None:
        return result
    return bias_add(result, make_variable(x.dtype, shape[-1:], "bias", *bias, trainable), layout)


def _finished(result: Tensor, activation: Maker, regularizer: Maker) -> Tensor:
    if activation is not None:
        result = activation(result)
    if regularizer is not None:
        add_to_collection(GraphKeys.REGULARIZATION_LOSSES, regularizer(result))
    return result


def max_pooling2d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Tensor:
    """Return the greatest element of each window of images. TF1: ``tf.layers.max_pooling2d``."""
    with name_scope(name, "max_pooling2d"):
        return max_pool(inputs, pool_size, strides, padding.upper(), _layout(data_format))


def average_pooling2d(
    inputs: Any,
    pool_size: Any,
    strides: Any,
    padding: str = "valid",
    data_format: str = "channels_last",
    name: str | None = None,
) -> Tensor:
    """Return the mean of each window of images. TF1: ``tf.layers.average_pooling2d``."""
    with name_scope(name, "average_pooling2d"):
        return avg_pool(inputs, pool_size, strides, padding.upper(), _layout(data_format))


def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Tensor:
    """Return a tensor with all dimensions but the first made one. TF1: ``tf.layers.flatten``.

    Args:
        inputs: tensor of rank 1 or higher.
        name: the node's name.
        data_format: "channels_first" puts the channels last before; of a known rank then.
    """
    x, layout = convert_to_tensor(inputs), _layout(data_format)
    if x.spec.shape is not None or layout == "NCHW":
        rank = _rank(x, 1, "flatten", exact=False)
        if rank == 1:
            return create_op("ExpandDims", (x,), {"axis": (1,)}, name or "flatten")
        if layout == "NCHW" and rank > 2:
            x = create_op("Transpose", (x,), {"perm": (0, *range(2, rank), 1)})
    size = rules.num_elements(x.spec.shape and x.spec.shape[1:])
    shape = [shape_of(x)[0], -1] if size is None else [-1, size]
    return reshape(x, shape, name or "flatten/Reshape")


def dropout(
    inputs: Any,
    rate: Any = 0.5,
    noise_shape: Any = None,
    seed: int | None = None,
    training: Any = False,
    name: str | None = None,
) -> Tensor:
    """Return a tensor with random elements dropped in training, and as it is otherwise.

    TF1: ``tf.layers.dropout``.

    Args:
        inputs: a tensor of floats.
        rate: the probability of an element to be dropped.
        noise_shape: as for :func:`nn.dropout`.
        seed: of the random choice.
        training: a bool, or a bool scalar tensor to be fed.
        name: the scope of the ops.
    """
    x = convert_to_tensor(inputs)
    if is_tensor_like(training):
        chance = convert_to_tensor(rate, None if is_tensor_like(rate) else x.dtype)
        off = convert_to_tensor(0.0, chance.dtype)
        rate = create_op("SelectV2", (training, chance, off))
    elif not training:
        return create_op("Identity", (x,), None, name or "dropout/Identity")
    return nn_normalization.dropout(x, noise_shape=noise_shape, seed=seed, name=name, rate=rate)


# --- helpers ----------------------------------------------------------------------------------------


def make_variable(
    dtype: DType,
    shape: list[int],
    name: str,
    initializer: Maker,
    regularizer: Maker = None,
    constraint: Maker = None,
    trainable: bool = False,
) -> Any:
    """Create a variable of a layer, or return that of the layer which shares it."""
    return get_variable(name, shape, dtype, initializer, regularizer, trainable, constraint=constraint)


def _rank(x: Tensor, wanted: int, layer: str, exact: bool = True) -> int:
    rank = x.shape.ndims
    if rank is None or (rank != wanted if exact else rank < wanted):
        raise ValueError(
            f"Input 0 of layer {layer} is incompatible with the layer: "
            f"expected {'' if exact else 'min_'}ndim={wanted}, found ndim={rank}. Full shape: {x.shape}"
        )
    return rank


def _layout(data_format: str) -> str:
    layouts = {"channels_last": "NHWC", "channels_first": "NCHW"}
    if data_format not in layouts:
        raise ValueError(
            "The `data_format` argument must be one of 'channels_first', 'channels_last'. "
            f"Received: {data_format!r}"
        )
    return layouts[data_format]
