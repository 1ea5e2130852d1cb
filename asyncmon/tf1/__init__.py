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

What is here and nowhere else is what only ports need, made of the public names below. What TF1 has and
this has not says on access what to use instead.
"""

import typing as _typing

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
from asyncmon.tf1.ops.strings import decode_raw as decode_raw, string_to_number as string_to_number
from asyncmon.tf1.ops.readers import ReaderBase as ReaderBase
from asyncmon.system.missing_names import missing_name as _missing_name
from asyncmon.protobuf.graph_def import AttrValue as AttrValue, GraphDef as GraphDef, NodeDef as NodeDef
from asyncmon.session_config import (
    GPUOptions as GPUOptions, GraphOptions as GraphOptions, OptimizerOptions as OptimizerOptions,
    RPCOptions as RPCOptions, SessionConfig,
)
from asyncmon.summary.events import LogMessage as LogMessage
from asyncmon.tf1 import (
    app as app, compat as compat, contrib as contrib, debugging as debugging, dtypes as dtypes,
    flags as flags, gfile as gfile, image as image, initializer_names, io as io, layers as layers,
    linalg as linalg, logging as logging, losses as losses, manip as manip, math as math,
    metrics as metrics, nn as nn, python_io as python_io, random as random, strings as strings,
    summary as summary, train as train,
)
from asyncmon.tf1.check_ops import *
from asyncmon.tf1.constants import *
from asyncmon.tf1.file_ops import matching_files as matching_files, read_file as read_file
from asyncmon.tf1.functional_ops import (
    case as case, foldl as foldl, foldr as foldr, map_fn as map_fn, scan as scan,
)
from asyncmon.tf1.image import random_crop as random_crop
from asyncmon.tf1.logging import get_logger as get_logger
from asyncmon.tf1.old_names import *
from asyncmon.tf1.parsing import (
    FixedLenFeature as FixedLenFeature, FixedLenSequenceFeature as FixedLenSequenceFeature,
    parse_example as parse_example, parse_single_example as parse_single_example,
)
from asyncmon.tf1.readers import (
    FixedLengthRecordReader as FixedLengthRecordReader, IdentityReader as IdentityReader,
    TextLineReader as TextLineReader, TFRecordReader as TFRecordReader,
    WholeFileReader as WholeFileReader,
)
from asyncmon.tf1.summary import (
    Event as Event, HistogramProto as HistogramProto, SessionLog as SessionLog, Summary as Summary,
    SummaryMetadata as SummaryMetadata, audio_summary as audio_summary,
    histogram_summary as histogram_summary, image_summary as image_summary,
    merge_all_summaries as merge_all_summaries, merge_summary as merge_summary,
    scalar_summary as scalar_summary,
)
from asyncmon.tf1.template import make_template as make_template
# isort: on
# fmt: on

ConfigProto = SessionConfig
initializers = initializer_names  # type: ignore[misc]  # that of the graph, and more


def __getattr__(name: str) -> _typing.Any:
    raise _missing_name(__name__, name, "", globals())
