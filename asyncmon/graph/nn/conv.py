"""Convolution of images: the ops. How they are computed is in :mod:`asyncmon.graph.kernels.conv`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.core.op import OpDef, Shape, Spec, register
from asyncmon.graph.kernels.conv import convolve, filter_gradient, input_gradient
from asyncmon.graph.kernels.windows import (
    Padding,
    Pair,
    check_data_format,
    output_size,
    spatial,
    window_padding,
)
from asyncmon.graph.ops.shape_ops import shape_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.graph.core.node import Operation, Tensor

__all__ = ["conv2d", "conv2d_backprop_filter", "conv2d_backprop_input"]


# --- shape rules and gradients ----------------------------------------------------------------------


def _conv_spec(
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
    out = [
        None
        if k is None
        else output_size(s, (k - 1) * d + 1, step, padding if isinstance(padding, str) else padding[i])
        for i, (s, k, d, step) in enumerate(zip(size, kernel, dilations, strides, strict=True))
    ]
    return Spec(images.dtype, (n, *out, channels))


def _sized(at: int) -> rules.Rule:
    """The output has the shape that input ``at`` holds."""

    def rule(*specs: Spec, **_attrs: object) -> Spec:
        shape: Shape = specs[at].known_dims()
        return Spec(specs[2].dtype, (None,) * 4 if shape is None else rules.with_rank(shape, 4))

    return rule


def _backprops(op_type: str, first: Tensor, like: Tensor, grad: Tensor, op: Operation) -> Tensor:
    """Build one of the two gradients of a convolution, of the shape of ``like``."""
    shape = create_op("Shape", (like,))
    inputs = (shape, first, grad) if op_type == "Conv2DBackpropInput" else (first, shape, grad)
    result = create_op(op_type, inputs, op.attrs)
    result.set_shape(like.spec.shape)
    return result


def _conv_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    images, filters = op.inputs
    return [
        _backprops("Conv2DBackpropInput", filters, images, grad, op),
        _backprops("Conv2DBackpropFilter", images, filters, grad, op),
    ]


def _conv_input_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    _, filters, inner = op.inputs
    return [
        None,
        _backprops("Conv2DBackpropFilter", grad, filters, inner, op),
        create_op("Conv2D", (grad, filters), op.attrs),
    ]


def _conv_filter_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    images, _, inner = op.inputs
    return [
        _backprops("Conv2DBackpropInput", grad, images, inner, op),
        None,
        create_op("Conv2D", (images, grad), op.attrs),
    ]


def _multiplications(windows: int, filters: int) -> Callable[..., int]:
    """Return what counts them: all of one shape times the first three dimensions of another."""

    def count(*specs: Spec, **_attrs: object) -> int:
        window = (specs[filters].shape or ())[:3]
        return (rules.num_elements(specs[windows].shape) or 0) * (rules.num_elements(window) or 0)

    return count


register(
    OpDef(
        "Conv2D",
        convolve,
        _conv_spec,
        _conv_gradient,
        out=True,
        flops=_multiplications(windows=2, filters=1),
    )
)
register(
    OpDef(
        "Conv2DBackpropInput",
        input_gradient,
        _sized(0),
        _conv_input_gradient,
        out=True,
        flops=_multiplications(windows=2, filters=1),
    )
)
register(
    OpDef(
        "Conv2DBackpropFilter",
        filter_gradient,
        _sized(1),
        _conv_filter_gradient,
        out=True,
        flops=_multiplications(windows=2, filters=3),
    )
)


# --- public functions -------------------------------------------------------------------------------


def _attrs(strides: Any, padding: Any, data_format: str, dilations: Any) -> dict[str, Any]:
    if strides is None or padding is None:
        raise ValueError("conv2d() needs strides and padding")
    return {
        "strides": spatial(strides, "strides", data_format),
        "padding": window_padding(padding, data_format),
        "dilations": spatial(1 if dilations is None else dilations, "dilations", data_format),
    }


_LAST, _SECOND = (0, 2, 3, 1), (0, 3, 1, 2)  # where to put the channels


def channels(x: Tensor, last: bool) -> Tensor:
    """Return images with their channels moved from second to last, or back."""
    return create_op("Transpose", (x,), {"perm": _LAST if last else _SECOND})


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
    images, kernel = convert_pair(input, filter if filters is None else filters, name or "Conv2D")
    attrs = _attrs(strides, padding, layout, dilations)
    if layout == "NHWC":
        return create_op("Conv2D", (images, kernel), attrs, name)
    result = create_op("Conv2D", (channels(images, True), kernel), attrs, name)
    return channels(result, False)


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

    TF1: ``tf.nn.conv2d_backprop_input``.

    Args:
        input_sizes: the shape of the input.
        filter: as for :func:`conv2d`, like the rest.
        out_backprop: the gradient with respect to its output.
        strides: likewise.
        padding: likewise.
        use_cudnn_on_gpu: likewise.
        data_format: likewise; only "NHWC".
        dilations: likewise.
        name: the node's name.
        filters: other name of ``filter``.
    """
    kernel = convert_to_tensor(filter if filters is None else filters)
    attrs = _attrs(strides, padding, _only_nhwc(data_format), dilations)
    return create_op(
        "Conv2DBackpropInput", (shape_tensor(input_sizes), kernel, out_backprop), attrs, name
    )


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

    TF1: ``tf.nn.conv2d_backprop_filter``.

    Args:
        input: as for :func:`conv2d`, like the rest.
        filter_sizes: the shape of the filter.
        out_backprop: the gradient with respect to its output.
        strides: likewise.
        padding: likewise.
        use_cudnn_on_gpu: likewise.
        data_format: likewise; only "NHWC".
        dilations: likewise.
        name: the node's name.
    """
    attrs = _attrs(strides, padding, _only_nhwc(data_format), dilations)
    return create_op(
        "Conv2DBackpropFilter", (input, shape_tensor(filter_sizes), out_backprop), attrs, name
    )


def _only_nhwc(data_format: str | None) -> str:
    if check_data_format(data_format) != "NHWC":
        raise ValueError("The gradient functions take data_format='NHWC' only; transpose the images.")
    return "NHWC"
