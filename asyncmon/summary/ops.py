"""Summary ops: run one, and pass the bytes that it returns to ``FileWriter.add_summary``.

Each function returns a scalar string tensor whose value is a serialized ``Summary``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import convert_to_tensor, create_op, get_collection, name_scope
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.summary.entries import summary_tags
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
    """Add an op that summarises one number. TF1: ``tf.summary.scalar``.

    Args:
        name: the name of the op. With its name scopes, and made unique, it is the tag. Characters
            other than letters, digits, ``.``, ``_``, ``-`` and ``/`` become ``_``.
        tensor: a real number.
        collections: the collections to which the op is added, by default ``GraphKeys.SUMMARIES``.
        family: a prefix of the tag. TensorBoard displays the tags of a family together.

    Raises:
        ValueError: the static shape is not that of a scalar.
        TypeError: the tensor has no real numbers.
    """
    return _summary("ScalarSummary", tensor, name, collections, family)


def histogram(
    name: str, values: Any, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """Add an op that summarises a distribution. TF1: ``tf.summary.histogram``.

    If a number is NaN or infinite, the summary is empty, and a warning is logged once per tag. TF1
    raises an error, so that diverging weights end the training.

    ``values`` are real numbers of any shape; other arguments as for :func:`scalar`.
    """
    return _summary("HistogramSummary", values, name, collections, family, "HistogramSummary")


def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Add an op that summarises the first images of a batch as PNG. TF1: ``tf.summary.image``.

    The tags are ``name/image`` if ``max_outputs`` is 1, else ``name/image/0`` and so on.

    Args:
        tensor: of shape ``[batch, height, width, channels]`` with 1, 3 or 4 channels; uint8, or
            floats, which are scaled image by image (:func:`~asyncmon.summary.media.to_pixels`).
        max_outputs: the largest number of images, 1 or more. Other arguments as for :func:`scalar`.
    """
    _check_count(max_outputs)
    return _summary("ImageSummary", tensor, name, collections, family, max_images=max_outputs)


def text(name: str, tensor: Any, collections: Sequence[str] | None = None) -> Tensor:
    """Add an op that summarises strings. TF1: ``tf.summary.text``.

    TensorBoard renders them as Markdown, and a vector or matrix as a table.

    ``tensor`` has strings, else ValueError, and any shape; other arguments as for :func:`scalar`.
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
    """Add an op that summarises the first sounds of a batch as WAV. TF1: ``tf.summary.audio``.

    The tags are ``name/audio`` if ``max_outputs`` is 1, else ``name/audio/0`` and so on.

    Args:
        tensor: float32 from -1.0 to 1.0, of shape ``[batch, frames, channels]`` or
            ``[batch, frames]``.
        sample_rate: frames per second, a number or a scalar tensor.
        max_outputs: the largest number of sounds, 1 or more. Other arguments as for :func:`scalar`.
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
    """Add an op that summarises a tensor for a plugin. TF1: ``tf.summary.tensor_summary``.

    Args:
        tensor: numbers or strings of any shape.
        summary_description: a description in Markdown.
        summary_metadata: the metadata, which name the plugin of TensorBoard.
        display_name: displayed instead of the tag. Other arguments as for :func:`scalar`.
    """
    metadata = SummaryMetadata()
    if summary_metadata is not None:
        metadata.CopyFrom(summary_metadata)
    if summary_description is not None:
        metadata.summary_description = summary_description
    if display_name is not None:
        metadata.display_name = display_name
    return _summary("TensorSummaryV2", tensor, name, collections, family, metadata=metadata)


