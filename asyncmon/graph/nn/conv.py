"""Convolution of images: operations, and their kernels, which work on blocks of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import convert_pair, convert_to_tensor, create_op, shape_tensor
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.shape import num_elements
from asyncmon.graph.nn.images import check_data_format, create_image_op
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.numerics.blas import single_threaded_blas
from asyncmon.graph.numerics.kernels import half_in_single, replaceable
from asyncmon.graph.numerics.parallel import CORES, parallel_for
from asyncmon.graph.numerics.windows import (
    Padding,
    Pair,
    Windows,
    checked_windows,
    dilated,
    output_sizes,
    scratch,
)


# --- kernels ----------------------------------------------------------------------------------------
def _matrix(windows: Windows, x: Array) -> Array:
    """Return the im2col matrix of a block of images: a row for each window."""
    depth = windows.images[3]
    if windows.size == windows.strides == (1, 1) and windows.counts == x.shape[1:3]:
        return np.ascontiguousarray(x).reshape(-1, depth)
    (down, across), (dilate_h, dilate_w) = windows.strides, windows.dilations
    view = sliding_window_view(windows.pad(x), windows.dilated, (1, 2))
    view = view[:, ::down, ::across, :, ::dilate_h, ::dilate_w].transpose(0, 1, 2, 4, 5, 3)
    matrix = scratch("windows", view.shape, x.dtype)
    np.copyto(matrix, view)
    return matrix.reshape(-1, prod(windows.size) * depth)


def in_parallel(part: Callable[[Any], None], blocks: Iterable[Any]) -> None:
    """Call a function for each block on several threads, with BLAS single-threaded."""
    with single_threaded_blas():
        parallel_for(partial(part, block) for block in blocks)


@replaceable
@half_in_single
def convolve(
    images: Array,
    filters: Array,
    out: Array | None = None,
    **attrs: Any,
) -> Array:
    """Multiply the im2col matrix by the filters."""
    channels = filters.shape[3]
    windows = Windows(images.shape, filters.shape[:2], **attrs)
    matrix = np.ascontiguousarray(filters).reshape(-1, channels)
    if out is None:
        out = np.empty((len(images), *windows.counts, channels), images.dtype)

    def part(block: slice) -> None:
        np.dot(_matrix(windows, images[block]), matrix, out[block].reshape(-1, channels))

    in_parallel(part, windows.blocks(len(matrix)))
    return out


@replaceable
@half_in_single
def filter_gradient(
    images: Array,
    sizes: Array,
    grad: Array,
    out: Array | None = None,
    **attrs: Any,
) -> Array:
    """Multiply the transposed im2col matrix by the gradients."""
    shape = tuple(sizes.tolist())
    windows = checked_windows(images.shape, shape, grad, **attrs)
    blocks = windows.blocks(prod(shape[:3]))
    count = min(len(blocks), CORES)
    # the sums are added in order, so the result does not depend on the threads
    sums = np.zeros((count, *shape), images.dtype)

    def part(i: int) -> None:
        total = sums[i].reshape(-1, shape[3])
        for block in blocks[i::count]:
            flat = np.ascontiguousarray(grad[block]).reshape(-1, shape[3])
            total += np.dot(_matrix(windows, images[block]).T, flat)

    in_parallel(part, range(count))
    return np.add.reduce(sums, axis=0, out=out)


@replaceable
@half_in_single
def input_gradient(
    sizes: Array,
    filters: Array,
    grad: Array,
    out: Array | None = None,
    **attrs: Any,
) -> Array:
    """Multiply the gradients by each element of the filters and add up overlapping windows."""
    shape = tuple(sizes.tolist())
    windows = checked_windows(shape, filters.shape, grad, **attrs)
    depth, channels = filters.shape[2:]
    result = np.empty(shape, grad.dtype) if out is None else out
    elements = np.ascontiguousarray(filters.reshape(-1, depth, channels).swapaxes(1, 2))

    def products(flat: Array, product: Array) -> Iterator[Array]:
        for element in elements:
            np.dot(flat, element, product.reshape(-1, depth))
            yield product

    def part(block: slice) -> None:
        flat = np.ascontiguousarray(grad[block]).reshape(-1, channels)
        product = scratch("product", (*grad[block].shape[:3], depth), grad.dtype)
        windows.scatter(products(flat, product), result[block])

    in_parallel(part, windows.blocks(2 * depth + channels))
    return result


# --- operations -------------------------------------------------------------------------------------
def _conv_rule(
    images: Spec, filters: Spec, *, strides: Pair, padding: Padding, dilations: Pair
) -> Spec:
    rules.check_same_dtype("Conv2D", images, filters, ("input", "filter"))
    rules.check_dtype(images.dtype, rules.FLOATS, "input")
    n, *size, depth = rules.with_rank(images.shape, 4)
    *kernel, kernel_depth, channels = rules.with_rank(filters.shape, 4)
    if depth is not None and kernel_depth is not None and depth != kernel_depth:
        raise ValueError(
            f"Depth of input ({depth}) is not the depth of the filter ({kernel_depth}); "
            "grouped convolution is not supported"
        )
    counts = output_sizes(size, dilated(kernel, dilations), strides, padding)
    return Spec(images.dtype, (n, *counts, channels))


def _by_images_rule(sizes: Spec, filters: Spec, grad: Spec, **attrs: Any) -> Spec:
    rules.check_same_dtype("Conv2DBackpropInput", filters, grad, ("filter", "out_backprop"))
    images = Spec(filters.dtype, rules.with_rank(sizes.known_dims(), 4))
    rules.like_first(_conv_rule(images, filters, **attrs), grad)
    return images


def _by_filters_rule(images: Spec, sizes: Spec, grad: Spec, **attrs: Any) -> Spec:
    rules.check_same_dtype("Conv2DBackpropFilter", images, grad, ("input", "out_backprop"))
    filters = Spec(images.dtype, rules.with_rank(sizes.known_dims(), 4))
    rules.like_first(_conv_rule(images, filters, **attrs), grad)
    return filters


def _flops(filters: int) -> Callable[..., int]:
    """Return a function that counts multiplications; spec ``filters`` is that of the filters."""

    def count(*specs: Spec, **_attrs: object) -> int:
        window = (specs[filters].shape or ())[:3]
        return (num_elements(specs[2].shape) or 0) * (num_elements(window) or 0)

    return count


def gradients_of(*types: str) -> list[Callable[..., list[Tensor | None]]]:
    """Return the gradients of three ops: the derivatives of ``sum(conv(images, filters) * output)``.

    The derivatives are by images, by filters, and by the output, which is the convolution. Each is
    linear in its operands.
    """

    def derivative(by: int, three: Sequence[Tensor], attrs: Any) -> Tensor:
        inputs = list(three)
        if by < 2:
            inputs[by] = create_op("Shape", (three[by],))
        return create_op(types[by], inputs if by < 2 else inputs[:2], attrs)

    def gradient(own: int, op: Operation, grad: Tensor) -> list[Tensor | None]:
        three = [grad if i == own else x for i, x in enumerate((*op.inputs, grad)[:3])]
        found = [None if i == own else derivative(i, three, op.attrs) for i in range(3)]
        return found[: len(op.inputs)]

    return [partial(gradient, own) for own in range(3)]


_BY_IMAGES, _BY_FILTERS, _GRADIENT = gradients_of(
    "Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv2D"
)

# fmt: off
register(OpDef("Conv2D", convolve, _conv_rule, _GRADIENT, out=True, flops=_flops(filters=1)))
register(OpDef("Conv2DBackpropInput", input_gradient, _by_images_rule, _BY_IMAGES,
    out=True, flops=_flops(filters=1)))
register(OpDef("Conv2DBackpropFilter", filter_gradient, _by_filters_rule, _BY_FILTERS,
    out=True, flops=_flops(filters=3)))
# fmt: on


def conv2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = None,
    name: str | None = None,
    filters: Any = None,
) -> Tensor:
    """Return the convolution of images with filters. TF1: ``tf.nn.conv2d``.

    Args:
        input: images, ``[batch, height, width, depth]``.
        filter: ``[height, width, depth, channels]``, of the same dtype.
        strides: the distance of windows: a number, two, or four for the dimensions of ``input``.
        padding: "SAME" (one window per stride), "VALID" (no padding), or four pairs of numbers.
        use_cudnn_on_gpu: without effect.
        data_format: "NCHW" for images of ``[batch, depth, height, width]``.
        dilations: the distance of the elements of a filter, in the form of ``strides``.
        name: the node's name.
        filters: other name of ``filter``.

    Raises:
        ValueError: shapes do not fit, or strides, padding or dilations have other forms.
    """
    pair = convert_pair(input, filter if filters is None else filters, name or "Conv2D")
    if strides is None or padding is None:
        raise ValueError("conv2d() needs strides and padding")
    dilations = 1 if dilations is None else dilations
    return create_image_op(
        "Conv2D", pair, padding, data_format, name, 0, strides=strides, dilations=dilations
    )


def conv2d_transpose(
    value: Any = None,
    filter: Any = None,
    output_shape: Any = None,
    strides: Any = None,
    padding: Any = "SAME",
    data_format: str = "NHWC",
    name: str | None = None,
    input: Any = None,
    filters: Any = None,
    dilations: Any = None,
) -> Tensor:
    """Return the transpose of :func:`conv2d`, its gradient with respect to images. TF1: same name.

    Args:
        value: images, ``[batch, height, width, depth]``.
        filter: ``[height, width, channels, depth]``.
        output_shape: the shape of the result, ``[batch, height, width, channels]``; its convolution
            has the shape of ``value``.
        strides: as for :func:`conv2d`, like the arguments that follow.
        name: the node's name.
        input: other name of ``value``.
        filters: other name of ``filter``.

    Raises:
        ValueError: shapes do not fit, or arguments have other forms.
    """
    x = convert_to_tensor(renamed_argument("input", input, "value", value))
    kernel = convert_to_tensor(renamed_argument("filters", filters, "filter", filter))
    if output_shape is None:
        raise ValueError("conv2d_transpose() needs an output_shape")
    if strides is None or padding is None:
        raise ValueError("conv2d_transpose() needs strides and padding")
    sizes = shape_tensor(output_shape)
    if check_data_format(data_format) == "NCHW":
        sizes = shape_tensor([sizes[i] for i in (0, 2, 3, 1)])
    return create_image_op(
        "Conv2DBackpropInput", (sizes, kernel, x), padding, data_format, name or "conv2d_transpose", 2,
        strides=strides, dilations=1 if dilations is None else dilations,
    )  # fmt: skip
