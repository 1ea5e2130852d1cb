"""Convolution of images. The kernels are in :mod:`asyncmon.graph.kernels.conv`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.core.op import OpDef, register
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.kernels.conv import convolve, filter_gradient, input_gradient
from asyncmon.graph.kernels.windows import Padding, Pair, dilated, output_sizes
from asyncmon.graph.nn.images import check_data_format, create_image_op, window_attrs
from asyncmon.graph.ops.shape_ops import shape_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncmon.graph.core.node import Operation, Tensor


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
    """Return a function that counts multiplications; ``filters`` is the index of the filters' spec."""

    def count(*specs: Spec, **_attrs: object) -> int:
        window = (specs[filters].shape or ())[:3]
        return (rules.num_elements(specs[2].shape) or 0) * (rules.num_elements(window) or 0)

    return count


def _by_images(images: Tensor, filters: Tensor, grad: Tensor, attrs: Mapping[str, Any]) -> Tensor:
    return create_op("Conv2DBackpropInput", (create_op("Shape", (images,)), filters, grad), attrs)


def _by_filters(images: Tensor, filters: Tensor, grad: Tensor, attrs: Mapping[str, Any]) -> Tensor:
    return create_op("Conv2DBackpropFilter", (images, create_op("Shape", (filters,)), grad), attrs)


def _conv_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    images, filters = op.inputs
    attrs = op.attrs
    return [_by_images(images, filters, grad, attrs), _by_filters(images, filters, grad, attrs)]


def _by_images_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    _, filters, inner = op.inputs
    by_inner = create_op("Conv2D", (grad, filters), op.attrs)
    return [None, _by_filters(grad, filters, inner, op.attrs), by_inner]


def _by_filters_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    images, _, inner = op.inputs
    by_inner = create_op("Conv2D", (images, grad), op.attrs)
    return [_by_images(images, grad, inner, op.attrs), None, by_inner]


# fmt: off
register(OpDef("Conv2D", convolve, _conv_rule, _conv_gradient, out=True, flops=_flops(filters=1)))
register(OpDef("Conv2DBackpropInput", input_gradient, _by_images_rule, _by_images_gradient,
    out=True, flops=_flops(filters=1)))
register(OpDef("Conv2DBackpropFilter", filter_gradient, _by_filters_rule, _by_filters_gradient,
    out=True, flops=_flops(filters=3)))
# fmt: on


def _attrs(strides: Any, padding: Any, layout: str, dilations: Any) -> dict[str, Any]:
    if strides is None or padding is None:
        raise ValueError("conv2d() needs strides and padding")
    dilations = 1 if dilations is None else dilations
    return window_attrs(padding, layout, strides=strides, dilations=dilations)


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
        strides: from one window to the next: a number, two, or four for the dimensions of ``input``.
        padding: "SAME" (as many windows as strides), "VALID" (only inside), or four pairs of numbers.
        use_cudnn_on_gpu: accepted for the original's sake; there is no GPU.
        data_format: "NCHW" for images of ``[batch, depth, height, width]``.
        dilations: from one element of the filter to the next, in the form of ``strides``.
        name: the node's name.
        filters: other name of ``filter``.

    Raises:
        ValueError: shapes do not fit, or strides, padding or dilations are not of these forms.
    """
    layout = check_data_format(data_format)
    pair = convert_pair(input, filter if filters is None else filters, name or "Conv2D")
    return create_image_op("Conv2D", pair, _attrs(strides, padding, layout, dilations), layout, name)


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
) -> Tensor:
    """Return the gradient of :func:`conv2d` with respect to its input.

    TF1: ``tf.nn.conv2d_backprop_input``. The other arguments are those of :func:`conv2d`.

    Args:
        input_sizes: the shape of the input.
        out_backprop: the gradient with respect to the output.
        data_format: only "NHWC".
    """
    kernel = convert_to_tensor(filter if filters is None else filters)
    inputs = (shape_tensor(input_sizes), kernel, out_backprop)
    attrs = _attrs(strides, padding, _only_nhwc(data_format), dilations)
    return create_op("Conv2DBackpropInput", inputs, attrs, name)


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
) -> Tensor:
    """Return the gradient of :func:`conv2d` with respect to its filter.

    TF1: ``tf.nn.conv2d_backprop_filter``. The other arguments are those of :func:`conv2d`.

    Args:
        filter_sizes: the shape of the filter.
        out_backprop: the gradient with respect to the output.
        data_format: only "NHWC".
    """
    attrs = _attrs(strides, padding, _only_nhwc(data_format), dilations)
    inputs = (input, shape_tensor(filter_sizes), out_backprop)
    return create_op("Conv2DBackpropFilter", inputs, attrs, name)


def _only_nhwc(data_format: str | None) -> str:
    if check_data_format(data_format) != "NHWC":
        raise ValueError("The gradient functions take data_format='NHWC' only; transpose the images.")
    return "NHWC"
