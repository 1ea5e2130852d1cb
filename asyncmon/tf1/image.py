"""TF1's ``tf.image``, as far as input pipelines use it.

Images are ``[height, width, channels]``; batches of them have a dimension before that. Arguments are
TF1's. Functions raise ValueError for a tensor that is known to be no image, and for numbers that do not
fit it. Where that shows in a run only, it is InvalidArgumentError there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.tf1.image_files import decode_jpeg as decode_jpeg
from asyncmon.tf1.image_files import decode_png as decode_png
from asyncmon.tf1.image_files import encode_jpeg as encode_jpeg
from asyncmon.tf1.image_files import encode_png as encode_png
from asyncmon.tf1.old_names import saturate_cast


# --- flips ----------------------------------------------------------------------------------------
def flip_left_right(image: Any) -> g.Tensor:
    """Return images mirrored along their width. TF1: same name."""
    return g.reverse(_image_tensor(image), [-2])


def flip_up_down(image: Any) -> g.Tensor:
    """Return images mirrored along their height. TF1: same name."""
    return g.reverse(_image_tensor(image), [-3])


def random_flip_left_right(image: Any, seed: int | None = None) -> g.Tensor:
    """Return each image as it is or mirrored along its width, as likely. TF1: same name."""
    return _random_flip(_image_tensor(image), -2, seed)


def random_flip_up_down(image: Any, seed: int | None = None) -> g.Tensor:
    """Return each image as it is or mirrored along its height, as likely. TF1: same name."""
    return _random_flip(_image_tensor(image), -3, seed)


def _random_flip(image: g.Tensor, axis: int, seed: int | None) -> g.Tensor:
    flips = g.less(g.random_uniform(g.shape(image)[:-3], seed=seed), 0.5)
    each = g.reshape(flips, g.concat([g.shape(flips), g.convert_to_tensor([1, 1, 1])], 0))
    return g.where(g.broadcast_to(each, g.shape(image)), g.reverse(image, [axis]), image)


# --- colours --------------------------------------------------------------------------------------
def adjust_brightness(image: Any, delta: Any) -> g.Tensor:
    """Return images with ``delta`` added; integers are scaled to [0, 1] meanwhile. TF1: same name."""
    tensor = g.convert_to_tensor(image)
    adjusted = _floating(tensor)
    return _like(adjusted + g.cast(delta, adjusted.dtype), tensor)


def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> g.Tensor:
    """Adjust the brightness by a number in [-max_delta, max_delta). TF1: same name."""
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_brightness(image, g.random_uniform([], -max_delta, max_delta, seed=seed))


def adjust_contrast(images: Any, contrast_factor: Any) -> g.Tensor:
    """Return images whose distance from each channel's mean is multiplied. TF1: same name."""
    tensor = _image_tensor(images)
    adjusted = g.cast(_floating(tensor), g.float32)
    mean = g.reduce_mean(adjusted, [-3, -2], keepdims=True)
    adjusted = (adjusted - mean) * g.cast(contrast_factor, g.float32) + mean
    return _like(g.cast(adjusted, _floating(tensor).dtype), tensor)


def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> g.Tensor:
    """Adjust the contrast by a factor in [lower, upper). TF1: same name."""
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")
    return adjust_contrast(image, g.random_uniform([], lower, upper, seed=seed))


def per_image_standardization(image: Any) -> g.Tensor:
    """Return each image with mean 0 and variance 1, as floats. TF1: same name.

    The standard deviation is taken to be 1 / sqrt(number of elements) at least.
    """
    tensor = _image_tensor(image)
    tensor = tensor if tensor.dtype in (g.float16, g.float32) else g.cast(tensor, g.float32)
    mean = g.reduce_mean(tensor, [-3, -2, -1], keepdims=True)
    deviation = g.sqrt(g.reduce_mean(g.square(tensor - mean), [-3, -2, -1], keepdims=True))
    least = g.rsqrt(g.cast(g.reduce_prod(g.shape(tensor)[-3:]), tensor.dtype))
    return (tensor - mean) / g.maximum(deviation, least)


