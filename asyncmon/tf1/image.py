"""TF1: ``tf.image``: what input pipelines use.

An image is ``[height, width, channels]``; a batch has one more dimension in front. Arguments are TF1's.
A tensor that cannot be an image, or a number that does not fit it, raises ValueError, or
InvalidArgumentError in the run when its shape is not known before. Image files are read and written
with pillow: ``pip install asyncmon[images]``.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.errors import InvalidArgumentError
from asyncmon.tf1.functional_ops import case
from asyncmon.tf1.old_names import saturate_cast
from asyncmon.tf1.ops import resizing
from asyncmon.tf1.signatures import REQUIRED, function_of

__all__ = [
    "ResizeMethod", "adjust_brightness", "adjust_contrast", "central_crop", "convert_image_dtype",
    "crop_to_bounding_box", "decode_image", "decode_jpeg", "decode_png", "encode_jpeg",
    "encode_png", "flip_left_right", "flip_up_down", "grayscale_to_rgb", "pad_to_bounding_box",
    "per_image_standardization",
    "random_brightness", "random_contrast", "random_crop", "random_flip_left_right",
    "random_flip_up_down", "resize", "resize_area", "resize_bicubic", "resize_bilinear",
    "resize_image_with_crop_or_pad", "resize_images", "resize_nearest_neighbor",
    "resize_with_crop_or_pad", "rgb_to_grayscale", "rot90",
]  # fmt: skip


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


def rot90(image: Any, k: Any = 1, name: str | None = None) -> g.Tensor:
    """Return images turned by ``k`` times 90 degrees counter-clockwise. TF1: same name.

    ``k`` may be a scalar tensor.
    """
    with g.name_scope(name, "rot90", [image, k]):
        tensor = _image_tensor(image)
        rank = tensor.shape.ndims or 3
        perm = [*range(rank - 3), rank - 2, rank - 3, rank - 1]

        def turned(times: int) -> g.Tensor:
            if times == 2:
                return g.reverse(tensor, [-3, -2])
            if times == 1:
                return g.reverse(g.transpose(tensor, perm), [-3])
            return g.transpose(g.reverse(tensor, [-3]), perm) if times else g.identity(tensor)

        if not g.is_tensor_like(k):
            return turned(int(k) % 4)
        times = g.floormod(g.convert_to_tensor(k, g.int32), 4)
        cases = [(g.equal(times, n), partial(turned, n)) for n in (1, 2, 3)]
        found: g.Tensor = case(cases, lambda: turned(0), exclusive=True)
        return found


# --- colours --------------------------------------------------------------------------------------
def adjust_brightness(image: Any, delta: Any) -> g.Tensor:
    """Return images with ``delta`` added; integers are scaled to [0, 1] for it. TF1: same name."""
    tensor = g.convert_to_tensor(image)
    adjusted = _floating(tensor)
    return _like(adjusted + g.cast(delta, adjusted.dtype), tensor)


def rgb_to_grayscale(images: Any, name: str | None = None) -> g.Tensor:
    """Return the brightness of images, with one channel. TF1: same name."""
    with g.name_scope(name, "rgb_to_grayscale", [images]):
        tensor = g.convert_to_tensor(images)
        floats = _floating(tensor)
        weights = np.asarray([0.2989, 0.587, 0.114], floats.dtype.as_numpy_dtype)
        gray = g.expand_dims(g.reduce_sum(floats * weights, -1), -1)
        gray.set_shape([*tensor.shape.as_list()[:-1], 1] if tensor.shape.ndims else None)
        return convert_image_dtype(gray, tensor.dtype)


def grayscale_to_rgb(images: Any, name: str | None = None) -> g.Tensor:
    """Return images of one channel with three equal ones. TF1: same name."""
    with g.name_scope(name, "grayscale_to_rgb", [images]):
        tensor = g.convert_to_tensor(images)
        if tensor.shape.ndims is not None and tensor.shape.as_list()[-1] not in (1, None):
            raise ValueError(
                f"Last dimension of a grayscale image should be size 1, got {tensor.shape}."
            )
        return g.concat([tensor] * 3, -1)


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

    With ``saturate`` values out of range become the nearest value; otherwise they are undefined.
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

    The height and the width may be tensors.
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


def crop_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> g.Tensor:
    """Return a part of images; the numbers may be tensors. TF1: same name.

    ValueError, or InvalidArgumentError in the run, if the box is not inside.
    """
    tensor = _image_tensor(image)
    known: list[Any] = tensor.shape.as_list() if tensor.shape.ndims else [None] * 3
    begin: list[Any] = [*[0] * (len(known) - 3), offset_height, offset_width, 0]
    size: list[Any] = [*[-1] * (len(known) - 3), target_height, target_width, -1]
    for first, extent, whole in zip(begin[-3:-1], size[-3:-1], known[-3:-1], strict=True):
        fixed = not (g.is_tensor_like(first) or g.is_tensor_like(extent))
        if fixed and (first < 0 or extent <= 0 or first + extent > (whole or first + extent)):
            raise ValueError(f"A box from {first} to {first + extent} is not inside of {whole} pixels.")
    return g.slice(tensor, g.stack(begin), g.stack(size))


def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> g.Tensor:
    """Return images with zeros around them; the numbers may be tensors. TF1: same name.

    ValueError, or InvalidArgumentError in the run, if the image does not fit.
    """
    tensor = _image_tensor(image)
    known: list[int | None] = tensor.shape.as_list() if tensor.shape.ndims else [None] * 3
    paddings: list[Any] = [[0, 0] for _ in known]
    for axis, offset, target in ((-3, offset_height, target_height), (-2, offset_width, target_width)):
        size: Any = g.shape(tensor)[axis] if known[axis] is None else known[axis]
        after = target - offset - size
        fixed = not any(map(g.is_tensor_like, (offset, target, size)))
        if fixed and (offset < 0 or after < 0):
            raise ValueError(f"{size} pixels at {offset} do not fit into {target}.")
        paddings[axis] = [offset, after]
        known[axis] = None if g.is_tensor_like(target) else int(target)
    result = g.pad(tensor, paddings)
    if tensor.shape.ndims is not None:
        result.set_shape(known)
    return result


def central_crop(image: Any, central_fraction: float) -> g.Tensor:
    """Return the middle of images: this fraction of height and width. TF1: same name.

    ValueError for a fraction that is not in (0, 1].
    """
    tensor = _image_tensor(image)
    if not 0 < central_fraction <= 1:
        raise ValueError(f"central_fraction must be within (0, 1], got {central_fraction!r}.")
    starts, sizes = [], []
    for axis in (-3, -2):
        size: Any = tensor.shape.as_list()[axis] if tensor.shape.ndims else None
        exact = g.cast(g.shape(tensor)[axis], g.float64) if size is None else size
        start: Any = (exact - exact * central_fraction) / 2
        starts.append(g.cast(start, g.int32) if size is None else int(start))
        sizes.append((g.shape(tensor)[axis] if size is None else size) - 2 * starts[-1])
    return crop_to_bounding_box(tensor, *starts, *sizes)


def _larger(x: Any, y: Any) -> Any:
    return g.maximum(x, y) if isinstance(x, g.Tensor) or isinstance(y, g.Tensor) else max(x, y)


def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> g.Tensor:
    """Return a part of a tensor, of shape ``size``, at a random offset. TF1: ``tf.random_crop``.

    The run raises InvalidArgumentError if the tensor is smaller.
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
    """TF1: ``tf.image.ResizeMethod``."""

    BILINEAR, NEAREST_NEIGHBOR = resizing.BILINEAR, resizing.NEAREST
    BICUBIC, AREA = resizing.BICUBIC, resizing.AREA


