"""Convolution of images: windows gathered into a matrix, a few images at a time; BLAS does the rest."""

from __future__ import annotations

import threading
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from asyncmon.graph import shape_rules as rules
from asyncmon.graph.array_ops import shape_tensor
from asyncmon.graph.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.op_def import OpDef, Shape, Spec, register
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
    from asyncmon.graph.arrays import Array
    from asyncmon.graph.tensor import Operation, Tensor

__all__ = ["conv2d", "conv2d_backprop_filter", "conv2d_backprop_input"]

_BLOCK = 1 << 22  # elements of a temporary at a time: they stay in the cache; few calls of BLAS

_scratch = threading.local()


def _workspace(slot: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a temporary that this thread keeps, so that its memory is not mapped anew in each run."""
    count = prod(shape)
    if count > 2 * _BLOCK:
        return np.empty(shape, dtype)
    kept = getattr(_scratch, slot, None)
    if kept is None or kept.nbytes < count * dtype.itemsize:
        kept = np.empty(count * dtype.itemsize, np.uint8)
        setattr(_scratch, slot, kept)
    return kept[: count * dtype.itemsize].view(dtype).reshape(shape)


class _Geometry:
    """The sizes of one convolution."""

    def __init__(
        self,
        images: tuple[int, ...],
        filters: tuple[int, ...],
        strides: Pair,
        padding: Padding,
        dilations: Pair,
    ) -> None:
        self.images, self.filters = images, filters
        self.strides, self.dilations = strides, dilations
        rows, columns = filters[:2]
        reach = ((rows - 1) * dilations[0] + 1, (columns - 1) * dilations[1] + 1)
        self.counts, self.around = paddings(images, reach, strides, padding)
        (top, bottom), (left, right) = self.around
        self.padded = (images[1] + top + bottom, images[2] + left + right, images[3])
        self.output = (images[0], *self.counts, filters[3])
        self.plain = (rows, columns) == (1, 1) == strides and not (top + bottom + left + right)

    def blocks(self, width: int) -> list[slice]:
        """Return slices of the batch for a temporary of ``width`` elements a window."""
        step = max(1, _BLOCK // max(1, prod(self.counts) * width))
        return [slice(i, min(i + step, self.images[0])) for i in range(0, self.images[0], step)]

    def inside(self) -> tuple[slice, slice, slice]:
        """Return where the image lies in its padded copy."""
        (top, _), (left, _) = self.around
        return slice(None), slice(top, top + self.images[1]), slice(left, left + self.images[2])

    def tap(self, row: int, column: int) -> tuple[slice, slice, slice]:
        """Return the pixels of padded images that one element of the filter meets."""
        (down, right), (rows, columns) = self.strides, self.counts
        top, left = row * self.dilations[0], column * self.dilations[1]
        return (
            slice(None),
            slice(top, top + down * (rows - 1) + 1, down),
            slice(left, left + right * (columns - 1) + 1, right),
        )

    def windows(self, x: Array) -> Array:
        """Return the matrix of the windows of some images, a row each."""
        count, depth = len(x), prod(self.filters[:3])
        if self.plain:
            return np.ascontiguousarray(x).reshape(-1, depth)
        if self.padded != self.images[1:]:
            padded = _workspace("padded", (count, *self.padded), x.dtype)
            padded[...] = 0
            padded[self.inside()] = x
            x = padded
        n, h, w, c = x.strides
        (down, right), (dilate_h, dilate_w) = self.strides, self.dilations
        shape = (count, *self.counts, *self.filters[:3])
        view = as_strided(x, shape, (n, h * down, w * right, h * dilate_h, w * dilate_w, c))
        matrix = _workspace("windows", shape, x.dtype)
        np.copyto(matrix, view)
        return matrix.reshape(-1, depth)


def _wide(*arrays: Array) -> list[Array]:
    return [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays]


def _target(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return what to compute into: half precision is computed in single."""
    return np.empty(shape, dtype) if out is None or out.dtype != dtype else out


def _conv(
    images: Array,
    filters: Array,
    out: Array | None = None,
    *,
    strides: Pair,
    padding: Padding,
    dilations: Pair,
) -> Array:
    x, w = _wide(images, filters)
    geometry = _Geometry(x.shape, w.shape, strides, padding, dilations)
    matrix = np.ascontiguousarray(w).reshape(-1, w.shape[3])
    result = _target(out, geometry.output, x.dtype)
    for block in geometry.blocks(len(matrix)):
        np.dot(geometry.windows(x[block]), matrix, result[block].reshape(-1, w.shape[3]))
    return result.astype(images.dtype, copy=False)


def _conv_filter(
    images: Array,
    sizes: Array,
    grad: Array,
    out: Array | None = None,
    *,
    strides: Pair,
    padding: Padding,
    dilations: Pair,
) -> Array:
    x, g = _wide(images, grad)
    shape = tuple(sizes.tolist())
    geometry = _Geometry(x.shape, shape, strides, padding, dilations)
    result = _target(out, shape, x.dtype)
    matrix = result.reshape(-1, shape[3])
    matrix[...] = 0
    for block in geometry.blocks(prod(shape[:3])):
        flat = np.ascontiguousarray(g[block]).reshape(-1, shape[3])
        matrix += np.dot(geometry.windows(x[block]).T, flat)
    return result.astype(images.dtype, copy=False)


def _conv_input(
    sizes: Array,
    filters: Array,
    grad: Array,
    out: Array | None = None,
    *,
    strides: Pair,
    padding: Padding,
    dilations: Pair,
) -> Array:
    w, g = _wide(filters, grad)
    shape = tuple(sizes.tolist())
    geometry = _Geometry(shape, w.shape, strides, padding, dilations)
    result = _target(out, shape, g.dtype)
    reach = (w.shape[1] - 1) * dilations[1]
    if geometry.plain:
        np.dot(np.ascontiguousarray(g).reshape(-1, w.shape[3]), w[0, 0].T, result.reshape(-1, shape[3]))
    elif strides == (1, 1) and max(geometry.around[1]) <= reach:
        _input_by_rows(geometry, w, g, result)
    else:
        _input_by_elements(geometry, w, g, result)
    return result.astype(grad.dtype, copy=False)


def _input_by_rows(geometry: _Geometry, w: Array, g: Array, result: Array) -> None:
    """Convolve the gradient with each row of the filter, turned round, and add up the rows."""
    rows, columns, depth, channels = w.shape
    (down, across), ((top, _), (left, right)) = geometry.dilations, geometry.around
    reach = (columns - 1) * across
    edge = ((0, 0), (reach - left, reach - right))
    flat = _Geometry(g.shape, (1, columns, channels, depth), (1, 1), edge, (1, across))
    turned = [np.ascontiguousarray(row[::-1].swapaxes(1, 2)).reshape(-1, depth) for row in w]
    high, low = result.shape[1], g.shape[1]
    for block in flat.blocks(columns * channels):
        matrix, target = flat.windows(g[block]), result[block]
        target[...] = 0
        part = _workspace("part", (len(matrix), depth), g.dtype)
        lines = part.reshape(len(target), low, -1, depth)
        for row in range(rows):
            shift = row * down - top
            first, last = max(0, shift), min(high, low + shift)
            if first >= last:
                continue  # this row of the filter meets only padding
            np.dot(matrix, turned[row], part)
            target[:, first:last] += lines[:, first - shift : last - shift]


def _input_by_elements(geometry: _Geometry, w: Array, g: Array, result: Array) -> None:
    """Multiply the gradient by each element of the filter, and add that up where its windows lie."""
    rows, columns, depth, channels = w.shape
    for block in geometry.blocks(depth):
        flat = np.ascontiguousarray(g[block]).reshape(-1, channels)
        count = block.stop - block.start
        padded = _workspace("padded", (count, *geometry.padded), g.dtype)
        padded[...] = 0
        part = _workspace("part", (len(flat), depth), g.dtype)
        for row in range(rows):
            for column in range(columns):
                np.dot(flat, w[row, column].T, part)
                padded[geometry.tap(row, column)] += part.reshape(count, *geometry.counts, depth)
        result[block] = padded[geometry.inside()]


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


register(OpDef("Conv2D", _conv, _conv_spec, _conv_gradient, out=True))
register(OpDef("Conv2DBackpropInput", _conv_input, _sized(0), _conv_input_gradient, out=True))
register(OpDef("Conv2DBackpropFilter", _conv_filter, _sized(1), _conv_filter_gradient, out=True))


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
    images, kernel = convert_pair(input, filter if filters is None else filters)
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
