"""Encode values of each kind as serialized summaries and fields of events."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asyncmon.protobuf import delimited, string
from asyncmon.protobuf.tensors import TensorProto, TensorShapeDim, TensorShapeProto
from asyncmon.protobuf.tf_types import DTYPES
from asyncmon.summary.entries import GRAPH, META_GRAPH, RUN_METADATA, SUMMARY, scalar_summary_bytes
from asyncmon.summary.events import (
    Audio,
    HParamsPluginData,
    HParamValue,
    Image,
    PluginData,
    SessionStartInfo,
    Summary,
    SummaryMetadata,
    TaggedRunMetadata,
    Value,
)
from asyncmon.summary.graph_events import GraphLike, encode_graph, encode_run_metadata
from asyncmon.summary.histogram import encode_histogram
from asyncmon.summary.media import encode_png, encode_wav, to_pixels

logger = logging.getLogger(__name__)

HParam = bool | int | float | str

_GRAPH_DEF = 2  # the field of a ``MetaGraphDef``
_warned: set[str] = set()  # tags of histograms for which a warning was logged


def scalar_number(tag: str, value: Any) -> float:
    """Return a scalar as a float; ValueError for a shape, TypeError for no number or no tag."""
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
    """Return a serialized summary of one number."""
    return scalar_summary_bytes(tag, scalar_number(tag, value))


def histogram_summary(tag: str, values: ArrayLike) -> bytes | None:
    """Return a serialized summary of a distribution; None and a warning for NaN or infinity."""
    try:
        histogram = encode_histogram(values)
    except ValueError as error:
        if tag not in _warned:
            _warned.add(tag)
            logger.warning("%s for: %s. It is left out, now and whenever this recurs.", error, tag)
        return None
    return delimited(1, string(1, tag) + delimited(5, histogram))


def check_images(tag: str, shape: tuple[int | None, ...], dtype: Any) -> None:
    """Raise ValueError or TypeError for a shape or dtype of images that is not supported."""
    if len(shape) != 4 or shape[3] not in (1, 3, 4, None):
        raise ValueError(
            f"Tensor must be 4-D with last dim 1, 3, or 4, not {list(shape)}, "
            f"for the image summary {tag!r}"
        )
    if str(dtype) not in ("uint8", "float16", "float32", "float64"):
        raise TypeError(f"The image summary {tag!r} was given {dtype} values; expected uint8 or floats")


def image_summary(tag: str, images: NDArray[Any], max_outputs: int) -> bytes:
    """Return a serialized summary of the first images of a batch ``[batch, height, width, channels]``.

    The tags are those of TF1: ``tag/image`` if ``max_outputs`` is 1, else ``tag/image/0`` and so on. If
    it is 0, the batch has one image, whose tag is ``tag``. Raises as :func:`check_images`.
    """
    check_images(tag, images.shape, images.dtype)
    if max_outputs < 2:
        tags = [f"{tag}/image" if max_outputs else tag]
    else:
        tags = [f"{tag}/image/{i}" for i in range(max_outputs)]
    values = [_image_value(name, image) for name, image in zip(tags, images, strict=False)]
    return Summary(value=values).SerializeToString()


def batch_of_images(images: NDArray[Any]) -> NDArray[Any]:
    """Return an image ``[height, width]`` or ``[height, width, channels]`` as a batch."""
    if images.ndim == 2:
        images = images[..., np.newaxis]
    return images[np.newaxis] if images.ndim == 3 else images


def _image_value(tag: str, image: NDArray[Any]) -> Value:
    height, width, channels = image.shape
    png = encode_png(to_pixels(image))
    return Value(tag=tag, image=Image(height, width, channels, png))


def check_sound(tag: str, shape: tuple[int | None, ...], dtype: Any) -> None:
    """Raise ValueError or TypeError for a shape or dtype of sounds that is not supported."""
    if len(shape) not in (2, 3):
        raise ValueError(f"Tensor must be 3-D or 2-D, got: {list(shape)}, for the summary {tag!r}")
    if str(dtype) != "float32":
        raise TypeError(f"The audio summary {tag!r} was given {dtype} values; expected float32")


def audio_summary(tag: str, sounds: NDArray[Any], sample_rate: Any, max_outputs: int) -> bytes:
    """Return a serialized summary of the first sounds of a batch ``[batch, frames(, channels)]``.

    The tags are those of TF1: ``tag/audio`` if ``max_outputs`` is 1, else ``tag/audio/0`` and so on.
    ValueError if the rate is not positive, or as :func:`check_sound`.
    """
    check_sound(tag, sounds.shape, sounds.dtype)
    rate = scalar_number(tag, sample_rate)
    if not rate > 0:
        raise ValueError(f"sample_rate must be > 0, got {rate:g} for the audio summary {tag!r}")
    batch = sounds[..., np.newaxis] if sounds.ndim == 2 else sounds
    tags = [f"{tag}/audio"] if max_outputs < 2 else [f"{tag}/audio/{i}" for i in range(max_outputs)]
    frames, channels = batch.shape[1:]
    values = []
    for name, sound in zip(tags, batch, strict=False):
        wav = encode_wav(sound, round(rate))
        values.append(Value(tag=name, audio=Audio(rate, channels, frames, wav, "audio/wav")))
    return Summary(value=values).SerializeToString()


def tensor_summary(tag: str, array: NDArray[Any], metadata: SummaryMetadata) -> bytes:
    """Return a serialized summary of an array, with its metadata. Raises as :func:`tensor_proto`."""
    value = Value(tag=tag, tensor=tensor_proto(tag, array), metadata=metadata)
    return Summary(value=(value,)).SerializeToString()


def tensor_proto(tag: str, array: NDArray[Any]) -> TensorProto:
    """Return an array as a message. TypeError for elements that are no numbers or strings."""
    if array.dtype.kind in "OSU":
        return _tensor("string", array, string_val=[_encoded(tag, item) for item in array.ravel()])
    if array.dtype.name not in DTYPES:
        raise TypeError(f"The tensor summary {tag!r} was given {array.dtype} values.")
    data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return _tensor(array.dtype.name, array, tensor_content=data)


def _tensor(dtype: str, array: NDArray[Any], **content: Any) -> TensorProto:
    shape = TensorShapeProto(dim=[TensorShapeDim(size=size) for size in array.shape])
    return TensorProto(dtype=DTYPES[dtype], tensor_shape=shape, **content)


def _encoded(tag: str, item: Any) -> bytes:
    if not isinstance(item, str | bytes):
        raise TypeError(f"The summary {tag!r} was given {item!r}; expected strings.")
    return item.encode() if isinstance(item, str) else bytes(item)


TEXT = SummaryMetadata(plugin_data=PluginData(plugin_name="text"))
"""The metadata of strings that TensorBoard displays as text."""


def text_summary(tag: str, text: Any) -> bytes:
    """Return a serialized summary of a string or an array of strings. TypeError for other elements."""
    return tensor_summary(tag, np.asarray(text, dtype=object), TEXT)


def hparams_summary(hparams: Mapping[str, HParam], start_time: float) -> bytes:
    """Return the serialized summary by which TensorBoard's HParams page lists a run.

    Runs with equal hyperparameters form a group. Raises as :func:`plain_hparam`.
    """
    import hashlib  # takes 2 ms, and most programs do not need it

    plain = {str(name): plain_hparam(name, value) for name, value in sorted(hparams.items())}
    group = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    values = {name: HParamValue(**{_kind(value): value}) for name, value in plain.items()}
    start = SessionStartInfo(hparams=values, group_name=group, start_time_secs=start_time)
    content = HParamsPluginData(session_start_info=start).SerializeToString()
    metadata = SummaryMetadata(plugin_data=PluginData(plugin_name="hparams", content=content))
    return tensor_summary("_hparams_/session_start_info", np.zeros(0, np.float32), metadata)


def plain_hparam(name: object, value: Any) -> HParam:
    """Return a hyperparameter as a Python value. Raises TypeError for another type."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        raise TypeError(f"The hyperparameter {name!r} is {value!r}; expected a bool, number or string.")
    return value


