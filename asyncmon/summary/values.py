"""Values of each kind as the bytes of a ``Summary``; heavy ones are made in the writer's thread."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.summary.buckets import encode_histogram
from asyncmon.summary.entries import scalar_summary_bytes
from asyncmon.summary.events import (
    Image,
    PluginData,
    Summary,
    SummaryMetadata,
    TensorProto,
    TensorShapeDim,
    TensorShapeProto,
    Value,
)
from asyncmon.summary.png import encode_png, to_pixels
from asyncmon.summary.wire import boolean, delimited, double, string

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "HParam",
    "batch_of_images",
    "check_images",
    "frozen_array",
    "histogram_summary",
    "hparams_summary",
    "image_summary",
    "scalar_number",
    "scalar_summary",
    "summary_bytes",
    "text_summary",
]

logger = logging.getLogger(__name__)

HParam = bool | int | float | str

_DT_FLOAT, _DT_STRING = 1, 7
_warned: set[str] = set()  # histograms that were left out once; said once, not at each step


def scalar_number(tag: str, value: Any) -> float:
    """Return one number as a float.

    Raises:
        ValueError: it has a shape.
        TypeError: it is no number, or the tag is no name.
    """
    if type(tag) is not str or not tag:
        raise TypeError(f"tag={tag!r} was passed; expected a name.")
    if type(value) is float:
        return value
    shape = tuple(getattr(value, "shape", ()))
    if shape != ():
        raise ValueError(
            f"The scalar summary {tag!r} was given a value of shape {list(shape)}; expected one "
            "number. Reduce it first, or make a histogram of it."
        )
    try:
        if isinstance(value, str | bytes):
            raise TypeError("text is not converted")
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"The scalar summary {tag!r} was given {value!r}: {error}.") from None


def scalar_summary(tag: str, value: Any) -> bytes:
    """Return a summary of one number."""
    return scalar_summary_bytes(tag, scalar_number(tag, value))


def histogram_summary(tag: str, values: ArrayLike) -> bytes | None:
    """Return a summary of a distribution; None, and one warning, if some numbers are not finite."""
    try:
        histogram = encode_histogram(values)
    except ValueError as error:
        if tag not in _warned:
            _warned.add(tag)
            logger.warning("%s for: %s. It is left out, now and whenever this recurs.", error, tag)
        return None
    return delimited(1, string(1, tag) + delimited(5, histogram))


def check_images(tag: str, shape: tuple[int | None, ...], dtype: Any) -> None:
    """Check that images can be made of an array.

    Raises:
        ValueError: the shape does not allow it.
        TypeError: the dtype does not.
    """
    if len(shape) != 4 or shape[3] not in (1, 3, 4, None):
        raise ValueError(
            f"Tensor must be 4-D with last dim 1, 3, or 4, not {list(shape)}, "
            f"for the image summary {tag!r}."
        )
    if str(dtype) not in ("uint8", "float16", "float32", "float64"):
        raise TypeError(
            f"The image summary {tag!r} was given {dtype} values; expected uint8 or floats."
        )


def image_summary(tag: str, images: NDArray[Any], max_outputs: int) -> bytes:
    """Return a summary of the first images of a batch ``[batch, height, width, channels]``.

    The tags are TF1's: ``tag/image`` if there may be one, else ``tag/image/0`` and so on. With 0 it is
    one image, under the tag itself.
    """
    if max_outputs < 2:
        tags = [f"{tag}/image" if max_outputs else tag]
    else:
        tags = [f"{tag}/image/{i}" for i in range(max_outputs)]
    values = [_image_value(name, image) for name, image in zip(tags, images, strict=False)]
    return Summary(value=values).SerializeToString()


def batch_of_images(images: NDArray[Any]) -> NDArray[Any]:
    """Return one image ``[height, width]`` or ``[height, width, channels]`` as a batch."""
    if images.ndim == 2:
        images = images[..., np.newaxis]
    return images[np.newaxis] if images.ndim == 3 else images


def _image_value(tag: str, image: NDArray[Any]) -> Value:
    height, width, channels = image.shape
    png = encode_png(to_pixels(image))
    return Value(tag=tag, image=Image(height, width, channels, png))


def text_summary(tag: str, text: Any) -> bytes:
    """Return a summary of a string, or of an array of strings, which TensorBoard shows as a table.

    Raises:
        TypeError: there is something else than strings.
    """
    array = np.asarray(text, dtype=object)
    strings = []
    for item in array.ravel().tolist():
        if not isinstance(item, str | bytes):
            raise TypeError(f"The text summary {tag!r} was given {item!r}; expected strings.")
        strings.append(item.encode() if isinstance(item, str) else item)
    shape = TensorShapeProto(dim=[TensorShapeDim(size=size) for size in array.shape])
    tensor = TensorProto(dtype=_DT_STRING, tensor_shape=shape, string_val=strings)
    return _plugin_summary(tag, "text", b"", tensor)


def hparams_summary(hparams: Mapping[str, HParam], start_time: float) -> bytes:
    """Return the summary that makes a run a session of TensorBoard's HParams page.

    Sessions with equal hyperparameters are in one group.

    Raises:
        TypeError: a value is no bool, number or string.
    """
    plain = {str(name): _plain(name, value) for name, value in sorted(hparams.items())}
    group = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    entries = [
        delimited(1, string(1, name) + delimited(2, _any(value))) for name, value in plain.items()
    ]
    session_start = b"".join(entries) + string(4, group) + double(5, start_time)
    nothing = TensorProto(dtype=_DT_FLOAT, tensor_shape=TensorShapeProto(dim=[TensorShapeDim(size=0)]))
    return _plugin_summary(
        "_hparams_/session_start_info", "hparams", delimited(3, session_start), nothing
    )


def _plain(name: object, value: Any) -> HParam:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        raise TypeError(f"The hyperparameter {name!r} is {value!r}; expected a bool, number or string.")
    return value


def _any(value: HParam) -> bytes:
    """Return a ``google.protobuf.Value``."""
    if isinstance(value, bool):
        return boolean(4, value)
    return string(3, value) if isinstance(value, str) else double(2, value)


def summary_bytes(summary: Any) -> bytes:
    """Return what ``add_summary`` was given as bytes. TypeError if it is no summary."""
    if isinstance(summary, bytes):
        return summary
    if isinstance(summary, Summary):
        return summary.SerializeToString()
    if isinstance(summary, np.ndarray) and summary.ndim == 0:  # a scalar of strings
        return summary_bytes(summary.item())
    raise TypeError(
        f"A Summary, or the bytes that a summary op returned, was expected, not "
        f"{type(summary).__name__}: {summary!r}."
    )


def _plugin_summary(tag: str, plugin: str, content: bytes, tensor: TensorProto) -> bytes:
    metadata = SummaryMetadata(plugin_data=PluginData(plugin_name=plugin, content=content))
    return Summary(value=(Value(tag=tag, tensor=tensor, metadata=metadata),)).SerializeToString()


def frozen_array(values: Any) -> NDArray[Any]:
    """Return an array that nobody will change: ``values`` if that is sure, else a copy."""
    array = np.asarray(values)
    if isinstance(values, list | tuple | int | float):
        return array  # was made just now
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return array.copy()
        base = base.base
    return array if base is None or isinstance(base, bytes) else array.copy()