def resize_images(
    images: Any,
    size: Any,
    method: int = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    name: str | None = None,
) -> g.Tensor:
    """Resize one image or a batch. TF1: same name, without its aspect ratios.

    ``size`` is the height and the width, two integers or an int32 tensor. Images of that static size
    are returned unchanged; otherwise all methods but the nearest neighbour return float32.
    """
    if method not in range(4):
        raise ValueError(f"Resize method is not implemented: {method}; use one of ResizeMethod")
    tensor, wanted = _image_tensor(images), g.convert_to_tensor(size)
    value: Any = wanted.spec.value
    if value is not None and tensor.shape.ndims and list(value) == tensor.shape.as_list()[-3:-1]:
        return tensor
    attrs = {"method": int(method), "align": bool(align_corners)}
    return g.create_op("ResizeImages", (tensor, wanted), attrs, name)


def _resizing(name: str, method: int) -> Callable[..., g.Tensor]:
    def resize(images: Any, size: Any, align_corners: bool, name: str | None) -> g.Tensor:
        found = resize_images(images, size, method, align_corners, name)
        return found if method == ResizeMethod.NEAREST_NEIGHBOR else g.cast(found, g.float32)

    doc = "As :func:`resize_images` by one method, with its dtype at any size. TF1: same name."
    given = {"images": REQUIRED, "size": REQUIRED, "align_corners": False, "name": None}
    return function_of(name, doc, given, resize)


