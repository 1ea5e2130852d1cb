"""TF1's own layout of names, for programs that are ported: ``import asyncmon.tf1 as tf``.

::

    import asyncmon.tf1 as tf

    async def main(argv):
        loss = tf.losses.mean_squared_error(labels, tf.layers.dense(inputs, 1))
        train_op = tf.train.AdamOptimizer().minimize(loss, tf.train.get_or_create_global_step())
        async with tf.train.MonitoredTrainingSession(checkpoint_dir="runs/1") as sess:
            while not sess.should_stop():
                await sess.run(train_op)

    if __name__ == "__main__":
        tf.app.run(main)

A name of TF1 that is missing here raises an AttributeError with the replacement.
"""

import sys as _sys

# fmt: off
# isort: off
from asyncmon import errors as errors
from asyncmon.errors import OpError as OpError
from asyncmon.graph import *
from asyncmon.tf1.ops.csv_records import decode_csv as decode_csv
from asyncmon.tf1.ops.matrices import diag as diag, diag_part as diag_part, norm as norm
from asyncmon.graph.ops.variable_ops import (
    count_up_to as count_up_to, scatter_nd_add as scatter_nd_add, scatter_nd_sub as scatter_nd_sub,
    scatter_nd_update as scatter_nd_update,
)
from asyncmon.tf1.ops.sequences import (
    meshgrid as meshgrid, reverse_sequence as reverse_sequence,
    searchsorted as searchsorted, sequence_mask as sequence_mask, sparse_to_dense as sparse_to_dense,
)
from asyncmon.tf1.ops.segments import (
    dynamic_partition as dynamic_partition, dynamic_stitch as dynamic_stitch,
    segment_max as segment_max, segment_mean as segment_mean, segment_sum as segment_sum,
    unsorted_segment_mean as unsorted_segment_mean,
)
from asyncmon.tf1.ops.sparse import (
    SparseTensor as SparseTensor, SparseTensorValue as SparseTensorValue,
    sparse_placeholder as sparse_placeholder, sparse_tensor_to_dense as sparse_tensor_to_dense,
)
from asyncmon.tf1.ops.strings import decode_raw as decode_raw, string_to_number as string_to_number
from asyncmon.tf1.ops.readers import ReaderBase as ReaderBase
from asyncmon.tf1.ops.tensor_array import TensorArray as TensorArray
from asyncmon.protobuf.graph_def import AttrValue as AttrValue, GraphDef as GraphDef, NodeDef as NodeDef
from asyncmon.session_config import (
    GPUOptions as GPUOptions, GraphOptions as GraphOptions, OptimizerOptions as OptimizerOptions,
    RPCOptions as RPCOptions, SessionConfig,
)
from asyncmon.summary.events import LogMessage as LogMessage
from asyncmon.tf1 import (
    app as app, compat as compat, contrib as contrib, flags as flags, gfile as gfile, image as image,
    io as io, layers as layers, logging as logging, losses as losses, metrics as metrics, nn as nn,
    python_io as python_io, rnn_cell as _rnn_cell, summary as summary, train as train,
)
from asyncmon.tf1.check_ops import *
from asyncmon.tf1.file_ops import matching_files as matching_files, read_file as read_file
from asyncmon.tf1.functional_ops import (
    case as case, foldl as foldl, foldr as foldr, map_fn as map_fn, scan as scan,
)
from asyncmon.tf1.image import random_crop as random_crop
from asyncmon.tf1.logging import get_logger as get_logger
from asyncmon.tf1.namespaces import (
    open_namespace as _open_namespace, small_namespaces as _small_namespaces,
)
from asyncmon.tf1.old_names import *
from asyncmon.tf1.parsing import (
    FixedLenFeature as FixedLenFeature, FixedLenSequenceFeature as FixedLenSequenceFeature,
    VarLenFeature as VarLenFeature,
    parse_example as parse_example, parse_single_example as parse_single_example,
)
from asyncmon.tf1.readers import (
    FixedLengthRecordReader as FixedLengthRecordReader, IdentityReader as IdentityReader,
    TextLineReader as TextLineReader, TFRecordReader as TFRecordReader,
    WholeFileReader as WholeFileReader,
)
from asyncmon.tf1.summary import (
    Event as Event, HistogramProto as HistogramProto, SessionLog as SessionLog, Summary as Summary,
    SummaryMetadata as SummaryMetadata,
)
from asyncmon.tf1.template import make_template as make_template
# isort: on
# fmt: on

ConfigProto = SessionConfig

VERSION = "1.15.0"
"""The release of TF1 whose names these are, for programs that compare versions."""

__version__ = VERSION

_small = _small_namespaces(_sys.modules[__name__])
debugging, dtypes, initializers, linalg, manip, math, random, sparse, strings = _small

for _module in (
    _sys.modules[__name__], app, compat, contrib, contrib.framework, contrib.layers, contrib.rnn,
    contrib.seq2seq, contrib.slim, contrib.training, gfile, image, io, layers, logging, losses, metrics,
    nn, python_io, _rnn_cell, summary, train, *_small,
):  # fmt: skip
    _open_namespace(_module)
