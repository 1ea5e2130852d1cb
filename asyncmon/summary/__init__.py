"""Event files that TensorBoard reads: values in, records on disk, and back.

Usage::

    async with FileWriter("logs/run1") as writer:
        writer.add_scalar("loss", 0.5, global_step=1)

    async for event in summary_iterator(path):
        for value in event.summary.value:
            print(event.step, value.tag, value.simple_value)

From the wire up: ``wire`` and ``message`` (protobuf without protobuf), ``events`` (what a file holds),
``records`` (how it is framed), ``entries`` and ``backlog`` (what waits), ``event_file`` (the disk),
``pump`` (the task between them), ``writer``, ``writer_cache``, ``reader``. ``values`` makes summaries
of numbers, arrays, images, sound and text, ``late`` what waits for the writer's thread; ``ops`` puts
them into a graph.
"""

from asyncmon.summary.events import (
    Event,
    HistogramProto,
    SessionLog,
    Summary,
    SummaryMetadata,
    TaggedRunMetadata,
)
from asyncmon.summary.ops import (
    audio,
    histogram,
    image,
    merge,
    merge_all,
    scalar,
    tensor_summary,
    text,
)
from asyncmon.summary.reader import follow, summary_iterator
from asyncmon.summary.writer import FileWriter
from asyncmon.summary.writer_cache import FileWriterCache

__all__ = [
    "Event",
    "FileWriter",
    "FileWriterCache",
    "HistogramProto",
    "SessionLog",
    "Summary",
    "SummaryMetadata",
    "TaggedRunMetadata",
    "audio",
    "follow",
    "histogram",
    "image",
    "merge",
    "merge_all",
    "scalar",
    "summary_iterator",
    "tensor_summary",
    "text",
]