resize_area = _resizing("resize_area", ResizeMethod.AREA)
resize_bicubic = _resizing("resize_bicubic", ResizeMethod.BICUBIC)
resize_bilinear = _resizing("resize_bilinear", ResizeMethod.BILINEAR)
resize_nearest_neighbor = _resizing("resize_nearest_neighbor", ResizeMethod.NEAREST_NEIGHBOR)


def _image_tensor(image: Any) -> g.Tensor:
    """Return one image or a batch as a tensor. ValueError for another static shape."""
    tensor = g.convert_to_tensor(image)
    found = tensor.shape
    if found.ndims not in (None, 3, 4):
        raise ValueError(f"An image has 3 dimensions, a batch of them 4, got shape {found}.")
    if found.ndims and 0 in found.as_list()[-3:]:
        raise ValueError(f"inner 3 dims of 'image.shape' must be > 0: {found}")
    return tensor


resize = resize_images
resize_with_crop_or_pad = resize_image_with_crop_or_pad


# --- files ----------------------------------------------------------------------------------------
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def decode_jpeg(
    contents: Any, channels: int = 0, ratio: int = 1, *, dct_method: str = "", name: str | None = None
) -> g.Tensor:
    """Decode a file into a uint8 image ``[height, width, channels]``. TF1: same name.

    All formats of pillow are accepted. ``channels`` is 1, 3, or 0 for the channels of the file;
    ``ratio`` reduces the size by 2, 4 or 8; ``dct_method`` has no effect. The run raises
    InvalidArgumentError for bytes that are no image.
    """
    if dct_method not in ("", "INTEGER_FAST", "INTEGER_ACCURATE") or ratio not in (1, 2, 4, 8):
        raise ValueError(f"Unknown dct_method {dct_method!r} or ratio {ratio!r}.")
    return _decoded("DecodeJpeg", contents, channels, (0, 1, 3), name, ratio)


def decode_png(
    contents: Any, channels: int = 0, dtype: Any = g.uint8, name: str | None = None
) -> g.Tensor:
    """Decode a file into a uint8 image ``[height, width, channels]``. TF1: same name.

    As :func:`decode_jpeg`, with 1 to 4 channels. (Pillow decodes colours to 8 bits.)
    """
    if g.as_dtype(dtype) is not g.uint8:
        raise ValueError(f"decode_png() gives uint8, got dtype={dtype!r}; use convert_image_dtype().")
    return _decoded("DecodePng", contents, channels, (0, 1, 2, 3, 4), name)


# fmt: off
def decode_image(
    contents: Any, channels: int | None = None, dtype: Any = g.uint8, name: str | None = None,
    expand_animations: bool = True,
) -> g.Tensor:
    """As :func:`decode_png`, then :func:`convert_image_dtype`. TF1: same name.

    Only the first image of an animation is decoded: ``expand_animations`` has no effect.
    """
    image = _decoded("DecodeImage", contents, channels or 0, (0, 1, 3, 4), name)
    return image if g.as_dtype(dtype) is g.uint8 else convert_image_dtype(image, dtype)
