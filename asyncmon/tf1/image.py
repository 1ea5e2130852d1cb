"""TF1's ``tf.image``, as far as input pipelines use it.

Images are ``[height, width, channels]``; batches of them have a dimension before that. Arguments are
TF1's. Functions raise ValueError for a tensor that is known to be no image, and for numbers that do not
fit it. Where that shows in a run only, it is InvalidArgumentError there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon.graph import (
    Assert,
    DType,
    Tensor,
    TensorShape,
    as_dtype,
    broadcast_to,
    cast,
    concat,
    control_dependencies,
    convert_to_tensor,
    float16,
    float32,
    floor,
    greater_equal,
    identity,
    less,
    maximum,
    minimum,
    name_scope,
    pad,
    random_uniform,
    reduce_all,
    reduce_mean,
    reduce_prod,
    reshape,
    reverse,
    rsqrt,
    shape,
    sqrt,
    square,
    uint8,
    where,
)
from asyncmon.graph import slice as slice_op
from asyncmon.graph import transpose as transpose_op
from asyncmon.missing_names import missing_name
from asyncmon.tf1.image_files import decode
from asyncmon.tf1.image_files import decode_jpeg as decode_jpeg
from asyncmon.tf1.image_files import decode_png as decode_png
from asyncmon.tf1.image_files import encode_jpeg as encode_jpeg
from asyncmon.tf1.image_files import encode_png as encode_png
from asyncmon.tf1.image_resize import ResizeMethod as ResizeMethod
from asyncmon.tf1.image_resize import resize_bilinear as resize_bilinear
from asyncmon.tf1.image_resize import resize_images as resize_images
from asyncmon.tf1.image_resize import resize_nearest_neighbor as resize_nearest_neighbor
from asyncmon.tf1.more_math import saturate_cast


# --- flips ----------------------------------------------------------------------------------------
def flip_left_right(image: Any) -> Tensor:
    """Return images mirrored along their width. TF1: same name."""
    return reverse(image_tensor(image), [-2])


def flip_up_down(image: Any) -> Tensor:
    """Return images mirrored along their height. TF1: same name."""
    return reverse(image_tensor(image), [-3])


def random_flip_left_right(image: Any, seed: int | None = None) -> Tensor:
    """Return each image as it is or mirrored along its width, as likely. TF1: same name."""
    return _random_flip(image_tensor(image), -2, seed)


def random_flip_up_down(image: Any, seed: int | None = None) -> Tensor:
    """Return each image as it is or mirrored along its height, as likely. TF1: same name."""
    return _random_flip(image_tensor(image), -3, seed)


def _random_flip(image: Tensor, axis: int, seed: int | None) -> Tensor:
    flips = less(random_uniform(shape(image)[:-3], seed=seed), 0.5)
    return where_flagged(flips, reverse(image, [axis]), image)


def transpose_image(image: Any) -> Tensor:
    """Return images with height and width exchanged. TF1: same name."""
    tensor = image_tensor(image)
    return transpose_op(tensor, [0, 2, 1, 3] if _ndims(tensor) == 4 else [1, 0, 2])


# --- colours --------------------------------------------------------------------------------------
def adjust_brightness(image: Any, delta: Any) -> Tensor:
    """Return images with ``delta`` added; integers are scaled to [0, 1] meanwhile. TF1: same name."""
    tensor = convert_to_tensor(image)
    adjusted = _floating(tensor)
    return _like(adjusted + cast(delta, adjusted.dtype), tensor)


def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """Adjust the brightness by a number in [-max_delta, max_delta). TF1: same name."""
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_brightness(image, random_uniform([], -max_delta, max_delta, seed=seed))


def adjust_contrast(images: Any, contrast_factor: Any) -> Tensor:
    """Return images whose distance from each channel's mean is multiplied. TF1: same name."""
    tensor = image_tensor(images)
    adjusted = cast(_floating(tensor), float32)
    mean = reduce_mean(adjusted, [-3, -2], keepdims=True)
    adjusted = (adjusted - mean) * cast(contrast_factor, float32) + mean
    return _like(cast(adjusted, _floating(tensor).dtype), tensor)


def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """Adjust the contrast by a factor in [lower, upper). TF1: same name."""
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")
    return adjust_contrast(image, random_uniform([], lower, upper, seed=seed))


def per_image_standardization(image: Any) -> Tensor:
    """Return each image with mean 0 and variance 1, as floats. TF1: same name.

    The standard deviation is taken to be 1 / sqrt(number of elements) at least.
    """
    tensor = image_tensor(image)
    tensor = tensor if tensor.dtype in (float16, float32) else cast(tensor, float32)
    mean = reduce_mean(tensor, [-3, -2, -1], keepdims=True)
    deviation = sqrt(reduce_mean(square(tensor - mean), [-3, -2, -1], keepdims=True))
    least = rsqrt(cast(reduce_prod(shape(tensor)[-3:]), tensor.dtype))
    return (tensor - mean) / maximum(deviation, least)


