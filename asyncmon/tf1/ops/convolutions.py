"""Convolutions of each channel, and of sequences; gradients of ``tf.nn.conv2d`` as ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.graph.core import rules
from asyncmon.graph.core.build import shape_tensor
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.graph.nn.conv import gradients_of, in_parallel
from asyncmon.graph.nn.images import check_data_format, create_image_op
from asyncmon.graph.numerics.windows import Windows, check_gradient, dilated, output_sizes

__all__ = [
    "conv1d", "conv2d_backprop_filter", "conv2d_backprop_input", "depthwise_conv2d", "separable_conv2d",
]  # fmt: skip


# --- single channels ------------------------------------------------------------------------------
def _depthwise(images: Any, filters: Any, **attrs: Any) -> Any:
    windows = Windows(images.shape, filters.shape[:2], **attrs)
    depth, more = filters.shape[2:]
    sums = np.zeros((more, len(images), *windows.counts, depth), images.dtype)

    def part(block: slice) -> None:
        taps = windows.taps(windows.pad(images[block]))
        for tap, weights in zip(taps, filters.reshape(-1, depth, more), strict=True):
            for k in range(more):  # the last axis of a product is long
                sums[k, block] += tap * weights[:, k]

    in_parallel(part, windows.blocks(depth * more))
    return np.moveaxis(sums, 0, -1).reshape(*sums.shape[1:4], depth * more)


def _by_filters(images: Any, sizes: Any, grad: Any, **attrs: Any) -> Any:
    rows, columns, depth, more = sizes.tolist()
    windows = Windows(images.shape, (rows, columns), **attrs)
    check_gradient(grad, windows, depth * more)
    each = grad.reshape(*grad.shape[:3], depth, more)
    found = [np.einsum("nhwc,nhwcm->cm", tap, each) for tap in windows.taps(windows.pad(images))]
    return np.stack(found).reshape(rows, columns, depth, more)


def _by_images(sizes: Any, filters: Any, grad: Any, **attrs: Any) -> Any:
    shape, (*size, depth, more) = tuple(sizes.tolist()), filters.shape
    windows = Windows(shape, size, **attrs)
    check_gradient(grad, windows, depth * more)
    result = np.empty(shape, grad.dtype)

    def part(block: slice) -> None:
        each = grad[block].reshape(*grad[block].shape[:3], depth, more)
        taps = filters.reshape(-1, depth, more)
        windows.scatter((np.einsum("nhwcm,cm->nhwc", each, tap) for tap in taps), result[block])

    in_parallel(part, windows.blocks(2 * depth * more))
    return result


def _rule(images: g.Spec, filters: g.Spec, *, strides: Any, padding: Any, dilations: Any) -> g.Spec:
    rules.check_same_dtype("DepthwiseConv2dNative", images, filters, ("input", "filter"))
    rules.check_dtype(images.dtype, rules.FLOATS, "input")
    n, *size, depth = rules.with_rank(images.shape, 4)
    *kernel, own, more = rules.with_rank(filters.shape, 4)
    if None not in (depth, own) and depth != own:
        raise ValueError(f"Depth of input ({depth}) is not the third size of the filter ({own}).")
    counts = output_sizes(size, dilated(kernel, dilations), strides, padding)
    depth = own if depth is None else depth
    channels = None if depth is None or more is None else depth * more
    return g.Spec(images.dtype, (n, *counts, channels))


def _sized(sizes: g.Spec, x: g.Spec) -> g.Spec:
    return g.Spec(x.dtype, rules.with_rank(sizes.known_dims(), 4))


_NAMES = [f"DepthwiseConv2dNative{end}" for end in ("BackpropInput", "BackpropFilter", "")]
_OF_IMAGES, _OF_FILTERS, _GRADIENT = gradients_of(*_NAMES)
g.register(g.OpDef(_NAMES[0], _by_images, lambda sizes, _, x, **__: _sized(sizes, x), _OF_IMAGES))
g.register(g.OpDef(_NAMES[1], _by_filters, lambda x, sizes, _, **__: _sized(sizes, x), _OF_FILTERS))
g.register(g.OpDef(_NAMES[2], _depthwise, _rule, _GRADIENT))


# fmt: off
def depthwise_conv2d(
    input: Any, filter: Any, strides: Any, padding: Any, rate: Any = None, name: str | None = None,
    data_format: str | None = None, dilations: Any = None,
) -> g.Tensor:
    """Return the convolution of each channel with filters of its own. TF1: same name.

    ``filter`` is ``[height, width, depth, multiplier]``, ``rate`` is named ``dilations``, too. Channel
    ``i`` gives those from ``i * multiplier`` on. Otherwise as ``tf.nn.conv2d``, errors included.
    """
    pair = (g.convert_to_tensor(input), g.convert_to_tensor(filter))
    apart = renamed_argument("dilations", dilations, "rate", rate)
    pairs = {"strides": strides, "dilations": 1 if apart is None else apart}
    return create_image_op(_NAMES[2], pair, padding, data_format, name or "depthwise", **pairs)


def separable_conv2d(
    input: Any, depthwise_filter: Any, pointwise_filter: Any, strides: Any, padding: Any,
    rate: Any = None, name: str | None = None, data_format: str | None = None, dilations: Any = None,
) -> g.Tensor:
    """Return a convolution of each channel, then one of size 1 over the channels. TF1: same name.

    ``pointwise_filter`` is ``[1, 1, depth * multiplier, channels]``. The other arguments are those of
    :func:`depthwise_conv2d`.
    """
    with g.name_scope(name, "separable_conv2d", [input, depthwise_filter, pointwise_filter]) as scope:
        each = depthwise_conv2d(
            input, depthwise_filter, strides, padding, rate, None, data_format, dilations
        )
        return g.nn.conv2d(each, pointwise_filter, 1, "VALID", data_format=data_format, name=scope)


# --- one dimension ------------------------------------------------------------------------
def conv1d(
    value: Any = None, filters: Any = None, stride: Any = None, padding: Any = None,
    use_cudnn_on_gpu: bool | None = None, data_format: str | None = None, name: str | None = None,
    input: Any = None, dilations: Any = None,
) -> g.Tensor:
    """Return the convolution of sequences ``[batch, width, depth]`` with filters. TF1: same name.

    ``filters`` is ``[width, depth, channels]``, ``stride`` and ``dilations`` a number or a list of 1 or
    3, ``data_format`` "NWC", or "NCW" for ``[batch, depth, width]``. Errors as of ``tf.nn.conv2d``.
    """
    x = g.convert_to_tensor(renamed_argument("input", input, "value", value))
    last = data_format in (None, "NWC", "NHWC")
    along, apart = ([1, n if isinstance(n, int) else max(n or [1])] for n in (stride, dilations))
    with g.name_scope(name, "conv1d", [x, filters]) as scope:
        row, kernel = g.expand_dims(x, 1 if last else 2), g.expand_dims(filters, 0)
        layout = "NHWC" if last else "NCHW"
        found = g.nn.conv2d(row, kernel, along, padding, data_format=layout, dilations=apart)
        return g.squeeze(found, [1 if last else 2], name=scope)
# fmt: on


# --- gradients of convolutions ---------------------------------------------------------------------
def conv2d_backprop_input(
    input_sizes: Any,
    filter: Any = None,
    out_backprop: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = None,
    name: str | None = None,
    filters: Any = None,
) -> g.Tensor:
    """Return the gradient of ``tf.nn.conv2d`` with respect to its input.

    TF1: ``tf.nn.conv2d_backprop_input``. The other arguments are those of ``tf.nn.conv2d``.

    Args:
        input_sizes: the shape of the input.
        out_backprop: the gradient with respect to the output.
    """
    kernel = filter if filters is None else filters
    return g.nn.conv2d_transpose(
        out_backprop, kernel, input_sizes, strides, padding, data_format or "NHWC",
        name or "Conv2DBackpropInput", dilations=dilations,
    )  # fmt: skip


def conv2d_backprop_filter(
    input: Any,
    filter_sizes: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: Any = None,
    name: str | None = None,
) -> g.Tensor:
    """Return the gradient of ``tf.nn.conv2d`` with respect to its filter.

    TF1: ``tf.nn.conv2d_backprop_filter``. The other arguments are those of ``tf.nn.conv2d``.

    Args:
        filter_sizes: the shape of the filter.
        out_backprop: the gradient with respect to the output.
        data_format: only "NHWC".
    """
    if check_data_format(data_format) != "NHWC":
        raise ValueError("conv2d_backprop_filter takes data_format='NHWC' only; transpose the images.")
    inputs = input, shape_tensor(filter_sizes), out_backprop
    return create_image_op(
        "Conv2DBackpropFilter", inputs, padding, data_format, name, 0,
        strides=strides, dilations=1 if dilations is None else dilations,
    )  # fmt: skip
