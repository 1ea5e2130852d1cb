"""Summaries as ops of a graph: run one, and give the bytes it returns to ``FileWriter.add_summary``."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import convert_to_tensor, create_op, get_collection, name_scope
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.summary.event_queue import summary_tags
from asyncmon.summary.events import SummaryMetadata
from asyncmon.summary.values import (
    TEXT,
    audio_summary,
    check_images,
    check_sound,
    histogram_summary,
    image_summary,
    scalar_summary,
)
from asyncmon.summary.values import tensor_summary as tensor_summary_bytes

logger = logging.getLogger(__name__)

_ILLEGAL = r"[^-/\w.]"


def scalar(
    name: str, tensor: Any, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """Return an op that summarises one number. TF1: ``tf.summary.scalar``.

    Args:
        name: the op's name; with the name scopes around it, made unique, it is the tag. Characters
            that are not letters, digits, ``.``, ``_``, ``-`` or ``/`` become ``_``.
        tensor: a real number.
        collections: the collections the op is added to; by default ``GraphKeys.SUMMARIES``.
        family: put before the tag, so that TensorBoard shows the tags of a family together.

    Returns:
        A scalar string tensor; its value is a serialized ``Summary``.

    Raises:
        ValueError: the tensor is known not to be a scalar.
        TypeError: it holds no real numbers.
    """
    with _summary_scope(name, family, [tensor]) as (tag, scope):
        return collect(create_op("ScalarSummary", (tensor,), {"tag": tag}, scope), collections)


def histogram(
    name: str, values: Any, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """Return an op that summarises a distribution. TF1: ``tf.summary.histogram``.

    Where a number is NaN or infinite the summary is empty, and a warning says so once: diverging
    weights do not end training by way of their histogram. (In TF1 they do.)

    Args:
        name: see :func:`scalar`.
        values: real numbers of any shape.
        collections: see :func:`scalar`.
        family: see :func:`scalar`.

    Returns:
        A scalar string tensor; its value is a serialized ``Summary``.
    """
    with _summary_scope(name, family, [values], "HistogramSummary") as (tag, scope):
        return collect(create_op("HistogramSummary", (values,), {"tag": tag}, scope), collections)


def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return an op that summarises the first images of a batch as PNGs. TF1: ``tf.summary.image``.

    The tags are ``name/image`` if ``max_outputs`` is 1, else ``name/image/0`` and so on.

    Args:
        name: see :func:`scalar`.
        tensor: uint8, or floats, which are scaled image by image (see
            :func:`~asyncmon.summary.media.to_pixels`), of shape ``[batch, height, width, channels]``;
            1, 3 or 4 channels.
        max_outputs: how many images at most; 1 or more.
        collections: see :func:`scalar`.
        family: see :func:`scalar`.

    Returns:
        A scalar string tensor; its value is a serialized ``Summary``.
    """
    _check_count(max_outputs)
    with _summary_scope(name, family, [tensor]) as (tag, scope):
        attrs = {"tag": tag, "max_images": max_outputs}
        return collect(create_op("ImageSummary", (tensor,), attrs, scope), collections)


def text(name: str, tensor: Any, collections: Sequence[str] | None = None) -> Tensor:
    """Return an op that summarises strings. TF1: ``tf.summary.text``.

    TensorBoard renders them as Markdown, and those of a vector or matrix as a table.

    Args:
        name: see :func:`scalar`.
        tensor: strings of any shape.
        collections: see :func:`scalar`.

    Returns:
        A scalar string tensor; its value is a serialized ``Summary``.

    Raises:
        ValueError: the tensor is not of strings.
    """
    tensor = convert_to_tensor(tensor)
    if tensor.dtype != dtypes.string:
        raise ValueError(f"Expected tensor {tensor.name} to have dtype string, got {tensor.dtype}")
    return tensor_summary(name, tensor, collections=collections, summary_metadata=TEXT)