def convert_image_dtype(
    image: Any, dtype: Any, saturate: bool = False, name: str | None = None
) -> g.Tensor:
    """Return images of another dtype: integers are floats in [0, 1]. TF1: same name.

    With ``saturate`` what is out of range becomes the nearest number; else it is undefined.
    """
    tensor, wanted = g.convert_to_tensor(image), g.as_dtype(dtype)
    given, to = tensor.dtype, saturate_cast if saturate else g.cast
    if given is wanted:
        return g.identity(tensor, name=name)
    if given.is_floating and wanted.is_floating:
        return g.cast(tensor, wanted, name=name)
    if given.is_integer and wanted.is_floating:
        return g.cast(tensor, wanted) * np.asarray(1.0 / given.max, wanted.as_numpy_dtype)
    if given.is_floating:
        return to(tensor * np.asarray(wanted.max + 0.5, given.as_numpy_dtype), wanted, name=name)
    top, new = int(given.max) + 1, int(wanted.max) + 1
    if top > new:
        return to(tensor // np.asarray(top // new, given.as_numpy_dtype), wanted, name=name)
    return to(tensor, wanted) * np.asarray(new // top, wanted.as_numpy_dtype)


def _floating(tensor: g.Tensor) -> g.Tensor:
    floats = tensor.dtype in (g.float16, g.float32)
    return g.identity(tensor) if floats else convert_image_dtype(tensor, g.float32)


def _like(adjusted: g.Tensor, tensor: g.Tensor) -> g.Tensor:
    return convert_image_dtype(adjusted, tensor.dtype, saturate=True)


# --- crops ----------------------------------------------------------------------------------------
def resize_image_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> g.Tensor:
    """Return the middle of images, with zeros around it where it is too small. TF1: same name.

    Heights and widths may be tensors.
    """
    result = tensor = _image_tensor(image)
    known: list[int | None] = tensor.shape.as_list() if tensor.shape.ndims else [None] * 3
    targets = {-3: target_height, -2: target_width}
    for axis, target in targets.items():
        if not isinstance(target, g.Tensor) and target < 1:
            raise ValueError(f"{'target_height' if axis == -3 else 'target_width'} must be > 0.")
        size: Any = g.shape(tensor)[axis] if known[axis] is None else known[axis]
        more = target - size
        first, before = _larger(-more // 2, 0), _larger(more // 2, 0)
        kept = -_larger(-target, -size)
        box, paddings = [slice(None)] * len(known), [[0, 0]] * len(known)
        box[axis], paddings[axis] = slice(first, first + kept), [before, target - kept - before]
        result = g.pad(result[tuple(box)], paddings)
        known[axis] = None if isinstance(target, g.Tensor) else int(target)
    if tensor.shape.ndims is not None:
        result.set_shape(g.TensorShape(known))
    return result


def _larger(x: Any, y: Any) -> Any:
    return g.maximum(x, y) if isinstance(x, g.Tensor) or isinstance(y, g.Tensor) else max(x, y)


def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> g.Tensor:
    """Return a part of a tensor, of the shape ``size``, at a random place. TF1: ``tf.random_crop``.

    In the run: InvalidArgumentError for a tensor that is smaller.
    """
    with g.name_scope(name, "random_crop", [value]) as scope:
        tensor, extents = g.convert_to_tensor(value), g.convert_to_tensor(size)
        whole = g.cast(g.shape(tensor), extents.dtype)
        message = ["Need value.shape >= size, got ", whole, extents]
        with g.control_dependencies([g.Assert(g.reduce_all(g.greater_equal(whole, extents)), message)]):
            limit = whole - extents + 1
        draws = g.random_uniform(g.shape(whole), 0, extents.dtype.max, extents.dtype, seed=seed)
        return g.slice(tensor, draws % limit, extents, name=scope)


# --- sizes ---------------------------------------------------------------------------------------
class ResizeMethod:
    """TF1: ``tf.image.ResizeMethod``. Bicubic and area are not supported."""

    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = 0, 1, 2, 3


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
    tensor, wanted = _image_tensor(images), g.convert_to_tensor(size)
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


def _resize_rule(images: g.Spec, size: g.Spec, *, bilinear: bool, align: bool) -> g.Spec:
    if size.shape not in (None, (2,), (None,)):
        raise ValueError(f"'size' must be a 1-D Tensor of 2 elements, got shape {size.shape}.")
    new = size.known_dims() or (None, None)
    if any(extent is not None and extent < 1 for extent in new):
        raise ValueError(f"output dimensions must be positive, got {list(new)}.")
    found = None if images.shape is None else (*images.shape[:-3], *new, images.shape[-1])
    return g.Spec(g.float32 if bilinear else images.dtype, found)


g.register(g.OpDef("ResizeImages", _resize, _resize_rule))


def _image_tensor(image: Any) -> g.Tensor:
    """Return one image or several as a tensor. ValueError: it is known to be neither."""
    tensor = g.convert_to_tensor(image)
    found = tensor.shape
    if found.ndims not in (None, 3, 4):
        raise ValueError(f"An image has 3 dimensions, a batch of them 4, got shape {found}.")
    if found.ndims and 0 in found.as_list()[-3:]:
        raise ValueError(f"inner 3 dims of 'image.shape' must be > 0: {found}")
    return tensor


resize = resize_images
resize_with_crop_or_pad = resize_image_with_crop_or_pad
