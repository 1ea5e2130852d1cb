"""TF1: ``tf.io``: files, records and examples."""

# fmt: off
# isort: off
from types import ModuleType as _ModuleType

from asyncmon.graph import QueueBase, RandomShuffleQueue
from asyncmon.summary import write_graph
from asyncmon.tf1.file_ops import matching_files, read_file
from asyncmon.tf1.image import decode_image, decode_jpeg, decode_png, encode_jpeg, encode_png
from asyncmon.tf1.input import match_filenames_once
from asyncmon.tf1.ops.strings import decode_csv, decode_raw
from asyncmon.tf1.parsing import (
    FixedLenFeature, FixedLenSequenceFeature, VarLenFeature, parse_example, parse_single_example,
)
from asyncmon.tf1.python_io import (
    TFRecordCompressionType, TFRecordOptions, TFRecordWriter, tf_record_iterator,
)
from asyncmon.tf1.queues import PaddingFIFOQueue, PriorityQueue
# isort: on

__all__ = [
    "FixedLenFeature", "FixedLenSequenceFeature", "PaddingFIFOQueue", "PriorityQueue", "QueueBase",
    "RandomShuffleQueue", "TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter",
    "VarLenFeature", "decode_csv", "decode_image", "decode_jpeg", "decode_png", "decode_raw",
    "encode_jpeg", "encode_png", "gfile", "match_filenames_once", "matching_files", "parse_example",
    "parse_single_example", "read_file", "tf_record_iterator", "write_graph",
]
# fmt: on

gfile: _ModuleType
