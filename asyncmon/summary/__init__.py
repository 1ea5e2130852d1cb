"""Event files that TensorBoard reads: values in, records on disk, and back.

Usage::

    async with FileWriter("logs/run1") as writer:
        writer.add_scalar("loss", 0.5, global_step=1)

    async for event in summary_iterator(path):
        for value in event.summary.value:
            print(event.step, value.tag, value.simple_value)

From the ground up: ``events`` (what a file holds), ``tfrecord`` (how it is framed),
``event_queue`` (what waits), ``event_file`` (the disk), ``writer_task`` (between the two), ``writer``,
``shared_writer``, ``reader``, ``scalars``. ``values`` makes summaries of numbers, arrays, images
(``media``, ``histogram``), sound and text, ``graph_def`` shows graphs, ``ops`` puts summaries into a
graph.
"""

from asyncmon.summary.events import Event as Event
from asyncmon.summary.events import HistogramProto as HistogramProto
from asyncmon.summary.events import SessionLog as SessionLog
from asyncmon.summary.events import Summary as Summary
from asyncmon.summary.events import SummaryMetadata as SummaryMetadata
from asyncmon.summary.events import TaggedRunMetadata as TaggedRunMetadata
from asyncmon.summary.graph_def import write_graph as write_graph
from asyncmon.summary.ops import audio as audio
from asyncmon.summary.ops import histogram as histogram
from asyncmon.summary.ops import image as image
from asyncmon.summary.ops import merge as merge
from asyncmon.summary.ops import merge_all as merge_all
from asyncmon.summary.ops import scalar as scalar
from asyncmon.summary.ops import tensor_summary as tensor_summary
from asyncmon.summary.ops import text as text
from asyncmon.summary.reader import follow as follow
from asyncmon.summary.reader import summary_iterator as summary_iterator
from asyncmon.summary.scalars import Scalar as Scalar
from asyncmon.summary.scalars import find_event_files as find_event_files
from asyncmon.summary.scalars import read_scalars as read_scalars
from asyncmon.summary.shared_writer import FileWriterCache as FileWriterCache
from asyncmon.summary.writer import FileWriter as FileWriter