def audio(
    name: str,
    tensor: Any,
    sample_rate: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return an op that summarises the first sounds of a batch as WAV. TF1: ``tf.summary.audio``.

    The tags are ``name/audio`` if ``max_outputs`` is 1, else ``name/audio/0`` and so on.

    Args:
        name: see :func:`scalar`.
        tensor: float32 from -1.0 to 1.0, of shape ``[batch, frames, channels]`` or
            ``[batch, frames]``.
        sample_rate: frames a second; a number or a scalar tensor.
        max_outputs: how many sounds at most; 1 or more.
        collections: see :func:`scalar`.
        family: see :func:`scalar`.

    Returns:
        A scalar string tensor; its value is a serialized ``Summary``.
    """
    _check_count(max_outputs)
    with _summary_scope(name, family, [tensor]) as (tag, scope):
        rate = convert_to_tensor(sample_rate, dtypes.float32, "sample_rate")
        attrs = {"tag": tag, "max_outputs": max_outputs}
        return collect(create_op("AudioSummaryV2", (tensor, rate), attrs, scope), collections)


def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: str | None = None,
    collections: Sequence[str] | None = None,
    summary_metadata: SummaryMetadata | None = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Tensor:
    """Return an op that summarises a tensor as it is, for a plugin. TF1: ``tf.summary.tensor_summary``.

    Args:
        name: see :func:`scalar`.
        tensor: numbers or strings of any shape.
        summary_description: Markdown that says what it is.
        collections: see :func:`scalar`.
        summary_metadata: names the plugin of TensorBoard that shows it.
        family: see :func:`scalar`.
        display_name: shown instead of the tag.

    Returns:
        A scalar string tensor; its value is a serialized ``Summary``.
    """
    metadata = SummaryMetadata()
    if summary_metadata is not None:
        metadata.CopyFrom(summary_metadata)
    if summary_description is not None:
        metadata.summary_description = summary_description
    if display_name is not None:
        metadata.display_name = display_name
    with _summary_scope(name, family, [tensor]) as (tag, scope):
        attrs = {"tag": tag, "metadata": metadata}
        return collect(create_op("TensorSummaryV2", (tensor,), attrs, scope), collections)


def merge(
    inputs: Sequence[Any], collections: Sequence[str] | None = None, name: str | None = None
) -> Tensor:
    """Return an op with the values of several summaries. TF1: ``tf.summary.merge``.

    A run in which two of them have the same tag raises ``InvalidArgumentError``.

    Args:
        inputs: summary ops, one or more.
        collections: the collections the op is added to; by default none.
        name: the op's name.

    Returns:
        A scalar string tensor; its value is a serialized ``Summary``.
    """
    inputs = list(inputs)
    if not inputs:
        raise ValueError("merge() was passed no summaries; expected one or more.")
    with name_scope(_legal(name), "Merge", inputs):
        merged = create_op("MergeSummary", inputs, None, _legal(name) or "MergeSummary")
    return collect(merged, collections or ())


def merge_all(
    key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None
) -> Tensor | None:
    """Return an op with all summaries of the default graph. TF1: ``tf.summary.merge_all``.

    Args:
        key: the collection that holds them.
        scope: a regular expression; only summaries whose name it matches at the beginning are taken.
        name: the op's name.

    Returns:
        See :func:`merge`; None if there are no summaries.
    """
    summaries = get_collection(key, scope)
    return merge(summaries, name=name) if summaries else None


def _legal(name: str | None) -> str | None:
    """Return a name without the characters that an op's name cannot have."""
    if name is None:
        return None
    legal = re.sub(_ILLEGAL, "_", name).lstrip("/")
    if legal != name:
        logger.info("Summary name %s is illegal; using %s instead.", name, legal)
    return legal


@contextmanager
def _summary_scope(
    name: str, family: str | None, values: list[Any], default_name: str | None = None
) -> Iterator[tuple[str, str]]:
    """Enter the scope of a summary op; yield its tag and its name."""
    legal, family = _legal(name), _legal(family)
    if not legal and default_name is None:
        raise ValueError(f"name={name!r} was passed; a summary needs a name, which is its tag.")
    with name_scope(legal if family is None else f"{family}/{legal}", default_name, values) as scope:
        tag = scope.rstrip("/")
        # The family comes first once more: TensorBoard groups by what is before the first slash.
        yield tag if family is None else f"{family}/{tag}", scope


def collect(summary: Tensor, collections: Sequence[str] | None) -> Tensor:
    """Add a summary to collections, by default ``SUMMARIES``, and return it."""
    keys = (GraphKeys.SUMMARIES,) if collections is None else collections
    summary.graph.add_to_collections(keys, summary)
    return summary


def _scalar_spec(value: Spec, *, tag: str) -> Spec:
    _check_real(value, tag)
    if value.shape not in (None, ()):
        raise ValueError(_not_scalar(value.shape or (), tag))
    return _SUMMARY


def _not_scalar(shape: Sequence[int | None], tag: str) -> str:
    return (
        f"tags and values are not the same shape: [] != {list(shape)} (tag {tag!r}); reduce the value"
    )


def _histogram_spec(values: Spec, *, tag: str) -> Spec:
    _check_real(values, tag)
    return _SUMMARY


def _image_spec(images: Spec, *, tag: str, max_images: int) -> Spec:
    check_images(tag, (None,) * 4 if images.shape is None else images.shape, images.dtype.name)
    return _SUMMARY


def _audio_spec(sounds: Spec, sample_rate: Spec, *, tag: str, max_outputs: int) -> Spec:
    check_sound(tag, (None,) * 3 if sounds.shape is None else sounds.shape, sounds.dtype.name)
    return _SUMMARY


def _tensor_spec(tensor: Spec, *, tag: str, metadata: SummaryMetadata) -> Spec:
    return _SUMMARY


def _check_count(max_outputs: int) -> None:
    if max_outputs < 1:
        raise ValueError(f"max_outputs={max_outputs!r} was passed; expected 1 or more.")


def _check_real(values: Spec, tag: str) -> None:
    dtype = values.dtype
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        raise TypeError(f"The summary {tag!r} was given {dtype.name} values; expected real numbers")


def _merge_spec(*strings: Spec) -> Spec:
    for string in strings:
        if string.dtype != dtypes.string:
            raise TypeError(f"Expected summaries, which are strings, got {string.dtype.name}")
    return _SUMMARY


def _scalar(value: Any, *, tag: str) -> bytes:
    if np.shape(value) != ():
        raise ValueError(_not_scalar(np.shape(value), tag))
    return scalar_summary(tag, value)


def _histogram(values: Any, *, tag: str) -> bytes:
    return histogram_summary(tag, values) or b""


def _image(images: Any, *, tag: str, max_images: int) -> bytes:
    check_images(tag, images.shape, images.dtype)
    return image_summary(tag, images, max_images)


def _audio(sounds: Any, sample_rate: Any, *, tag: str, max_outputs: int) -> bytes:
    check_sound(tag, sounds.shape, sounds.dtype)
    return audio_summary(tag, sounds, sample_rate, max_outputs)


def _tensor(array: Any, *, tag: str, metadata: SummaryMetadata) -> bytes:
    return tensor_summary_bytes(tag, np.asarray(array), metadata)


def _merge(*summaries: Any) -> bytes:
    """Return the values of all; messages of one kind are merged by joining their bytes."""
    parts = [item.item() if isinstance(item, np.ndarray) else item for item in summaries]
    merged = b"".join(parts)
    seen = set()
    for tag in summary_tags(merged):
        if tag in seen:
            raise ValueError(f"Duplicate tag {tag} found in summary inputs")
        seen.add(tag)
    return merged


_SUMMARY = Spec(dtypes.string, ())

register(OpDef("ScalarSummary", _scalar, _scalar_spec))
register(OpDef("HistogramSummary", _histogram, _histogram_spec))
register(OpDef("ImageSummary", _image, _image_spec))
register(OpDef("AudioSummaryV2", _audio, _audio_spec))
register(OpDef("TensorSummaryV2", _tensor, _tensor_spec))
register(OpDef("MergeSummary", _merge, _merge_spec))