# fmt: on


def encode_jpeg(
    image: Any,
    format: str = "",
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    *,
    name: str | None = None,
) -> g.Tensor:
    """Return the bytes of a JPEG file of a uint8 image, a string scalar. TF1: same name.

    The image is ``[height, width, 1 or 3]``; ``format`` is "", or "grayscale" or "rgb", which the
    number of channels must agree with.
    """
    if format not in ("", "grayscale", "rgb"):
        raise ValueError(f"Unknown format {format!r}.")
    options = {
        "format": "JPEG",
        "quality": int(quality),
        "progressive": bool(progressive),
        "optimize": bool(optimize_size),
        "subsampling": 2 if chroma_downsampling else 0,
    }
    allowed = {"": (1, 3), "grayscale": (1,), "rgb": (3,)}[format]
    return g.create_op("EncodeImage", (image,), {"allowed": allowed, "options": options}, name)


def encode_png(image: Any, compression: int = -1, name: str | None = None) -> g.Tensor:
    """Return the bytes of a PNG file of a uint8 image with 1 to 4 channels. TF1: same name."""
    options = {"format": "PNG", **({} if compression == -1 else {"compress_level": int(compression)})}
    attrs = {"allowed": (1, 2, 3, 4), "options": options}
    return g.create_op("EncodeImage", (image,), attrs, name or "EncodePng")


def _decoded(
    kind: str, contents: Any, channels: int, allowed: tuple[int, ...], name: Any, ratio: int = 1
) -> g.Tensor:
    if channels not in allowed:
        raise ValueError(f"channels must be one of {allowed}, got {channels!r}.")
    return g.create_op("DecodeImage", (contents,), {"channels": channels, "ratio": ratio}, name or kind)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Image files need pillow: pip install asyncmon[images]") from error
    return Image


def _decode(contents: Any, *, channels: int, ratio: int) -> Any:
    data = contents.item() if isinstance(contents, np.ndarray) else contents
    module = _pillow()
    try:
        image = module.open(io.BytesIO(data))
        if ratio > 1:
            image.draft(None, (-(-image.width // ratio), -(-image.height // ratio)))
        grey = image.mode in ("1", "L", "LA", "I", "I;16", "F")
        alpha = "transparency" in image.info or image.mode in ("LA", "PA", "RGBA")
        mode = _MODES[channels or (1 if grey else 3) + alpha]
        pixels = np.array(image if image.mode == mode else image.convert(mode))
    except OSError as error:
        raise InvalidArgumentError(f"The {len(data)} bytes are no image: {error}") from None
    return pixels.reshape(*pixels.shape[:2], -1)


def _encode(image: Any, *, allowed: tuple[int, ...], options: dict[str, Any]) -> Any:
    if image.shape[-1] not in allowed:
        raise InvalidArgumentError(f"The image must have {allowed} channels, got shape {image.shape}.")
    out = io.BytesIO()
    pixels = image[..., 0] if image.shape[-1] == 1 else image
    _pillow().fromarray(np.ascontiguousarray(pixels)).save(out, **options)
    return out.getvalue()


def _decode_rule(contents: g.Spec, *, channels: int, ratio: int) -> g.Spec:
    if contents.dtype is not g.string or contents.shape not in (None, ()):
        raise ValueError(f"The contents of an image file are a string scalar, got {contents}.")
    return g.Spec(g.uint8, (None, None, channels or None))


def _encode_rule(image: g.Spec, *, allowed: tuple[int, ...], options: Any) -> g.Spec:
    if image.dtype is not g.uint8 or (image.shape is not None and len(image.shape) != 3):
        raise ValueError(f"An image to encode is uint8 [height, width, channels], got {image}.")
    return g.Spec(g.string, ())


g.register(g.OpDef("DecodeImage", _decode, _decode_rule))
g.register(g.OpDef("EncodeImage", _encode, _encode_rule))
