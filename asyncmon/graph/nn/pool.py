"""Pooling of images: operations, and their kernels, which work on blocks of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import repeat
from math import prod
from typing import Any

import numpy as np

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.nn.images import create_image_op
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.numerics.kernels import replaceable
from asyncmon.graph.numerics.parallel import parallel_for
from asyncmon.graph.numerics.windows import (
    Padding,
    Pair,
    Windows,
    check_gradient,
    check_rank,
    output_sizes,
)


# --- kernels ----------------------------------------------------------------------------------------
def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _combined(ufunc: np.ufunc, windows: Windows, x: Array) -> Array:
    """Combine the elements of each window of padded images, first in rows, then in columns."""
    (height, width), (down, across), (rows, columns) = windows.size, windows.strides, windows.counts
    x = reduce(ufunc, [x[:, :, j : j + across * columns : across] for j in range(width)])
    return reduce(ufunc, [x[:, i : i + down * rows : down] for i in range(height)])


def _for_blocks(windows: Windows, part: Callable[[slice], None]) -> None:
    blocks = windows.blocks(prod(windows.strides) * windows.images[3])
    parallel_for(partial(part, block) for block in blocks)


def _pooled(x: Array, windows: Windows, out: Array | None) -> Array:
    return np.empty((len(x), *windows.counts, x.shape[3]), x.dtype) if out is None else out


@replaceable
def window_max(x: Array, out: Array | None = None, **attrs: Any) -> Array:
    """Return the maximum of each window."""
    windows = Windows(x.shape, **attrs)
    result = _pooled(x, windows, out)

    def part(block: slice) -> None:
        result[block] = _combined(np.maximum, windows, windows.pad(x[block], _lowest(x.dtype)))

    _for_blocks(windows, part)
    return result


@replaceable
def window_max_grad(x: Array, y: Array, grad: Array, out: Array | None = None, **attrs: Any) -> Array:
    """Add the gradient of each window to the first of its greatest elements."""
    windows = Windows(x.shape, **attrs)
    result = np.empty(x.shape, grad.dtype) if out is None else out

    def shares(block: slice) -> Iterator[Array]:
        left = grad[block].copy()
        *places, _ = windows.taps(windows.pad(x[block], _lowest(x.dtype)))
        for elements in places:
            taken = np.multiply(left, np.equal(elements, y[block]))
            yield taken
            left -= taken
        yield left  # the last element is the maximum

    _for_blocks(windows, lambda block: windows.scatter(shares(block), result[block]))
    return result


def window_max_grad_grad(x: Array, y: Array, grad: Array, **attrs: Any) -> Array:
    """Return the element of ``grad``, of the shape of ``x``, at the maximum of each window."""
    windows = Windows(x.shape, **attrs)
    result, open_ = np.zeros_like(y), np.ones(y.shape, bool)
    padded, others = windows.pad(x, _lowest(x.dtype)), windows.pad(grad, slot="others")
    for elements, other in zip(windows.taps(padded), windows.taps(others), strict=True):
        here = np.equal(elements, y) & open_
        result += other * here
        open_ &= ~here
    return result


def _counts_inside(windows: Windows, dtype: np.dtype[Any]) -> Array:
    """Return the number of elements of each window outside the padding."""
    one = Windows((1, *windows.images[1:3], 1), windows.size, windows.strides, windows.around)
    return _combined(np.add, one, one.pad(np.ones(one.images, dtype)))


@replaceable
def window_mean(x: Array, out: Array | None = None, **attrs: Any) -> Array:
    """Return the mean of each window without padding."""
    windows = Windows(x.shape, **attrs)
    result, inside = _pooled(x, windows, out), _counts_inside(windows, x.dtype)

    def part(block: slice) -> None:
        np.divide(_combined(np.add, windows, windows.pad(x[block])), inside, out=result[block])

    _for_blocks(windows, part)
    return result


@replaceable
def window_mean_grad(shape: Array, grad: Array, out: Array | None = None, **attrs: Any) -> Array:
    """Spread the gradient of each window evenly over its elements."""
    images = tuple(shape.tolist())
    check_rank("Images", images)
    windows = Windows(images, **attrs)
    check_gradient(grad, windows, images[3])
    result = np.empty(windows.images, grad.dtype) if out is None else out
    inside = _counts_inside(windows, grad.dtype)

    def part(block: slice) -> None:
        windows.scatter(repeat(np.divide(grad[block], inside), prod(windows.size)), result[block])

    _for_blocks(windows, part)
    return result


# --- operations -------------------------------------------------------------------------------------
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
    """Add a gradient op of the maximum, which moves ``grad`` to or from the first greatest elements."""
    x, y = op.inputs[0], (op.outputs[0] if op.type == "MaxPool" else op.inputs[1])
    return create_op(op_type, (x, y, grad), op.attrs)


# fmt: off
register(OpDef("MaxPool", window_max, _max_rule,
    lambda op, g: [_of_max("MaxPoolGrad", op, g)], out=True))
register(OpDef("MaxPoolGrad", window_max_grad, _max_grad_rule,
    lambda op, g: [None, None, _of_max("MaxPoolGradGrad", op, g)], out=True))
register(OpDef("MaxPoolGradGrad", window_max_grad_grad, _max_grad_grad_rule,
    lambda op, g: [None, None, _of_max("MaxPoolGrad", op, g)]))
register(OpDef("AvgPool", window_mean, _avg_rule, lambda op, g:
    [create_op("AvgPoolGrad", (create_op("Shape", op.inputs), g), op.attrs)], out=True))
register(OpDef("AvgPoolGrad", window_mean_grad, _avg_grad_rule,
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
    """Return the maximum of each window of images. TF1: ``tf.nn.max_pool``.

    The gradient flows to the first maximum.

    Args:
        value: images, ``[batch, height, width, depth]``.
        ksize: the size of a window: a number, two, or four for the dimensions of ``value``.
        strides: the distance of windows, in the same form.
        padding: "SAME" (one window per stride), "VALID" (no padding), or four pairs of numbers.
        data_format: "NCHW" for images of ``[batch, depth, height, width]``.
        name: the node's name.
        input: other name of ``value``.

    Raises:
        ValueError: windows over the batch or the depth, or arguments of other forms.
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
    """Return the mean of each window of images without padding. TF1: ``tf.nn.avg_pool``.

    Arguments and errors as :func:`max_pool`, for floats only.
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
