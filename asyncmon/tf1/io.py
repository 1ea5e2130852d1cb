"""TF1: ``tf.io``: files, records and examples."""

from typing import Any

# fmt: off
# isort: off
from asyncmon.missing_names import missing_name
from asyncmon.graph import (
    PaddingFIFOQueue, PriorityQueue, QueueBase, RandomShuffleQueue,
)
from asyncmon.tf1 import io_gfile as gfile
from asyncmon.tf1.features import (
    FixedLenFeature, FixedLenSequenceFeature,
)
from asyncmon.tf1.file_ops import (
    matching_files, read_file, write_file,
)
from asyncmon.tf1.image_files import (
    decode_jpeg, decode_png, encode_jpeg, encode_png,
)
from asyncmon.tf1.input import match_filenames_once
from asyncmon.tf1.more_ops import (
    decode_csv, decode_raw,
)
from asyncmon.tf1.parsing import (
    parse_example, parse_single_example,
)
from asyncmon.tf1.python_io import (
    TFRecordCompressionType, TFRecordOptions, TFRecordWriter, tf_record_iterator,
)
from asyncmon.tf1.train import write_graph
# isort: on

__all__ = [
    "FixedLenFeature", "FixedLenSequenceFeature", "PaddingFIFOQueue", "PriorityQueue", "QueueBase",
    "RandomShuffleQueue", "TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter",
    "decode_csv", "decode_jpeg", "decode_png", "decode_raw", "encode_jpeg",
    "encode_png", "gfile", "match_filenames_once", "matching_files", "parse_example",
    "parse_single_example", "read_file", "tf_record_iterator",
    "write_file", "write_graph",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "io.", globals())
