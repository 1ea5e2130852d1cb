"""TF1: ``tf.summary``."""

# fmt: off
# isort: off
from asyncmon.summary import (
    Event as Event, FileWriter as FileWriter, FileWriterCache as FileWriterCache,
    HistogramProto as HistogramProto, SessionLog as SessionLog, Summary as Summary,
    SummaryMetadata as SummaryMetadata, TaggedRunMetadata as TaggedRunMetadata, audio as audio,
    histogram as histogram, image as image, merge as merge, merge_all as merge_all,
    scalar as scalar, summary_iterator as summary_iterator, tensor_summary as tensor_summary,
    text as text,
)
# isort: on
# fmt: on
