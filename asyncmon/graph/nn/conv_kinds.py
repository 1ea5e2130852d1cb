"""Convolutions made of conv2d: of vectors, transposed, dilated; and that of each channel by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph.construction.build import convert_pair, convert_to_tensor, name_scope
from asyncmon.graph.construction.convert import renamed_argument
from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.kernels import depthwise as kernels
from asyncmon.graph.kernels.windows import Padding, Pair, dilated, output_sizes
from asyncmon.graph.nn.conv import conv2d, conv2d_backprop_input, register_convolution
from asyncmon.graph.nn.images import create_image_op
from asyncmon.graph.ops.shape_ops import expand_dims, squeeze

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Tensor


def conv1d(
    value: Any = None,
    filters: Any = None,
    stride: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool | None = None,
    data_format: str | None = None,
    name: str | None = None,
    input: Any = None,
    dilations: Any = None,
) -> Tensor:
    """Return the convolution of sequences with filters. TF1: ``tf.nn.conv1d``.

    Args:
        value: ``[batch, width, depth]``, or ``[batch, depth, width]`` with data_format "NCW".
        filters: ``[width, depth, channels]``.
        stride: from one window to the next, a number or a list of one or three.
        padding: "SAME" or "VALID".
        use_cudnn_on_gpu: accepted for the original's sake; there is no GPU.
        data_format: "NWC" (also "NHWC"), the default, or "NCW" (also "NCHW").
        name: the scope of the ops.
        input: other name of ``value``.
        dilations: from one element of a filter to the next, in the form of ``stride``.

    Raises:
        ValueError: shapes do not fit, or arguments that are not of these forms.
    """
    layouts = {None: "NHWC", "NHWC": "NHWC", "NWC": "NHWC", "NCHW": "NCHW", "NCW": "NCHW"}
    if data_format not in layouts:
        raise ValueError(f"data_format must be 'NWC' or 'NCW', got {data_format!r}")
    layout = layouts[data_format]
    with name_scope(name, "conv1d"):
        x, kernel = convert_pair(renamed_argument("input", input, "value", value), filters, "conv1d")
        rules.with_rank(x.spec.shape, 3)
        rules.with_rank(kernel.spec.shape, 3)
        at = 1 if layout == "NHWC" else 2
        y = conv2d(
            expand_dims(x, at),
            expand_dims(kernel, 0),
            [1, _one(stride, layout, "stride")],
            padding,
            data_format=layout,
            dilations=[1, 1 if dilations is None else _one(dilations, layout, "dilations")],
        )
        return squeeze(y, [at])


def _one(value: Any, layout: str, what: str) -> int:
    """Return the number for the width of an int, or of a list of 1 or 3."""
    numbers = list(value) if isinstance(value, list | tuple) else [value]
    if len(numbers) not in (1, 3):
        raise ValueError(f"{what} should be of length 1 or 3 but was {len(numbers)}")
    return int(numbers[(1 if layout == "NHWC" else 2) if len(numbers) == 3 else 0])


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
    """Return images of which ``value`` is the gradient's convolution. TF1: ``tf.nn.conv2d_transpose``.

    Args:
        value: images, ``[batch, height, width, depth]``.
        filter: ``[height, width, channels, depth]``.
        output_shape: of the result, ``[batch, height, width, channels]``; its convolution has the
            shape of ``value``.
        strides: as for :func:`conv2d`, whose other arguments these are too.
        name: the node's name.
        input: other name of ``value``.
        filters: other name of ``filter``.

    Raises:
        ValueError: shapes do not fit, or arguments that are not of these forms.
    """
    x = convert_to_tensor(renamed_argument("input", input, "value", value))
    kernel = convert_to_tensor(renamed_argument("filters", filters, "filter", filter))
    if output_shape is None:
        raise ValueError("conv2d_transpose() needs an output_shape")
    return conv2d_backprop_input(
        output_shape, kernel, x, strides, padding,
        data_format=data_format, dilations=dilations, name=name or "conv2d_transpose",
    )  # fmt: skip


def atrous_conv2d(value: Any, filters: Any, rate: int, padding: Any, name: str | None = None) -> Tensor:
    """Return the convolution with filters of elements ``rate`` apart. TF1: ``tf.nn.atrous_conv2d``.

    See :func:`conv2d`: ``value`` has channels last, ``padding`` is "SAME" or "VALID".
    """
    return conv2d(value, filters, 1, padding, dilations=rate, name=name or "convolution")


def convolution(
    input: Any,
    filter: Any,
    padding: Any,
    strides: Any = None,
    dilation_rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    filters: Any = None,
    dilations: Any = None,
) -> Tensor:
    """Return :func:`conv1d` or :func:`conv2d`, by the rank of ``input``. TF1: ``tf.nn.convolution``.

    Args:
        input: ``[batch, width, depth]`` or ``[batch, height, width, depth]``.
        filter: its spatial dimensions, depth and channels.
        padding: "SAME" or "VALID".
        strides: one number for each spatial dimension, 1 by default.
        dilation_rate: likewise.
        name: of the node, or the scope.
        data_format: "NCW" or "NCHW" where channels come second.
        filters: other name of ``filter``.
        dilations: other name of ``dilation_rate``.

    Raises:
        ValueError: an input of another rank, or arguments that are not of these forms.
    """
    kernel = renamed_argument("filters", filters, "filter", filter)
    apart = renamed_argument("dilations", dilations, "dilation_rate", dilation_rate)
    x, kernel = convert_pair(input, kernel, "convolution")
    settings: dict[str, Any] = {"data_format": data_format, "name": name or "convolution"}
    steps, apart = 1 if strides is None else strides, 1 if apart is None else apart
    if x.shape.ndims == 3:
        return conv1d(x, kernel, steps, padding, dilations=apart, **settings)
    if x.shape.ndims == 4:
        return conv2d(x, kernel, steps, padding, dilations=apart, **settings)
    raise ValueError(f"convolution takes an input of rank 3 or 4, got shape {x.shape}")


# --- each channel by itself -------------------------------------------------------------------------
def _depthwise_rule(
    images: Spec, filters: Spec, *, strides: Pair, padding: Padding, dilations: Pair
) -> Spec:
    rules.check_same_dtype("DepthwiseConv2dNative", images, filters, ("input", "filter"))
    rules.check_dtype(images.dtype, rules.FLOATS, "input")
    n, *size, depth = rules.with_rank(images.shape, 4)
    *kernel, kernel_depth, times = rules.with_rank(filters.shape, 4)
    depth = rules.merge_dim(depth, kernel_depth)
    counts = output_sizes(size, dilated(kernel, dilations), strides, padding)
    channels = None if depth is None or times is None else depth * times
    return Spec(images.dtype, (n, *counts, channels))


register_convolution(
    (
        "DepthwiseConv2dNative",
        "DepthwiseConv2dNativeBackpropInput",
        "DepthwiseConv2dNativeBackpropFilter",
    ),
    (kernels.convolve, kernels.input_gradient, kernels.filter_gradient),
    _depthwise_rule,
    summed=2,
)


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Tensor:
    """Return the convolution of each channel with filters of its own. TF1: ``tf.nn.depthwise_conv2d``.

    Args:
        input: images, ``[batch, height, width, depth]``.
        filter: ``[height, width, depth, times]``; the result has ``depth * times`` channels.
        strides: as for :func:`conv2d`.
        padding: likewise.
        rate: from one element of a filter to the next, a number or two; then strides must be 1.
        name: the node's name.
        data_format: "NCHW" for images of ``[batch, depth, height, width]``.
        dilations: other name of ``rate``.

    Raises:
        ValueError: shapes do not fit, or arguments that are not of these forms.
    """
    apart = renamed_argument("dilations", dilations, "rate", rate)
    pair = convert_pair(input, filter, name or "depthwise")
    pairs = {"strides": strides, "dilations": 1 if apart is None else apart}
    node = name or "depthwise"
    return create_image_op("DepthwiseConv2dNative", pair, padding, data_format, node, **pairs)


def depthwise_conv2d_native(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """As :func:`depthwise_conv2d`. TF1: ``tf.nn.depthwise_conv2d_native``."""
    name = name or "DepthwiseConv2dNative"
    return depthwise_conv2d(input, filter, strides, padding, dilations, name, data_format)


def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: Any,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Tensor:
    """Return :func:`depthwise_conv2d`, and its channels mixed. TF1: ``tf.nn.separable_conv2d``.

    ``pointwise_filter`` is ``[1, 1, depth * times, channels]``. The other arguments are those
    of :func:`depthwise_conv2d`.
    """
    with name_scope(name, "separable_conv2d") as scope:
        mixing = convert_to_tensor(pointwise_filter)
        rows, columns, *_ = rules.with_rank(mixing.spec.shape, 4)
        if (rows or 1, columns or 1) != (1, 1):
            raise ValueError(f"pointwise_filter must be [1, 1, ...], got shape {mixing.shape}")
        each = depthwise_conv2d(
            input, depthwise_filter, strides, padding, rate, None, data_format, dilations
        )
        return conv2d(each, mixing, 1, "VALID", data_format=data_format or "NHWC", name=scope)
