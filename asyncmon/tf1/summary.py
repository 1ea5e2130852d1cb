"""TF1: ``tf.summary``, and the summary functions of TF1 before 1.0."""

from __future__ import annotations

from typing import Any

# fmt: off
# isort: off
from asyncmon import graph as g
from asyncmon.system.missing_names import missing_name
from asyncmon.summary import (
    Event as Event, FileWriter as FileWriter, FileWriterCache as FileWriterCache,
    HistogramProto as HistogramProto, SessionLog as SessionLog, Summary as Summary,
    SummaryMetadata as SummaryMetadata, TaggedRunMetadata as TaggedRunMetadata, audio as audio,
    follow as follow, histogram as histogram, image as image, merge as merge, merge_all as merge_all,
    scalar as scalar, summary_iterator as summary_iterator, tensor_summary as tensor_summary,
    text as text,
)
from asyncmon.summary.ops import collect
# isort: on
# fmt: on
from collections.abc import Sequence


# fmt: off
def scalar_summary(
    tags: Any, values: Any, collections: Sequence[str] | None = None, name: str | None = None
) -> g.Tensor:
    """Return an op that summarises numbers. TF1: ``tf.scalar_summary``, before 1.0.

    ``tags`` is one tag, as it is, or a list with one for each element of the vector ``values``.
    """
    if isinstance(tags, str | bytes):
        return _summary("ScalarSummary", name, collections, tags, values)
    elements = g.unstack(g.convert_to_tensor(values), len(tags))
    with g.name_scope(name, "ScalarSummary"):
        parts = [
            _summary("ScalarSummary", None, (), tag, x) for tag, x in zip(tags, elements, strict=True)
        ]
    return merge(parts, [g.GraphKeys.SUMMARIES] if collections is None else collections)


def histogram_summary(
    tag: Any, values: Any, collections: Sequence[str] | None = None, name: str | None = None
) -> g.Tensor:
    """Return an op that summarises a distribution. TF1: ``tf.histogram_summary``, before 1.0."""
    return _summary("HistogramSummary", name, collections, tag, values)


def image_summary(
    tag: Any, tensor: Any, max_images: int = 3,
    collections: Sequence[str] | None = None, name: str | None = None,
) -> g.Tensor:
    """Return an op that summarises images. TF1: ``tf.image_summary``, before 1.0."""
    return _summary("ImageSummary", name, collections, tag, tensor, max_images=max_images)


def audio_summary(
    tag: Any, tensor: Any, sample_rate: Any, max_outputs: int = 3,
    collections: Sequence[str] | None = None, name: str | None = None,
) -> g.Tensor:
    """Return an op that summarises sounds. TF1: ``tf.audio_summary``, before 1.0."""
    inputs = (tensor, g.convert_to_tensor(sample_rate, g.float32))
    return _summary("AudioSummaryV2", name, collections, tag, *inputs, max_outputs=max_outputs)


merge_summary = merge
merge_all_summaries = merge_all


def _summary(
    kind: str, name: str | None, collections: Sequence[str] | None, tag: Any, *inputs: Any, **attrs: Any
) -> g.Tensor:
    attrs["tag"] = tag.decode() if isinstance(tag, bytes) else tag
    return collect(g.create_op(kind, inputs, attrs, name), collections)
# fmt: on


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "summary.", globals())