def _kind(value: HParam) -> str:
    if isinstance(value, bool):
        return "bool_value"
    return "string_value" if isinstance(value, str) else "number_value"


def summary_bytes(summary: Any) -> bytes:
    """Return the argument of ``add_summary`` as bytes. Raises TypeError if it is no summary."""
    if isinstance(summary, bytes):
        return summary
    if isinstance(summary, Summary):
        return summary.SerializeToString()
    if isinstance(summary, np.ndarray) and summary.ndim == 0:  # the fetched value of a summary op
        return summary_bytes(summary.item())
    raise TypeError(
        f"A Summary, or the bytes that a summary op returned, was expected, not "
        f"{type(summary).__name__}: {summary!r}."
    )


def plain_values(summary: Any) -> dict[str, float | str]:
    """Return the scalars and texts of an argument of ``add_summary`` by tag."""
    found: dict[str, float | str] = {}
    for value in Summary.FromString(summary_bytes(summary)).value:
        if value.WhichOneof("value") == "simple_value":
            found[value.tag] = value.simple_value
        elif len(value.tensor.string_val) == 1:
            found[value.tag] = value.tensor.string_val[0].decode(errors="replace")
    return found


def frozen_array(values: Any) -> NDArray[Any]:
    """Return an array that cannot change: ``values`` itself if it is read-only, else a copy."""
    array = np.asarray(values)
    if isinstance(values, list | tuple | int | float):
        return array  # already a copy
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return array.copy()
        base = base.base
    return array if base is None or isinstance(base, bytes) else array.copy()


def operations_of(graph: Any) -> list[Any]:
    """Return the current operations of a graph. Raises TypeError if it is no graph."""
    if not isinstance(graph, GraphLike):
        raise TypeError(
            "The passed graph must be an instance of `Graph` or the deprecated `GraphDef`, "
            f"not {type(graph).__name__}."
        )
    return list(graph.get_operations())


def graph_field(tags: object, operations: list[Any]) -> bytes:
    return delimited(GRAPH, encode_graph(operations))


def meta_graph_field(tags: object, operations: list[Any]) -> bytes:
    return delimited(META_GRAPH, delimited(_GRAPH_DEF, encode_graph(operations)))


def run_field(tags: object, run: tuple[str, Any]) -> bytes:
    """Encode a traced step from its tag and its nodes, or its serialized ``RunMetadata``."""
    tag, nodes = run
    data = nodes if isinstance(nodes, bytes) else encode_run_metadata(nodes)
    event = TaggedRunMetadata(tag=tag, run_metadata=data)
    return delimited(RUN_METADATA, event.SerializeToString())


def histogram_field(tag: str, values: Any) -> bytes | None:
    summary = histogram_summary(tag, values)
    return None if summary is None else delimited(SUMMARY, summary)


def images_field(tag: str, images: tuple[Any, int]) -> bytes:
    """Encode a batch of images, given with their largest number."""
    return delimited(SUMMARY, image_summary(tag, *images))
