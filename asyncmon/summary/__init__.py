"""Write and read the event files of TensorBoard.

Usage::

    async with FileWriter("logs/run1") as writer:
        writer.add_scalar("loss", 0.5, global_step=1)

    async for event in summary_iterator(path):
        for value in event.summary.value:
            print(event.step, value.tag, value.simple_value)

Modules, from the lowest layer: ``events`` (messages), ``entries`` (pending events), ``sink_thread`` (a
queue and a thread), ``event_file`` (the disk), ``event_log`` (one of them per directory), ``writer``,
``shared_writer``; ``reader``, ``scalars``. ``values`` makes summaries of numbers, arrays, images, sound
(``media``, ``histogram``) and text, ``graph_def`` encodes graphs, ``ops`` are the summary ops.
"""

# fmt: off
# isort: off
from asyncmon.summary.events import (
    Event, HistogramProto, SessionLog, Summary, SummaryMetadata, TaggedRunMetadata,
)
from asyncmon.summary.graph_events import write_graph
from asyncmon.summary.logged import Image, Logger
from asyncmon.summary.ops import (
    audio, histogram, image, merge, merge_all, scalar, tensor_summary, text,
)
from asyncmon.summary.reader import follow, summary_iterator
from asyncmon.summary.scalars import Scalar, find_event_files, read_scalars
from asyncmon.summary.shared_writer import FileWriterCache
from asyncmon.summary.writer import FileWriter

__all__ = [
    "Event", "FileWriter", "FileWriterCache", "HistogramProto", "Image", "Logger", "Scalar",
    "SessionLog", "Summary", "SummaryMetadata", "TaggedRunMetadata", "audio", "find_event_files",
    "follow", "histogram", "image", "merge", "merge_all", "read_scalars", "scalar",
    "summary_iterator", "tensor_summary", "text", "write_graph",
]
# fmt: on
# isort: on
__dir__ = __all__.copy
