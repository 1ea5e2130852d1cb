"""Pooling of images: the ops. How they are computed is in :mod:`asyncmon.graph.kernels.pool`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.kernels import pool as pool_kernels
from asyncmon.graph.kernels.windows import (
    Padding,
    Pair,
    check_data_format,
    output_size,
    spatial,
    window_padding,
)
from asyncmon.graph.nn.conv import channels

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor

__all__ = ["avg_pool", "max_pool"]


# --- entries ----------------------------------------------------------------------------------------


def _pool_spec(x: Spec, *, ksize: Pair, strides: Pair, padding: Padding) -> Spec:
    n, *size, depth = rules.with_rank(x.shape, 4)
    out = [
        output_size(s, k, step, padding if isinstance(padding, str) else padding[i])
        for i, (s, k, step) in enumerate(zip(size, ksize, strides, strict=True))
    ]
    return Spec(x.dtype, (n, *out, depth))


def _max_pool_spec(x: Spec, **attrs: Any) -> Spec:
    rules.check_dtype(x.dtype, rules.REALS, "input")
    return _pool_spec(x, **attrs)


def _avg_pool_spec(x: Spec, **attrs: Any) -> Spec:
    rules.check_dtype(x.dtype, rules.FLOATS, "value")
    return _pool_spec(x, **attrs)


def _max_pool_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    return [create_op("MaxPoolGrad", (op.inputs[0], op.outputs[0], grad), op.attrs)]


def _max_pool_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    x, y, _ = op.inputs
    return [None, None, create_op("MaxPoolGradGrad", (x, y, grad), op.attrs)]


def _max_pool_grad_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    x, y, _ = op.inputs
    return [None, None, create_op("MaxPoolGrad", (x, y, grad), op.attrs)]


def _avg_pool_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    (x,) = op.inputs
    result = create_op("AvgPoolGrad", (create_op("Shape", (x,)), grad), op.attrs)
    result.set_shape(x.spec.shape)
    return [result]


def _avg_pool_grad_spec(shape: Spec, grad: Spec, **_attrs: object) -> Spec:
    return Spec(grad.dtype, shape.known_dims() or (None,) * 4)


def _avg_pool_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    return [None, create_op("AvgPool", (grad,), op.attrs)]


register(OpDef("MaxPool", pool_kernels.max_pool, _max_pool_spec, _max_pool_gradient, out=True))
register(
    OpDef(
        "MaxPoolGrad",
        pool_kernels.max_pool_grad,
        lambda x, y, grad, **_: Spec(x.dtype, x.shape),
        _max_pool_grad_gradient,
        out=True,
    )
)
register(
    OpDef(
        "MaxPoolGradGrad",
        pool_kernels.max_pool_grad_grad,
        lambda x, y, grad, **_: Spec(y.dtype, y.shape),
        _max_pool_grad_grad_gradient,
    )
)
register(OpDef("AvgPool", pool_kernels.avg_pool, _avg_pool_spec, _avg_pool_gradient, out=True))
register(
    OpDef(
        "AvgPoolGrad",
        pool_kernels.avg_pool_grad,
        _avg_pool_grad_spec,
        _avg_pool_grad_gradient,
        out=True,
    )
)


def _pool(
    op_type: str, value: Any, ksize: Any, strides: Any, padding: Any, data_format: str, name: str | None
) -> Tensor:
    layout = check_data_format(data_format)
    x = convert_to_tensor(value)
    attrs = {
        "ksize": spatial(ksize, "ksize", layout),
        "strides": spatial(strides, "strides", layout),
        "padding": window_padding(padding, layout),
    }
    if layout == "NHWC":
        return create_op(op_type, (x,), attrs, name)
    return channels(create_op(op_type, (channels(x, True),), attrs, name), False)


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
    return _pool(
        "MaxPool", value if input is None else input, ksize, strides, padding, data_format, name
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
    return _pool(
        "AvgPool", value if input is None else input, ksize, strides, padding, data_format, name
    )
