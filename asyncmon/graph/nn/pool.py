"""Pooling of images. The kernels are in :mod:`asyncmon.graph.kernels.pool`."""

from __future__ import annotations

from typing import Any

from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, register
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.kernels import pool as kernels
from asyncmon.graph.kernels.windows import Padding, Pair, output_sizes
from asyncmon.graph.nn.images import create_image_op


def _pool_rule(x: Spec, *, ksize: Pair, strides: Pair, padding: Padding) -> Spec:
    n, *size, depth = rules.with_rank(x.shape, 4)
    return Spec(x.dtype, (n, *output_sizes(size, ksize, strides, padding), depth))


def _max_rule(x: Spec, **attrs: Any) -> Spec:
    rules.check_dtype(x.dtype, rules.REALS, "input")
    return _pool_rule(x, **attrs)


def _avg_rule(x: Spec, **attrs: Any) -> Spec:
    rules.check_dtype(x.dtype, rules.FLOATS, "value")
    return _pool_rule(x, **attrs)


def _max_grad_rule(x: Spec, y: Spec, grad: Spec, **attrs: Any) -> Spec:
    rules.like_first(_pool_rule(x, **attrs), y, grad)
    return Spec(x.dtype, x.shape)


def _max_grad_grad_rule(x: Spec, y: Spec, grad: Spec, **attrs: Any) -> Spec:
    rules.like_first(x, grad)
    return rules.like_first(_pool_rule(x, **attrs), y)


def _avg_grad_rule(shape: Spec, grad: Spec, **attrs: Any) -> Spec:
    images = Spec(grad.dtype, rules.with_rank(shape.known_dims(), 4))
    rules.like_first(_pool_rule(images, **attrs), grad)
    return images


def _of_max(op_type: str, op: Operation, grad: Tensor) -> Tensor:
    """Add a gradient op of the maximum: ``grad`` flows to, or from, the first greatest elements."""
    x, y = op.inputs[0], (op.outputs[0] if op.type == "MaxPool" else op.inputs[1])
    return create_op(op_type, (x, y, grad), op.attrs)


# fmt: off
register(OpDef("MaxPool", kernels.max_pool, _max_rule,
    lambda op, g: [_of_max("MaxPoolGrad", op, g)], out=True))
register(OpDef("MaxPoolGrad", kernels.max_pool_grad, _max_grad_rule,
    lambda op, g: [None, None, _of_max("MaxPoolGradGrad", op, g)], out=True))
register(OpDef("MaxPoolGradGrad", kernels.max_pool_grad_grad, _max_grad_grad_rule,
    lambda op, g: [None, None, _of_max("MaxPoolGrad", op, g)]))
register(OpDef("AvgPool", kernels.avg_pool, _avg_rule, lambda op, g:
    [create_op("AvgPoolGrad", (create_op("Shape", op.inputs), g), op.attrs)], out=True))
register(OpDef("AvgPoolGrad", kernels.avg_pool_grad, _avg_grad_rule,
    lambda op, g: [None, create_op("AvgPool", (g,), op.attrs)], out=True))
# fmt: on


def max_pool(
    value: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Tensor:
    """Return the greatest element of each window of images. TF1: ``tf.nn.max_pool``.

    The gradient goes to the first of the greatest elements.

    Args:
        value: images, ``[batch, height, width, depth]``.
        ksize: the size of a window: a number, two, or four for the dimensions of ``value``.
        strides: from one window to the next, in the same form.
        padding: "SAME" (as many windows as strides), "VALID" (only inside), or four pairs of numbers.
        data_format: "NCHW" for images of ``[batch, depth, height, width]``.
        name: the node's name.
        input: other name of ``value``.

    Raises:
        ValueError: windows over the batch or the depth, or arguments that are not of these forms.
    """
    images = convert_to_tensor(value if input is None else input)
    return create_image_op(
        "MaxPool", (images,), padding, data_format, name, ksize=ksize, strides=strides
    )


def avg_pool(
    value: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Tensor:
    """Return the mean of each window of images, padding not counted. TF1: ``tf.nn.avg_pool``.

    Arguments and errors as :func:`max_pool`; floats only.
    """
    images = convert_to_tensor(value if input is None else input)
    return create_image_op(
        "AvgPool", (images,), padding, data_format, name, ksize=ksize, strides=strides
    )


def max_pool2d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """As :func:`max_pool`. TF1: ``tf.nn.max_pool2d``."""
    return max_pool(input, ksize, strides, padding, data_format, name)
