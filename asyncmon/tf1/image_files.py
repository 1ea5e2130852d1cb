"""Image files in a graph, read and written with pillow: ``pip install asyncmon[images]``."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.errors import InvalidArgumentError

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def decode_jpeg(
    contents: Any, channels: int = 0, ratio: int = 1, *, dct_method: str = "", name: str | None = None
) -> g.Tensor:
    """Return the uint8 image ``[height, width, channels]`` of a file's bytes. TF1: same name.

    Any format that pillow reads is read. ``channels`` is 1, 3, or 0 for those of the file; ``ratio``
    makes it 2, 4 or 8 times smaller; ``dct_method`` is "", or the name of a method of libjpeg, which
    the library chooses. In the run: InvalidArgumentError for bytes that are no image.
    """
    if dct_method not in ("", "INTEGER_FAST", "INTEGER_ACCURATE") or ratio not in (1, 2, 4, 8):
        raise ValueError(f"Unknown dct_method {dct_method!r} or ratio {ratio!r}.")
    return _decoded("DecodeJpeg", contents, channels, (0, 1, 3), name, ratio)


def decode_png(
    contents: Any, channels: int = 0, dtype: Any = g.uint8, name: str | None = None
) -> g.Tensor:
    """Return the uint8 image ``[height, width, channels]`` of a file's bytes. TF1: same name.

    As :func:`decode_jpeg`, with 1 to 4 channels. (Pillow reads colours in 8 bits.)
    """
    if g.as_dtype(dtype) is not g.uint8:
        raise ValueError(f"decode_png() gives uint8, got dtype={dtype!r}; use convert_image_dtype().")
    return _decoded("DecodePng", contents, channels, (0, 1, 2, 3, 4), name)


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
