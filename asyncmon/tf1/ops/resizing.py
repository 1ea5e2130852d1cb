"""Images of another size, with the gradient: the op of ``tf.image.resize_images``.

Height and width are resized one after the other: each new row is a weighted sum of old rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon import graph as g

BILINEAR, NEAREST, BICUBIC, AREA = range(4)
"""The methods, as in ``tf.image.ResizeMethod``."""


def _resize(images: Any, size: Any, *, method: int, align: bool) -> Any:
    result = images if method == NEAREST else images.astype(np.float32)
    for axis, new in ((-3, int(size[0])), (-2, int(size[1]))):
        old = images.shape[axis]
        if method in (BICUBIC, AREA):
            result = _along(_matrix(method, align, old, new), result, axis)
            continue
        places = _places(np.arange(new), _scale(old, new, align))
        below = np.floor(places + np.float32(0.5) if method == NEAREST and align else places)
        low = result.take(np.minimum(below, old - 1).astype(np.intp), axis)
        if method == BILINEAR:
            high = result.take(np.minimum(below + 1, old - 1).astype(np.intp), axis)
            low = low + (high - low) * (places - below).reshape(-1, *[1] * (-1 - axis))
        result = low
    return result


def _resize_back(grad: Any, images: Any, *, method: int, align: bool) -> Any:
    result = grad
    for axis in (-3, -2):
        matrix = _matrix(method, align, images.shape[axis], grad.shape[axis])
        result = _along(matrix.T.astype(grad.dtype), result, axis)
    return result.astype(images.dtype)


def _along(matrix: Any, values: Any, axis: int) -> Any:
    return np.moveaxis(np.tensordot(matrix, values, (1, axis)), 0, axis)


def _scale(old: int, new: int, align: bool) -> float:
    return (old - 1) / (new - 1) if align and new > 1 else old / new


def _places(rows: Any, scale: float) -> Any:
    return rows.astype(np.float32) * np.float32(scale)


def _matrix(method: int, align: bool, old: int, new: int) -> Any:
    """Return the weight of each old row in each new one."""
    rows, scale = np.arange(new)[:, None], _scale(old, new, align)
    if method == AREA:
        columns, values = _area(rows, scale)
    else:
        places = _places(rows, scale)
        below = np.floor(places + np.float32(0.5) if method == NEAREST and align else places)
        columns, values = below, np.ones_like(below)
        if method == BILINEAR:
            columns = np.add(below, [0, 1])
            values = abs([1, 0] - (places - below))
        elif method == BICUBIC:
            columns, values = np.add(below, [-1, 0, 1, 2]), _cubic(places - below)
    weights = np.zeros((new, old), np.float32)
    np.add.at(weights, (rows, np.clip(columns, 0, old - 1).astype(np.intp)), values)
    return weights


def _cubic(rest: Any) -> Any:
    """Return the weights of four pixels, of a table of 1024 distances as in TF1."""
    x = abs(np.rint(rest * 1024) / 1024 - [-1, 0, 1, 2])
    near, far = (1.25 * x - 2.25) * x * x + 1, ((-0.75 * x + 3.75) * x - 6) * x + 3
    return np.where(x <= 1, near, far)


def _area(rows: Any, scale: float) -> tuple[Any, Any]:
    """Return the parts of a row of pixels that a new pixel covers."""
    columns = np.floor(rows * scale).astype(np.intp) + np.arange(int(np.ceil(scale)) + 1)
    covered = np.minimum(columns + 1, (rows + 1) * scale) - np.maximum(columns, rows * scale)
    return columns, np.maximum(covered, 0) / scale


def _resize_rule(images: g.Spec, size: g.Spec, *, method: int, align: bool) -> g.Spec:
    if not size.dtype.is_integer:
        raise ValueError(f"'size' must be integers, got {size.dtype.name}.")
    if size.shape not in (None, (2,), (None,)):
        raise ValueError(f"'size' must be a 1-D Tensor of 2 elements, got shape {size.shape}.")
    new = size.known_dims() or (None, None)
    if any(extent is not None and extent < 1 for extent in new):
        raise ValueError(f"output dimensions must be positive, got {list(new)}.")
    found = None if images.shape is None else (*images.shape[:-3], *new, images.shape[-1])
    return g.Spec(images.dtype if method == NEAREST else g.float32, found)


# fmt: off
g.register(g.OpDef("ResizeImages", _resize, _resize_rule, lambda op, grad:
    [g.create_op("ResizeImagesGradient", (grad, op.inputs[0]), op.attrs), None]))
g.register(g.OpDef("ResizeImagesGradient", _resize_back,
    lambda grad, images, **attrs: g.Spec(images.dtype, images.shape), lambda op, grad:
    [g.create_op("ResizeImages", (grad, g.shape(op.inputs[0])[-3:-1]), op.attrs), None]))
# fmt: on
