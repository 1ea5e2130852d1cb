"""TF1: ``tf.io``: files, records and examples."""

# fmt: off
# isort: off
from asyncmon.graph import (
    PaddingFIFOQueue as PaddingFIFOQueue, PriorityQueue as PriorityQueue, QueueBase as QueueBase,
    RandomShuffleQueue as RandomShuffleQueue,
)
from asyncmon.tf1.ops.csv_records import decode_csv as decode_csv
from asyncmon.tf1.ops.strings import decode_raw as decode_raw
from asyncmon.summary import write_graph as write_graph
from asyncmon.tf1.file_ops import matching_files as matching_files, read_file as read_file
from asyncmon.tf1.image import (
    decode_image as decode_image, decode_jpeg as decode_jpeg, decode_png as decode_png,
    encode_jpeg as encode_jpeg, encode_png as encode_png,
)
from asyncmon.tf1.input import match_filenames_once as match_filenames_once
from asyncmon.tf1.parsing import (
    FixedLenFeature as FixedLenFeature, FixedLenSequenceFeature as FixedLenSequenceFeature,
    VarLenFeature as VarLenFeature,
    parse_example as parse_example, parse_single_example as parse_single_example,
)
from asyncmon.tf1.python_io import (
    TFRecordCompressionType as TFRecordCompressionType, TFRecordOptions as TFRecordOptions,
    TFRecordWriter as TFRecordWriter, tf_record_iterator as tf_record_iterator,
)
# isort: on
# fmt: on
