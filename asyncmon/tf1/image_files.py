"""Image files in a graph, read and written with pillow: ``pip install asyncmon[images]``."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph import OpDef, Spec, as_dtype, create_op, register, string, uint8

if TYPE_CHECKING:
    from asyncmon.graph import Tensor

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def decode_jpeg(
    contents: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Tensor:
    """Return the uint8 image ``[height, width, channels]`` of a file's bytes. TF1: same name.

    Any format that pillow reads is read.

    Args:
        contents: a string scalar.
        channels: 1, 3, or 0 for those of the file.
        ratio: the image is made so many times smaller: 1, 2, 4 or 8.
        fancy_upscaling: true: the library has no other way.
        try_recover_truncated: false: a file that is cut off is an error.
        acceptable_fraction: 1, likewise.
        dct_method: "", or the name of libjpeg's method, which is chosen by the library.
        name: of the node.

    Raises:
        ValueError: an argument that is not one of these.
        InvalidArgumentError: in the run: the bytes are no image.
    """
    if not fancy_upscaling or try_recover_truncated or acceptable_fraction != 1:
        raise ValueError(
            "decode_jpeg() has fancy_upscaling=True, try_recover_truncated=False and "
            f"acceptable_fraction=1, got {fancy_upscaling}, {try_recover_truncated}, "
            f"{acceptable_fraction}."
        )
    if dct_method not in ("", "INTEGER_FAST", "INTEGER_ACCURATE") or ratio not in (1, 2, 4, 8):
        raise ValueError(f"Unknown dct_method {dct_method!r} or ratio {ratio!r}.")
    return decode("DecodeJpeg", contents, channels, (0, 1, 3), name, ratio)


def decode_png(contents: Any, channels: int = 0, dtype: Any = uint8, name: str | None = None) -> Tensor:
    """Return the image ``[height, width, channels]`` of a file's bytes. TF1: same name.

    Any format that pillow reads is read.

    Args:
        contents: a string scalar.
        channels: 1 to 4, or 0 for those of the file.
        dtype: uint8. (Pillow reads colours in 8 bits.)
        name: of the node.

    Raises:
        ValueError: an argument that is not one of these.
        InvalidArgumentError: in the run: the bytes are no image.
    """
    if as_dtype(dtype) is not uint8:
        raise ValueError(f"decode_png() gives uint8, got dtype={dtype!r}; use convert_image_dtype().")
    return decode("DecodePng", contents, channels, (0, 1, 2, 3, 4), name)


def encode_jpeg(
    image: Any,
    format: str = "",
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    density_unit: str = "in",
    x_density: int = 300,
    y_density: int = 300,
    xmp_metadata: str = "",
    name: str | None = None,
) -> Tensor:
    """Return the bytes of a JPEG file of a uint8 image, a string scalar. TF1: same name.

    Args:
        image: ``[height, width, 1 or 3]``.
        format: "", "grayscale" or "rgb", which the number of channels must agree with.
        quality: 0 to 100.
        progressive: whether it is shown coarse first.
        optimize_size: whether to spend time for fewer bytes.
        chroma_downsampling: whether colours have half the resolution.
        density_unit: "in"; or "cm".
        x_density: pixels in one of them.
        y_density: likewise.
        xmp_metadata: written into the file.
        name: of the node.
    """
    if format not in ("", "grayscale", "rgb") or density_unit not in ("in", "cm"):
        raise ValueError(f"Unknown format {format!r} or density_unit {density_unit!r}.")
    per_inch = 1 if density_unit == "in" else 2.54
    options = {
        "format": "JPEG",
        "quality": int(quality),
        "progressive": bool(progressive),
        "optimize": bool(optimize_size),
        "subsampling": 2 if chroma_downsampling else 0,
        "dpi": (round(x_density * per_inch), round(y_density * per_inch)),
        **({"xmp": xmp_metadata.encode()} if xmp_metadata else {}),
    }
    allowed = {"": (1, 3), "grayscale": (1,), "rgb": (3,)}[format]
    return create_op("EncodeImage", (image,), {"allowed": allowed, "options": options}, name)


def encode_png(image: Any, compression: int = -1, name: str | None = None) -> Tensor:
    """Return the bytes of a PNG file of a uint8 image, a string scalar. TF1: same name.

    Args:
        image: ``[height, width, 1 to 4]``.
        compression: zlib's level, 0 to 9, or -1 for its default.
        name: of the node.
    """
    options = {"format": "PNG", **({} if compression == -1 else {"compress_level": int(compression)})}
    attrs = {"allowed": (1, 2, 3, 4), "options": options}
    return create_op("EncodeImage", (image,), attrs, name or "EncodePng")


def decode(
    kind: str,
    contents: Any,
    channels: int | None,
    allowed: tuple[int, ...],
    name: str | None,
    ratio: int = 1,
) -> Tensor:
    """Return the uint8 image of a file's bytes, with one of the allowed numbers of channels."""
    if (channels or 0) not in allowed:
        raise ValueError(f"channels must be one of {allowed}, got {channels!r}.")
    attrs = {"channels": int(channels or 0), "ratio": ratio}
    return create_op("DecodeImage", (contents,), attrs, name or kind)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Image files need pillow: pip install asyncmon[images]") from error
    return Image


def _decode(contents: Any, *, channels: int, ratio: int) -> Any:
    module = _pillow()
    data = contents.item() if isinstance(contents, np.ndarray) else contents
    try:
        image = module.open(io.BytesIO(data))
        if ratio > 1:
            image.draft(None, (-(-image.width // ratio), -(-image.height // ratio)))
        mode = _MODES.get(channels)
        if mode is None:
            alpha = "transparency" in image.info or image.mode in ("LA", "PA", "RGBA")
            grey = image.mode in ("1", "L", "LA", "I", "I;16", "F")
            mode = {(True, False): "L", (True, True): "LA", (False, False): "RGB"}.get(
                (grey, alpha), "RGBA"
            )
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


def _decode_rule(contents: Spec, *, channels: int, ratio: int) -> Spec:
    if contents.dtype is not string or contents.shape not in (None, ()):
        raise ValueError(f"The contents of an image file are a string scalar, got {contents}.")
    return Spec(uint8, (None, None, channels or None))


def _encode_rule(image: Spec, *, allowed: tuple[int, ...], options: Any) -> Spec:
    if image.dtype is not uint8 or (image.shape is not None and len(image.shape) != 3):
        raise ValueError(f"An image to encode is uint8 [height, width, channels], got {image}.")
    return Spec(string, ())


register(OpDef("DecodeImage", _decode, _decode_rule))
register(OpDef("EncodeImage", _encode, _encode_rule))