def merge(
    inputs: Sequence[Any], collections: Sequence[str] | None = None, name: str | None = None
) -> Tensor:
    """Add an op that joins several summaries. TF1: ``tf.summary.merge``.

    A run raises ``InvalidArgumentError`` if two values have the same tag. The op is added to the
    collections, by default none.
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
    """Add an op that joins all summaries of the default graph. TF1: ``tf.summary.merge_all``.

    ``key`` is their collection, ``scope`` a regular expression that the beginning of their names
    matches. Returns None if there are no summaries.
    """
    summaries = get_collection(key, scope)
    return merge(summaries, name=name) if summaries else None


def _legal(name: str | None) -> str | None:
    """Replace characters that are not allowed in the name of an op."""
    if name is None:
        return None
    legal = re.sub(_ILLEGAL, "_", name).lstrip("/")
    if legal != name:
        logger.info("Summary name %s is illegal; using %s instead.", name, legal)
    return legal


def _summary(
    op: str,
    values: Any,
    name: str,
    collections: Sequence[str] | None,
    family: str | None,
    default_name: str | None = None,
    **attrs: Any,
) -> Tensor:
    with _summary_scope(name, family, [values], default_name) as (tag, scope):
        return collect(create_op(op, (values,), {"tag": tag, **attrs}, scope), collections)


@contextmanager
def _summary_scope(
    name: str, family: str | None, values: list[Any], default_name: str | None = None
) -> Iterator[tuple[str, str]]:
    """Enter the name scope of a summary op; yield its tag and its name."""
    legal, family = _legal(name), _legal(family)
    if not legal and default_name is None:
        raise ValueError(f"name={name!r} was passed; a summary needs a name, which is its tag.")
    with name_scope(legal if family is None else f"{family}/{legal}", default_name, values) as scope:
        tag = scope.rstrip("/")
        # The family comes twice: TensorBoard groups tags by the part before the first slash.
        yield tag if family is None else f"{family}/{tag}", scope


def collect(summary: Tensor, collections: Sequence[str] | None) -> Tensor:
    """Add a summary op to collections, by default ``SUMMARIES``, and return it."""
    keys = (GraphKeys.SUMMARIES,) if collections is None else collections
    summary.graph.add_to_collections(keys, summary)
    return summary


def _real_spec(values: Spec, *, tag: str) -> Spec:
    dtype = values.dtype
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        raise TypeError(f"The summary {tag!r} was given {dtype.name} values; expected real numbers")
    return _SUMMARY


def _scalar_spec(value: Spec, *, tag: str) -> Spec:
    _real_spec(value, tag=tag)
    if value.shape not in (None, ()):
        raise ValueError(_not_scalar(value.shape or (), tag))
    return _SUMMARY


def _not_scalar(shape: Sequence[int | None], tag: str) -> str:
    return (
        f"tags and values are not the same shape: [] != {list(shape)} (tag {tag!r}); reduce the value"
    )


def _check_count(max_outputs: int) -> None:
    if max_outputs < 1:
        raise ValueError(f"max_outputs={max_outputs!r} was passed; expected 1 or more.")


def _merge_spec(*strings: Spec) -> Spec:
    for string in strings:
        if string.dtype != dtypes.string:
            raise TypeError(f"Expected summaries, which are strings, got {string.dtype.name}")
    return _SUMMARY


def _scalar(value: Any, *, tag: str) -> bytes:
    if np.shape(value) != ():
        raise ValueError(_not_scalar(np.shape(value), tag))
    return scalar_summary(tag, value)


def _merge(*summaries: Any) -> bytes:
    """Join serialized summaries; protobuf merges messages by joining their bytes."""
    parts = [item.item() if isinstance(item, np.ndarray) else item for item in summaries]
    merged = b"".join(parts)
    seen = set()
    for tag in summary_tags(merged):
        if tag in seen:
            raise ValueError(f"Duplicate tag {tag} found in summary inputs")
        seen.add(tag)
    return merged


def _batch_spec(check: Callable[..., None], rank: int) -> Callable[..., Spec]:
    """Return the rule of a batch of images or sounds, whose shape and dtype are checked."""

    def spec(batch: Spec, *_rate: Spec, tag: str, **_attrs: int) -> Spec:
        check(tag, (None,) * rank if batch.shape is None else batch.shape, batch.dtype.name)
        return _SUMMARY

    return spec


_SUMMARY = Spec(dtypes.string, ())

# fmt: off
register(OpDef("ScalarSummary", _scalar, _scalar_spec))
register(OpDef("HistogramSummary", lambda values, *, tag: histogram_summary(tag, values) or b"",
    _real_spec))
register(OpDef("ImageSummary", lambda images, *, tag, max_images:
    image_summary(tag, images, max_images), _batch_spec(check_images, 4)))
register(OpDef("AudioSummaryV2", lambda sounds, rate, *, tag, max_outputs:
    audio_summary(tag, sounds, rate, max_outputs), _batch_spec(check_sound, 3)))
register(OpDef("TensorSummaryV2", lambda array, *, tag, metadata:
    tensor_summary_bytes(tag, np.asarray(array), metadata), lambda *_, **__: _SUMMARY))
register(OpDef("MergeSummary", _merge, _merge_spec))
# fmt: on
