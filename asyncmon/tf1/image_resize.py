"""Images of another size: bilinear and nearest neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph import (
    OpDef,
    Spec,
    Tensor,
    convert_to_tensor,
    create_op,
    expand_dims,
    float32,
    register,
    squeeze,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ResizeMethod:
    """TF1: ``tf.image.ResizeMethod``. Bicubic and area are not supported."""

    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = 0, 1, 2, 3


def resize_bilinear(
    images: Any,
    size: Any,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:
    """Return ``[batch, *size, channels]`` images, interpolated in float32. TF1: same name.

    Args:
        images: a batch.
        size: new height and width, two integers or an int32 tensor.
        align_corners: whether the corners' pixels stay where they are.
        name: of the node.
        half_pixel_centers: whether pixels are where their centres are.
    """
    return _resize("ResizeBilinear", images, size, align_corners, half_pixel_centers, name)


def resize_nearest_neighbor(
    images: Any,
    size: Any,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:
    """Return images made of the nearest pixels, of their dtype; else as :func:`resize_bilinear`."""
    return _resize("ResizeNearestNeighbor", images, size, align_corners, half_pixel_centers, name)


def resize_images(
    images: Any,
    size: Any,
    method: int = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return one image or a batch in another size. TF1: same name.

    Images that are known to have the size stay as they are. Else bilinear gives float32.

    Args:
        images: one image or a batch.
        size: new height and width, two integers or an int32 tensor.
        method: a :class:`ResizeMethod`: bilinear or nearest neighbour.
        align_corners: see :func:`resize_bilinear`.
        preserve_aspect_ratio: whether the size is the largest within ``size`` of the same proportions;
            both sizes must be known then.
        name: of the result.
    """
    if method not in (ResizeMethod.BILINEAR, ResizeMethod.NEAREST_NEIGHBOR):
        raise ValueError(
            f"Resize method is not implemented: {method}; use ResizeMethod.BILINEAR or NEAREST_NEIGHBOR"
        )
    tensor = convert_to_tensor(images)
    if tensor.shape.ndims not in (3, 4):
        raise ValueError(f"'images' must have either 3 or 4 dimensions, got {tensor.shape}.")
    known = tensor.shape.as_list()[-3:-1]
    wanted = convert_to_tensor(size)
    if wanted.shape.ndims not in (None, 1) or wanted.shape.as_list() not in ([2], [None]):
        raise ValueError("'size' must be a 1-D Tensor of 2 elements: new_height, new_width")
    value: Any = wanted.spec.value
    if preserve_aspect_ratio:
        if value is None or None in known:
            raise ValueError(
                "preserve_aspect_ratio needs sizes that are known when the graph is built."
            )
        scale = min(np.float32(value[i]) / np.float32(known[i]) for i in range(2))
        value = [int(np.round(scale * np.float32(n))) for n in known]
        wanted = convert_to_tensor(value)
    if value is not None and list(value) == known and not preserve_aspect_ratio:
        return tensor
    resize = resize_bilinear if method == ResizeMethod.BILINEAR else resize_nearest_neighbor
    if tensor.shape.ndims == 4:
        return resize(tensor, wanted, align_corners, name)
    return squeeze(resize(expand_dims(tensor, 0), wanted, align_corners), [0], name=name)


def _resize(kind: str, images: Any, size: Any, align: bool, centers: bool, name: str | None) -> Tensor:
    if align and centers:
        raise ValueError("align_corners and half_pixel_centers exclude each other.")
    return create_op(kind, (images, size), {"align": bool(align), "centers": bool(centers)}, name)


def _places(old: int, new: int, align: bool, centers: bool) -> NDArray[np.float32]:
    """Return where the new pixels are among the old ones."""
    scale = (old - 1) / (new - 1) if align and new > 1 else old / new
    index = np.arange(new, dtype=np.float32)
    shift = np.float32(0.5 if centers else 0)
    return (index + shift) * np.float32(scale) - shift


def _bilinear(images: Any, size: Any, *, align: bool, centers: bool) -> Any:
    result = images.astype(np.float32)
    for axis, new in ((1, int(size[0])), (2, int(size[1]))):
        old = images.shape[axis]
        places = _places(old, new, align, centers)
        below = np.floor(places)
        part = (places - below).reshape([-1 if i == axis else 1 for i in range(4)])
        first = np.maximum(below, 0).astype(np.intp)
        second = np.minimum(below + 1, old - 1).astype(np.intp)
        low, high = result.take(first, axis), result.take(second, axis)
        result = low + (high - low) * part
    return result


def _nearest(images: Any, size: Any, *, align: bool, centers: bool) -> Any:
    for axis, new in ((1, int(size[0])), (2, int(size[1]))):
        old = images.shape[axis]
        places = _places(old, new, align, centers) + np.float32(0.5 if align or centers else 0)
        images = images.take(np.clip(np.floor(places), 0, old - 1).astype(np.intp), axis)
    return images


def _rule(images: Spec, size: Spec, *, align: bool, centers: bool) -> Spec:
    if images.shape is not None and len(images.shape) != 4:
        raise ValueError(f"input must be 4-dimensional, got shape {images.shape}.")
    if size.shape not in (None, (2,)):
        raise ValueError(f"size must have 2 elements, got shape {size.shape}.")
    batch, _, _, channels = images.shape or (None,) * 4
    height, width = size.known_dims() or (None, None)
    if any(n is not None and n < 1 for n in (height, width)):
        raise ValueError(f"output dimensions must be positive, got {height} and {width}.")
    return Spec(images.dtype, (batch, height, width, channels))


def _float_rule(images: Spec, size: Spec, **attrs: Any) -> Spec:
    return Spec(float32, _rule(images, size, **attrs).shape)


register(OpDef("ResizeBilinear", _bilinear, _float_rule))
register(OpDef("ResizeNearestNeighbor", _nearest, _rule))
