"""Pooling of images: the greatest or the mean of each window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph import shape_rules as rules
from asyncmon.graph.build import convert_to_tensor, create_op
from asyncmon.graph.nn_conv import channels
from asyncmon.graph.op_def import OpDef, Spec, register
from asyncmon.graph.windows import (
    Padding,
    Pair,
    check_data_format,
    output_size,
    paddings,
    spatial,
    window_padding,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncmon.graph.arrays import Array
    from asyncmon.graph.tensor import Operation, Tensor

__all__ = ["avg_pool", "max_pool"]


def _steps(start: int, count: int, stride: int) -> slice:
    return slice(start, start + stride * (count - 1) + 1, stride)


def _padded(x: Array, around: tuple[Pair, Pair], value: Any) -> Array:
    """Return the images with a value around them; themselves where nothing is added."""
    (top, bottom), (left, right) = around
    if not top + bottom + left + right:
        return x
    n, height, width, depth = x.shape
    result = np.full((n, height + top + bottom, width + left + right, depth), value, x.dtype)
    result[:, top : top + height, left : left + width] = x
    return result


def _reduce(ufunc: np.ufunc, x: Array, ksize: Pair, strides: Pair, counts: Pair) -> Array:
    """Combine the elements of each window: first within rows, then the rows."""
    across = x[:, :, _steps(0, counts[1], strides[1])]
    for i in range(1, ksize[1]):
        other = x[:, :, _steps(i, counts[1], strides[1])]
        across = ufunc(across, other, out=across if i > 1 else None)
    down = across[:, _steps(0, counts[0], strides[0])]
    for i in range(1, ksize[0]):
        other = across[:, _steps(i, counts[0], strides[0])]
        down = ufunc(down, other, out=down if i > 1 else None)
    return down


def _taps(x: Array, ksize: Pair, strides: Pair, counts: Pair) -> Iterator[Array]:
    """Yield for each place in a window the elements there, of all windows, as a view."""
    for i in range(ksize[0]):
        rows = x[:, _steps(i, counts[0], strides[0])]
        for j in range(ksize[1]):
            yield rows[:, :, _steps(j, counts[1], strides[1])]


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _max_pool(x: Array, *, ksize: Pair, strides: Pair, padding: Padding) -> Array:
    counts, around = paddings(x.shape, ksize, strides, padding)
    return _reduce(np.maximum, _padded(x, around, _lowest(x.dtype)), ksize, strides, counts)


def _max_pool_grad(
    x: Array, y: Array, grad: Array, *, ksize: Pair, strides: Pair, padding: Padding
) -> Array:
    """Give the gradient of each window to the first of its greatest elements."""
    counts, around = paddings(x.shape, ksize, strides, padding)
    padded = _padded(x, around, _lowest(x.dtype))
    result = np.zeros(padded.shape, grad.dtype)
    apart = strides[0] >= ksize[0] and strides[1] >= ksize[1]
    pairs = list(
        zip(_taps(padded, ksize, strides, counts), _taps(result, ksize, strides, counts), strict=True)
    )
    left = grad.copy()
    for values, target in pairs[:-1]:
        share = np.multiply(left, np.equal(values, y), out=target if apart else None)
        if not apart:
            target += share
        left -= share
    last = pairs[-1][1]
    last += left  # what no other element took
    return _unpadded(result, x.shape, around)


def _max_pool_grad_grad(
    x: Array, y: Array, grad: Array, *, ksize: Pair, strides: Pair, padding: Padding
) -> Array:
    """Pick, of a tensor like the input, what lies at the first greatest element of each window."""
    counts, around = paddings(x.shape, ksize, strides, padding)
    padded = _padded(x, around, _lowest(x.dtype))
    result, open_ = np.zeros_like(y), np.ones(y.shape, bool)
    for values, other in zip(
        _taps(padded, ksize, strides, counts),
        _taps(_padded(grad, around, 0), ksize, strides, counts),
        strict=True,
    ):
        here = np.equal(values, y) & open_
        result += other * here
        open_ &= ~here
    return result


def _unpadded(x: Array, shape: tuple[int, ...], around: tuple[Pair, Pair]) -> Array:
    (top, _), (left, _) = around
    return x[:, top : top + shape[1], left : left + shape[2]]


def _counts_inside(shape: tuple[int, ...], ksize: Pair, strides: Pair, padding: Padding) -> Any:
    """Return how many elements of each window are not padding."""
    counts, around = paddings(shape, ksize, strides, padding)
    if around == ((0, 0), (0, 0)):
        return ksize[0] * ksize[1]
    sizes = []
    for i in (0, 1):
        start = np.arange(counts[i]) * strides[i] - around[i][0]
        sizes.append(np.minimum(start + ksize[i], shape[1 + i]) - np.maximum(start, 0))
    return (sizes[0][:, None] * sizes[1])[None, :, :, None]


def _avg_pool(x: Array, *, ksize: Pair, strides: Pair, padding: Padding) -> Array:
    counts, around = paddings(x.shape, ksize, strides, padding)
    total = _reduce(np.add, _padded(x, around, 0), ksize, strides, counts)
    return np.divide(total, _counts_inside(x.shape, ksize, strides, padding), dtype=x.dtype)


def _avg_pool_grad(shape: Array, grad: Array, *, ksize: Pair, strides: Pair, padding: Padding) -> Array:
    sizes = tuple(shape.tolist())
    counts, around = paddings(sizes, ksize, strides, padding)
    (top, bottom), (left, right) = around
    result = np.zeros(
        (sizes[0], sizes[1] + top + bottom, sizes[2] + left + right, sizes[3]), grad.dtype
    )
    share = np.divide(grad, _counts_inside(sizes, ksize, strides, padding), dtype=grad.dtype)
    for target in _taps(result, ksize, strides, counts):
        target += share
    return _unpadded(result, sizes, around)


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


register(OpDef("MaxPool", _max_pool, _max_pool_spec, _max_pool_gradient, aliases=True))
register(
    OpDef(
        "MaxPoolGrad",
        _max_pool_grad,
        lambda x, y, grad, **_: Spec(x.dtype, x.shape),
        _max_pool_grad_gradient,
    )
)
register(
    OpDef(
        "MaxPoolGradGrad",
        _max_pool_grad_grad,
        lambda x, y, grad, **_: Spec(y.dtype, y.shape),
        _max_pool_grad_grad_gradient,
    )
)
register(OpDef("AvgPool", _avg_pool, _avg_pool_spec, _avg_pool_gradient))
register(OpDef("AvgPoolGrad", _avg_pool_grad, _avg_pool_grad_spec, _avg_pool_grad_gradient))


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