def convert_image_dtype(
    image: Any, dtype: Any, saturate: bool = False, name: str | None = None
) -> Tensor:
    """Return images of another dtype: integers are floats in [0, 1]. TF1: same name.

    Args:
        image: of any shape.
        dtype: that of the result.
        saturate: whether what is out of range becomes the nearest number; else it is undefined.
        name: of the result.
    """
    tensor, wanted = convert_to_tensor(image), as_dtype(dtype)
    given = tensor.dtype
    if given is wanted:
        return identity(tensor, name=name)
    with name_scope(name, "convert_image", [tensor]) as scope:
        if given.is_integer and wanted.is_integer:
            top, new = int(given.max), int(wanted.max)
            if top > new:
                scaled = tensor // np.asarray((top + 1) // (new + 1), given.as_numpy_dtype)
                return _cast(scaled, wanted, saturate, scope)
            factor = np.asarray((new + 1) // (top + 1), wanted.as_numpy_dtype)
            return _cast(tensor, wanted, saturate, None) * factor
        if given.is_floating and wanted.is_floating:
            return cast(tensor, wanted, name=scope)
        if given.is_integer:
            return cast(tensor, wanted) * np.asarray(1.0 / given.max, wanted.as_numpy_dtype)
        scale = np.asarray(wanted.max + 0.5, given.as_numpy_dtype)
        return _cast(tensor * scale, wanted, saturate, scope)


def _cast(tensor: Tensor, dtype: DType, saturate: bool, name: str | None) -> Tensor:
    return saturate_cast(tensor, dtype, name) if saturate else cast(tensor, dtype, name=name)


def _floating(tensor: Tensor) -> Tensor:
    floats = tensor.dtype in (float16, float32)
    return identity(tensor) if floats else convert_image_dtype(tensor, float32)


def _like(adjusted: Tensor, tensor: Tensor) -> Tensor:
    return convert_image_dtype(adjusted, tensor.dtype, saturate=True)


# --- crops ----------------------------------------------------------------------------------------
def central_crop(image: Any, central_fraction: float) -> Tensor:
    """Return the middle of images, so much of height and width. TF1: same name."""
    tensor = image_tensor(image)
    if not 0.0 < central_fraction <= 1.0:
        raise ValueError("central_fraction must be within (0, 1]")
    if central_fraction == 1.0:
        return tensor
    height, width = _size(tensor)
    top, left = [
        int((n - n * central_fraction) / 2)
        if isinstance(n, int)
        else cast(floor((cast(n, "float64") * (1 - central_fraction)) / 2), "int32")
        for n in (height, width)
    ]
    return _cropped(tensor, top, left, height - top * 2, width - left * 2)


def crop_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Tensor:
    """Return a box of images, from an offset on. Numbers may be tensors. TF1: same name."""
    tensor = image_tensor(image)
    height, width = _size(tensor)
    tensor = _checked(
        tensor,
        (offset_width, 0, "offset_width must be >= 0."),
        (offset_height, 0, "offset_height must be >= 0."),
        (target_width, 1, "target_width must be > 0."),
        (target_height, 1, "target_height must be > 0."),
        (width, target_width + offset_width, "width must be >= target + offset."),
        (height, target_height + offset_height, "height must be >= target + offset."),
    )
    return _cropped(tensor, offset_height, offset_width, target_height, target_width)


def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Tensor:
    """Return images in a larger box of zeros, at an offset. Numbers may be tensors. TF1: same name."""
    tensor = image_tensor(image)
    height, width = _size(tensor)
    below = target_height - offset_height - height
    right = target_width - offset_width - width
    tensor = _checked(
        tensor,
        (offset_height, 0, "offset_height must be >= 0."),
        (offset_width, 0, "offset_width must be >= 0."),
        (right, 0, "width must be <= target - offset"),
        (below, 0, "height must be <= target - offset"),
    )
    padded = pad(
        tensor,
        [[0, 0]] * (_ndims(tensor) - 3) + [[offset_height, below], [offset_width, right], [0, 0]],
    )
    return _with_size(padded, tensor, target_height, target_width)


def resize_image_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> Tensor:
    """Return the middle of images, with zeros around it where it is too small. TF1: same name."""
    tensor = image_tensor(image)
    tensor = _checked(
        tensor,
        (target_width, 1, "target_width must be > 0."),
        (target_height, 1, "target_height must be > 0."),
    )
    height, width = _size(tensor)
    down, across = target_height - height, target_width - width
    cropped = _cropped(
        tensor,
        _greater(-down // 2, 0),
        _greater(-across // 2, 0),
        _smaller(target_height, height),
        _smaller(target_width, width),
    )
    return pad_to_bounding_box(
        cropped, _greater(down // 2, 0), _greater(across // 2, 0), target_height, target_width
    )


def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """Return a part of a tensor of any rank, at a random place. TF1: ``tf.random_crop``.

    Args:
        value: a tensor.
        size: the shape of the part, a list or an integer tensor.
        seed: of the place.
        name: of the result.

    Raises:
        InvalidArgumentError: in the run: the tensor is smaller.
    """
    with name_scope(name, "random_crop", [value]) as scope:
        tensor, extents = convert_to_tensor(value), convert_to_tensor(size)
        whole = cast(shape(tensor), extents.dtype)
        message = ["Need value.shape >= size, got ", whole, extents]
        with control_dependencies([Assert(reduce_all(greater_equal(whole, extents)), message)]):
            limit = whole - extents + 1
        draws = random_uniform(shape(whole), 0, extents.dtype.max, extents.dtype, seed=seed)
        return slice_op(tensor, draws % limit, extents, name=scope)


def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> Tensor:
    """Return the image ``[height, width, channels]`` of a file's bytes. TF1: same name.

    Args:
        contents: a string scalar.
        channels: 1, 3 or 4; None or 0 for those of the file.
        dtype: of the result, see :func:`convert_image_dtype`.
        name: of the node.
        expand_animations: whether all images of a file are given. Only the first one is: it has to be
            False for a file with several, which TF1 would give four dimensions.
    """
    tensor = decode("DecodeImage", contents, channels, (0, 1, 3, 4), name)
    return tensor if as_dtype(dtype) is uint8 else convert_image_dtype(tensor, dtype)


transpose = transpose_image
resize = resize_images
resize_with_crop_or_pad = resize_image_with_crop_or_pad


# --- helpers --------------------------------------------------------------------------------------
def image_tensor(image: Any) -> Tensor:
    """Return one image or several as a tensor. ValueError: it is known to be neither."""
    tensor = convert_to_tensor(image)
    found = tensor.shape
    if found.ndims is None:
        return tensor
    if found.ndims < 3:
        raise ValueError(f"'image' (shape {found}) must be at least three-dimensional.")
    if found.ndims > 4:
        raise ValueError(f"'image' (shape {found}) must have either 3 or 4 dimensions.")
    if 0 in found.as_list()[-3:]:
        raise ValueError(f"inner 3 dims of 'image.shape' must be > 0: {found}")
    return tensor


def where_flagged(flags: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return images of ``x`` where their flag is set, else of ``y``."""
    ones = convert_to_tensor([1, 1, 1])
    full = reshape(flags, concat([shape(flags), ones], 0))
    return where(broadcast_to(full, shape(x)), x, y)


def _ndims(tensor: Tensor) -> int:
    return tensor.shape.ndims or 3


def _size(tensor: Tensor) -> tuple[Any, Any]:
    """Return height and width: integers as far as they are known, else tensors."""
    known = tensor.shape.as_list()[-3:-1] if tensor.shape.ndims else [None, None]
    return tuple(  # type: ignore[return-value]
        shape(tensor)[i] if n is None else n for i, n in zip((-3, -2), known, strict=True)
    )


def _greater(x: Any, y: Any) -> Any:
    return maximum(x, y) if isinstance(x, Tensor) else max(x, y)


def _smaller(x: Any, y: Any) -> Any:
    return minimum(x, y) if isinstance(x, Tensor) or isinstance(y, Tensor) else min(x, y)


def _checked(tensor: Tensor, *bounds: tuple[Any, Any, str]) -> Tensor:
    """Check that numbers are not less than others, now or in the run."""
    checks = []
    for number, least, message in bounds:
        if isinstance(number, Tensor) or isinstance(least, Tensor):
            checks.append(Assert(greater_equal(number, least), [message]))
        elif number < least:
            raise ValueError(message)
    if not checks:
        return tensor
    with control_dependencies(checks):
        return identity(tensor)


def _cropped(tensor: Tensor, top: Any, left: Any, height: Any, width: Any) -> Tensor:
    box = (slice(top, top + height), slice(left, left + width))
    cropped = tensor[(slice(None), *box)] if _ndims(tensor) == 4 else tensor[box]
    return _with_size(cropped, tensor, height, width)


def _with_size(result: Tensor, tensor: Tensor, height: Any, width: Any) -> Tensor:
    if tensor.shape.ndims is not None:
        known = [None if isinstance(n, Tensor) else int(n) for n in (height, width)]
        outer = tensor.shape.as_list()
        result.set_shape(TensorShape([*outer[:-3], *known, outer[-1]]))
    return result


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "image.", globals())
