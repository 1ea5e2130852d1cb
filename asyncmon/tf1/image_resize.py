"""Images of another size: bilinear and nearest neighbour."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon import graph as g


class ResizeMethod:
    """TF1: ``tf.image.ResizeMethod``. Bicubic and area are not supported."""

    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = 0, 1, 2, 3


def image_tensor(image: Any) -> g.Tensor:
    """Return one image or several as a tensor. ValueError: it is known to be neither."""
    tensor = g.convert_to_tensor(image)
    found = tensor.shape
    if found.ndims not in (None, 3, 4):
        raise ValueError(f"An image has 3 dimensions, a batch of them 4, got shape {found}.")
    if found.ndims and 0 in found.as_list()[-3:]:
        raise ValueError(f"inner 3 dims of 'image.shape' must be > 0: {found}")
    return tensor


def resize_images(
    images: Any,
    size: Any,
    method: int = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    name: str | None = None,
) -> g.Tensor:
    """Return one image or a batch in another size. TF1: same name, without its aspect ratios.

    ``size`` are height and width, two integers or an int32 tensor. Images that are known to have it
    stay as they are. Else bilinear gives float32.
    """
    if method not in (ResizeMethod.BILINEAR, ResizeMethod.NEAREST_NEIGHBOR):
        raise ValueError(
            f"Resize method is not implemented: {method}; use ResizeMethod.BILINEAR or NEAREST_NEIGHBOR"
        )
    tensor, wanted = image_tensor(images), g.convert_to_tensor(size)
    value: Any = wanted.spec.value
    if value is not None and tensor.shape.ndims and list(value) == tensor.shape.as_list()[-3:-1]:
        return tensor
    attrs = {"bilinear": method == ResizeMethod.BILINEAR, "align": bool(align_corners)}
    return g.create_op("ResizeImages", (tensor, wanted), attrs, name)


def _resize(images: Any, size: Any, *, bilinear: bool, align: bool) -> Any:
    result = images.astype(np.float32) if bilinear else images
    for axis, new in ((-3, int(size[0])), (-2, int(size[1]))):
        old = images.shape[axis]
        scale = (old - 1) / (new - 1) if align and new > 1 else old / new
        places = np.arange(new, dtype=np.float32) * np.float32(scale)
        below = np.floor(places if bilinear or not align else places + np.float32(0.5))
        low = result.take(np.minimum(below, old - 1).astype(np.intp), axis)
        if bilinear:
            high = result.take(np.minimum(below + 1, old - 1).astype(np.intp), axis)
            low = low + (high - low) * (places - below).reshape(-1, *[1] * (-1 - axis))
        result = low
    return result


def _rule(images: g.Spec, size: g.Spec, *, bilinear: bool, align: bool) -> g.Spec:
    if size.shape not in (None, (2,), (None,)):
        raise ValueError(f"'size' must be a 1-D Tensor of 2 elements, got shape {size.shape}.")
    new = size.known_dims() or (None, None)
    if any(extent is not None and extent < 1 for extent in new):
        raise ValueError(f"output dimensions must be positive, got {list(new)}.")
    found = None if images.shape is None else (*images.shape[:-3], *new, images.shape[-1])
    return g.Spec(g.float32 if bilinear else images.dtype, found)


g.register(g.OpDef("ResizeImages", _resize, _rule))
